"""The memory against the practice cluster, in health and with everything broken at once."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rebalancer.kube.client.client import ApiClient, Retries, Timeouts
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.kube.watch.cache import WatchedCluster
from rebalancer.lab import Breaks, Lab, node, scenario, workload
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.kube.fakes.api import client_of_lab
from tests.kube.fakes.watches import until
from tests.kube.readers import contents

SHORTEST_PAUSE_SECONDS = 0.01


class Counted:
    """Pauses that are short, and counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _: float) -> None:
        self.count += 1
        time.sleep(SHORTEST_PAUSE_SECONDS)


@pytest.fixture
def lab() -> Iterator[Lab]:
    nodes = [node(name, pods=500, images={"app:1": 100}) for name in ("a", "b", "c")]
    workloads = [
        workload("web", place={"a": 30, "b": 10}, cpu=0.01, cpu_request="5m", pdb={"min_available": 20}),
        workload("db", kind="StatefulSet", place={"b": 3}, cpu=0.1),
        workload("agent", kind="DaemonSet", cpu=0.01, cpu_request="5m"),
    ]
    # no usage to speak of: half of a second is a minute here, so that pods start and stop while a test looks
    with Lab.start(scenario(nodes=nodes, workloads=workloads, history_days=0.01), speed=100) as lab:
        yield lab


@contextmanager
def watched(lab: Lab, tmp_path: Path) -> Iterator[tuple[WatchedCluster, ApiClient, Counted]]:
    pauses, retries = Counted(), Retries(attempts=2, base_seconds=0.01, longest_wait_seconds=0.01)
    with client_of_lab(lab, tmp_path, timeouts=Timeouts(read_seconds=5.0), retries=retries) as client:
        cluster = WatchedCluster(client=client, clock=lab.clock, pause=pauses)
        cluster.start()
        try:
            yield cluster, client, pauses
        finally:
            cluster.stop()


def change(lab: Lab, chance: random.Random) -> None:
    """Something that happens to a cluster."""
    store = lab.cluster.store
    match chance.randrange(8):
        case 0 | 1:
            with lab.cluster.lock:  # the practice cluster removes pods of its own accord
                if pods := store.keys("pods"):
                    store.remove("pods", *chance.choice(sorted(pods)))
        case 2:
            lab.cluster.cordon(chance.choice("abc"), on=chance.random() < 0.5)
        case 3:
            lab.cluster.taint(chance.choice("abc"), f"k{chance.randrange(3)}", effect="PreferNoSchedule")
        case 4:
            how = Breaks(after_seconds=0.0, exit_code=chance.randrange(1, 4), restarts=chance.random() < 0.7)
            with lab.cluster.lock:
                running = [each["metadata"] for each in lab.cluster.pods() if each["status"]["phase"] == "Running"]
                if running:
                    meta = chance.choice(running)
                    lab.cluster.end_containers(meta["namespace"], meta["name"], how)
        case 5:
            lab.cluster.label_node(chance.choice("abc"), {"disk": chance.choice(["ssd", None])})
        case 6:
            name = f"new-{chance.randrange(10**6)}"
            lab.cluster.add_workload(workload(name, replicas=chance.randrange(1, 4), cpu=0.01, cpu_request="5m"))
        case _:
            lab.cluster.roll_out("default", "web", plural="deployments", image=f"app:{chance.randrange(9)}")


def become_the_same(cluster: WatchedCluster, live: KubeCluster) -> ClusterSnapshot:
    """Wait until memory and server agree; the cluster goes on moving meanwhile."""
    found: list[ClusterSnapshot] = []

    def same() -> bool:
        if not cluster.synced():
            return False
        found.append(cluster.snapshot())
        return contents(found[-1]) == contents(live.snapshot())

    until(same, seconds=60)
    return found[-1]


def test_after_random_changes_memory_and_server_agree(lab: Lab, tmp_path: Path) -> None:
    chance = random.Random(11)
    with watched(lab, tmp_path) as (cluster, client, pauses):
        until(cluster.synced)
        for _ in range(3):
            for _ in range(25):
                change(lab, chance)
            become_the_same(cluster, KubeCluster(client=client, clock=lab.clock))
        stats = cluster.stats()
        assert stats["pods"].events > 50
        assert {name: each for name, each in stats.items() if each.relists + each.restarts + each.errors} == {}
        assert pauses.count == 0


FAULTS = {
    "429": {"throttled_share": 0.8, "retry_after_seconds": 0},
    "500": {"error_share": 0.8},
    "cut": {"cut_share": 0.8},
    "garbage": {"garbage_share": 0.8},
    "410": {"expire_watches": True},
    "latency": {"latency_seconds": 0.05},
    "all at once": {
        "throttled_share": 0.2,
        "error_share": 0.2,
        "cut_share": 0.2,
        "garbage_share": 0.2,
        "latency_seconds": 0.01,
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_memory_and_server_agree_without_a_new_start(lab: Lab, tmp_path: Path, fault: str) -> None:
    chance = random.Random(12)
    lab.faults.set(**FAULTS[fault])
    with watched(lab, tmp_path) as (cluster, client, pauses):
        if fault != "latency":
            until(lambda: sum(each.errors + each.relists for each in cluster.stats().values()) > 5)
        for _ in range(20):
            change(lab, chance)
            time.sleep(SHORTEST_PAUSE_SECONDS)
        lab.cluster.store.compact()
        lab.faults.clear()
        become_the_same(cluster, KubeCluster(client=client, clock=lab.clock))
        assert cluster.dead() == []
        stats = cluster.stats().values()
        # a round is a list, a watch and an error at most; only a kind's first two go without a pause
        rounds = pauses.count + 2 * len(stats)
        assert sum(each.relists for each in stats) <= rounds
        assert sum(each.restarts for each in stats) <= rounds
        assert sum(each.errors for each in stats) <= rounds


def test_a_cluster_that_is_broken_from_the_start_is_read_once_it_is_well(lab: Lab, tmp_path: Path) -> None:
    lab.faults.set(error_share=0.7, garbage_share=0.2)
    with watched(lab, tmp_path) as (cluster, client, _):
        until(lambda: sum(each.errors for each in cluster.stats().values()) > 10)
        lab.faults.clear()
        become_the_same(cluster, KubeCluster(client=client, clock=lab.clock))
