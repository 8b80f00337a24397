"""In the demo's lab: a service with three replicas is moved again and again, and never down by more than its limit.

Whatever node its pods land on gets hot again, by a bare pod that may not be moved. What is checked comes from the
lab's own event log: evictions, and when pods were ready, terminating and deleted.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cli.commands.demo import demo_policy
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Lab, load, node, workload
from rebalancer.lab.log import Entry
from rebalancer.policy import RebalancerPolicy

SPEED = 60.0
RATE_WINDOW = 60.0
NAMESPACE, SERVICE = "shop", "trio"
REPLICAS, LIMIT = 3, 1
MOVES = 3
CYCLES_AT_MOST = 24
HOT_SHARE = 0.85
START_SECONDS = 60.0
"""Longer than a cycle takes: some cycles find its replacement still on the way."""


def the_lab() -> Lab:
    """The demo, measured over a shorter window, with a service of three replicas on two of its hot nodes, and with
    idle nodes, so that there is always somewhere to go."""
    demo = load("demo")
    trio = workload(
        SERVICE,
        namespace=NAMESPACE,
        place={"gen-2": 2, "gen-5": 1},
        cpu_request="500m",
        memory_request="512Mi",
        cpu=2.5,
        start_seconds=START_SECONDS,
    )
    idle = [node(f"gen-{number}", pool="general") for number in range(9, 13)]
    changed = msgspec.structs.replace(
        demo, nodes=(*demo.nodes, *idle), workloads=(*demo.workloads, trio), rate_window_seconds=RATE_WINDOW
    )
    return Lab.start(changed, speed=SPEED)


def the_policy(lab: Lab) -> RebalancerPolicy:
    """The demo's, with short windows: a node and a service may be moved again soon."""
    document = demo_policy(lab).model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["usage"] |= {
        "rateWindow": f"{RATE_WINDOW:g}s",
        "stabilizationWindow": {"samples": 2, "duration": "15s"},
        "maxSampleAge": "1h",
    }
    document["limits"] |= {"node": {"evictions": [{"max": 6, "per": "2m"}]}, "service": {"inFlight": LIMIT}}
    none = dict.fromkeys(("node", "service", "serviceNode", "poolAfterScaleUp"), "0s")
    document["safety"] = {"cooldowns": none | {"backoff": {"initial": "1s", "max": "1s"}}}
    return RebalancerPolicy.model_validate(document)


def heat(lab: Lab, number: int) -> None:
    """Make every node hot that has one of the service's pods: what was added for the last cycle goes."""
    nodes = {pod["spec"].get("nodeName") for pod in lab.cluster.pods(namespace=NAMESPACE, workload=SERVICE)} - {None}
    store = lab.cluster.store
    with lab.cluster.lock:
        for pod in lab.cluster.pods(namespace="heat"):
            store.remove("pods", "heat", pod["metadata"]["name"])
    cores = {node["metadata"]["name"]: float(node["status"]["capacity"]["cpu"]) for node in lab.cluster.nodes()}
    now = lab.clock.now()
    used = lab.truth.node_cpu_share_instant(now)
    for name in sorted(nodes):
        missing = (HOT_SHARE - used[name]) * cores[name]
        if missing > 0:
            # it requests what it uses: kube-scheduler too sees that the node is full
            burning = {"cpu": missing, "cpu_request": f"{missing * 1000:.0f}m"}
            lab.cluster.add_workload(
                workload(f"burn-{number}-{name}", namespace="heat", kind="Pod", place={name: 1}, **burning)
            )


def of_the_service(log: Iterable[Entry]) -> list[Entry]:
    return [each for each in log if each.namespace == NAMESPACE and each.name.startswith(f"{SERVICE}-")]


def fewest_ready(log: Iterable[Entry], first: set[str]) -> int:
    """The fewest replicas that were Ready and not on their way out, ever. `first`: uids at the start."""
    ready, fewest = set(first), len(first)
    for each in of_the_service(log):
        if each.event == "ready":
            ready.add(each.uid)
        elif each.event in ("terminating", "deleted", "finished"):
            ready.discard(each.uid)
        fewest = min(fewest, len(ready))
    return fewest


def test_a_service_of_three_is_moved_often_and_never_down_by_more_than_its_limit(tmp_path: Path) -> None:
    refusals: set[str] = set()
    with the_lab() as lab:
        policy = the_policy(lab)
        settings = Settings(
            database=f"sqlite:///{tmp_path / 'rebalancer.db'}",
            kubeconfig=str(lab.write_kubeconfig(tmp_path / "config")),
        )
        first = {pod["metadata"]["uid"] for pod in lab.cluster.pods(namespace=NAMESPACE, workload=SERVICE)}
        assert len(first) == REPLICAS
        with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
            for number in range(CYCLES_AT_MOST):
                if len(of_the_service(lab.log.evictions(code=201))) > MOVES:
                    break
                heat(lab, number)
                lab.clock.sleep(RATE_WINDOW + 15)
                # one right after the other: the first one's replacements are still on their way
                for _ in range(2):
                    report = run_cycle(world, policy, dry_run=False).report
                    assert report.stopped is None
                    refusals |= {str(each.code) for each in report.refusals if each.name.startswith(f"{SERVICE}-")}
            lab.clock.sleep(2 * START_SECONDS)
        log = lab.log.entries()

    moved = of_the_service(each for each in log if each.event == "eviction" and each.code == 201)
    assert len(moved) >= MOVES
    assert len({each.uid for each in moved}) == len(moved)
    assert fewest_ready(log, first) == REPLICAS - LIMIT
    # every replacement got Ready, and no pod went but by us
    went = [each for each in of_the_service(log) if each.event == "terminating"]
    came = [each for each in of_the_service(log) if each.event == "ready"]
    assert len(went) == len(came) == len(moved)
    # the limit had something to do: the plan wanted more at once
    assert "LimitService" in refusals
