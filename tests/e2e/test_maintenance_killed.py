"""A daemon that empties twenty nodes is killed with SIGKILL in the middle of a wave; the next one carries on."""

import signal
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.model.cluster.steering import MAINTENANCE
from tests.e2e.servers import DaemonProcess, daemon, evicted, until
from tests.programs.cli import policy_for
from tests.stories.readers import Log, Watch, cordoned, ours_on, pods_by_node
from tests.stories.scenarios.stage import GENEROUS

CHOSEN, SPARE, REPLICAS = 20, 8, 4
AT_ONCE = 5
ZONES = {f"old-{number:02}": f"z{number % 2}" for number in range(CHOSEN)}
BEFORE_THE_KILL = 3
SECONDS_AT_MOST = 120.0


def a_lab() -> Lab:
    """Two pods on each node; of each service two are in the same wave, and its budget lets one go at a time."""
    nodes = [node(name, zone=zone, labels={"old": "yes"}) for name, zone in ZONES.items()]
    nodes += [node(f"new-{number}", zone=f"z{number % 2}") for number in range(SPARE)]
    services = [
        workload(
            f"s{number}",
            namespace="shop",
            place={f"old-{(number * 2 + step) % CHOSEN:02}": 1 for step in (0, 1, 9, 10)},
            cpu=0.3,
            cpu_request="300m",
            pdb={"min_available": REPLICAS - 1},
        )
        for number in range(CHOSEN // 2)
    ]
    return Lab.start(scenario(nodes=nodes, workloads=services, start_seconds=0.5, stop_seconds=0.5), speed=1.0)


def policy_of(lab: Lab) -> dict[str, Any]:
    args = {"nodeSelector": {"matchLabels": {"old": "yes"}}, "maxConcurrentNodes": AT_ONCE}
    return policy_for(
        lab.prometheus_url,
        strategies=[{"name": "NodeMaintenance", "args": args, "interval": "10s"}],
        # the budgets hold, not the limits
        limits={**GENEROUS, "service": {"inFlight": 4}},
        safety={"cooldowns": dict.fromkeys(("node", "service", "serviceNode", "poolAfterScaleUp"), "0s")},
        softTaint={"maxNodes": "100%"},
    )


def ask(running: DaemonProcess) -> None:
    """For a cycle now, instead of waiting for the next."""
    until(lambda: running.post({"nodes": sorted(ZONES)}, "/api/v1/trigger") in (200, 202), running.tail)


def left(lab: Lab) -> int:
    """Nodes that are chosen and not empty."""
    on = pods_by_node(lab)
    return sum(bool(on[name]) for name in ZONES)


def let_the_lease_run_out(lab: Lab) -> None:
    """What 15 s without a renewal would do."""
    store = lab.cluster.store
    with lab.cluster.lock:
        lease = store.get("leases", "kube-system", "rebalancer")
        store.change("leases", lease, lambda new: new["spec"].update(holderIdentity=""))


@pytest.mark.timeout(300)
def test_a_daemon_killed_in_the_middle_of_a_maintenance_is_followed_by_one_that_carries_on(tmp_path: Path) -> None:
    with a_lab() as lab:
        least_ready = {f"s{number}": REPLICAS - 1 for number in range(CHOSEN // 2)}
        watch = Watch(least_ready=least_ready, group_of=ZONES).begin(lab)
        config = lab.write_kubeconfig(tmp_path / "kubeconfig")
        lab.faults.set(eviction_delay_seconds=0.5)  # so that it is killed between a call and its answer
        with daemon(tmp_path, policy_of(lab), config) as first:
            until(first.leads, first.tail)
            ask(first)
            until(lambda: len(evicted(lab)) >= BEFORE_THE_KILL, first.tail)
            first.signal(signal.SIGKILL)
            assert first.ended() == -signal.SIGKILL
        lab.faults.clear()
        done = len(evicted(lab))
        # in the middle of the first wave: cordons are there, and no process lifts them
        assert done < 2 * CHOSEN
        assert left(lab) > CHOSEN - AT_ONCE
        begun = cordoned(lab)
        assert 0 < len(begun) <= AT_ONCE
        let_the_lease_run_out(lab)
        with daemon(tmp_path, policy_of(lab), config) as second:
            until(second.leads, second.tail)

            def finished() -> bool:
                if left(lab):
                    ask(second)
                return not left(lab) and cordoned(lab) == set(ZONES)

            until(finished, second.tail, SECONDS_AT_MOST)
            second.signal(signal.SIGTERM)
            assert second.ended(30.0) == 0
        # all are empty and stay cordoned, though no process is there any more
        assert ours_on(lab) == dict.fromkeys(ZONES, MAINTENANCE)
        assert cordoned(lab) == set(ZONES)
        log = Log.of(lab)
    assert watch.broken == []
    assert watch.waves == {frozenset(), frozenset({"z0"}), frozenset({"z1"})}
    assert watch.most_in_work == AT_ONCE
    assert len(evicted(lab)) == 2 * CHOSEN
    assert log.moved_once
