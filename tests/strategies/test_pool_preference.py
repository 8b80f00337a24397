"""PoolPreference: which pods go back to a better pool, when, and where they may land."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.past import Past, RequestedSample
from rebalancer.model.reason import Reason
from rebalancer.strategies import Findings
from rebalancer.strategies.lifecycle.pool_preference import find
from tests.builders import GIB, NOW, ANode, APod, a_node, a_pod, a_policy, an_eviction, cluster, usage_of, view_of
from tests.strategies.builders.finding import names_of

POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": {"high": 75, "target": 65, "low": 50}}
    for name in ("reserved", "spot", "on-demand")
]
ORDER = ["reserved", "spot", "on-demand"]
MINUTE, HOUR = 60.0, 3600.0


def in_pool(pool: str, name: str, **fields: Any) -> ANode:
    return a_node(name, **{"labels": {"pool": pool}, **fields})


def looks(*nodes: str, every: float = 120.0, back: float = 900.0, cpu: float = 0.0) -> list[RequestedSample]:
    """Cycles that saw so many millicores requested on these nodes, oldest first."""
    amounts = {"cpu": cpu, "memory": 0.0, "pods": 0.0}
    times = np.arange(NOW - back, NOW, every)
    return [RequestedSample(at=float(at), nodes=dict.fromkeys(nodes, amounts)) for at in times]


def found(
    nodes: Sequence[ANode],
    pods: Sequence[APod],
    past: Sequence[RequestedSample] = (),
    moves: Sequence[Eviction] = (),
    args: dict[str, Any] | None = None,
) -> tuple[Findings, ClusterSnapshot]:
    made = cluster(nodes, pods)
    strategy = {"name": "PoolPreference", "args": {"order": ORDER, **(args or {})}}
    policy = a_policy(pools=POOLS, strategies=[strategy])
    past_ = Past(requested=past, moves=moves)
    return find(view_of(made, usage_of(made, nodes, pods), policy, past=past_)), made


def going(result: tuple[Findings, ClusterSnapshot]) -> dict[str, set[str]]:
    """Pod -> nodes on which its replacement may land."""
    findings, made = result
    out = {}
    for each in findings.findings:
        assert each.landing.only is not None
        nodes = {made.nodes.names[node] for node in np.flatnonzero(each.landing.only)}
        out |= dict.fromkeys(names_of(each, made), nodes)
    return out


def staying(result: tuple[Findings, ClusterSnapshot]) -> dict[str, tuple[Reason, str]]:
    findings, made = result
    return {made.pods.names[pod]: (each.code, each.message) for pod, each in findings.stays.items()}


NODES = [in_pool("spot", "s"), in_pool("on-demand", "d"), in_pool("reserved", "r")]
POD = a_pod("web-0", "d", owner="web", used=100.0)


def test_a_pod_goes_to_the_nodes_of_better_pools_that_have_had_room_for_long_enough() -> None:
    result = found(NODES, [POD], looks("s", "d", "r"))
    assert going(result) == {"web-0": {"s", "r"}}
    (finding,) = result[0].findings
    assert (finding.pool, finding.reason) == ("on-demand", "pool reserved or spot has had room for 10m or longer")
    assert finding.landing.elsewhere
    assert staying(result) == {}


def test_a_pod_of_the_middle_pool_goes_to_the_best_only_and_one_of_the_best_stays() -> None:
    pods = [a_pod("mid", "s", owner="a"), a_pod("top", "r", owner="b"), a_pod("out", "x", owner="c")]
    assert going(found([*NODES, in_pool("other", "x")], pods, looks("s", "d", "r"))) == {"mid": {"r"}}


@pytest.mark.parametrize(
    ("past", "message"),
    [
        ((), "no node on which it would be better has room for the replacement: pool reserved or spot has had room "
         "for it for 0s of 10m"),
        (looks("s", "d", "r", back=540.0), "for 9m of 10m"),
        (looks("s", "d", "r", back=840.0)[:2] + looks("s", "d", "r", back=100.0), "for 1m40s of 10m"),
        ([*looks("s", "d", "r", back=900.0)[:4], *looks("d", back=420.0)[:1], *looks("s", "d", "r", back=300.0)],
         "for 5m of 10m"),
        (looks("s", "d", "r", back=900.0)[:4] + looks("s", "r", cpu=15_600.0, back=420.0)[:1]
         + looks("s", "d", "r", back=300.0), "for 5m of 10m"),
    ],
    ids=["never seen", "too short", "a gap", "not there once", "full once"],
)  # fmt: skip
def test_room_that_is_not_old_enough_is_no_room_yet(past: Sequence[RequestedSample], message: str) -> None:
    result = found(NODES, [POD], past)
    assert going(result) == {}
    code, text = staying(result)["web-0"]
    assert code is Reason.NO_BETTER_NODE
    assert text.endswith(message)
    assert result[0].notes == ("PoolPreference: no room for 10m in a better pool yet: 1 pod",)


def test_the_age_of_the_room_is_each_nodes_own() -> None:
    nodes = [*NODES, in_pool("spot", "new", age=300.0)]
    past = [*looks("s", "new", "d", back=900.0)[:5], *looks("s", "d", "new", back=300.0)]
    assert going(found(nodes, [POD], past)) == {"web-0": {"s"}}
    # an older node of the same name is another node
    assert going(found([in_pool("spot", "s", age=300.0), *NODES[1:2]], [POD], looks("s", "d"))) == {}


def test_better_nodes_that_an_autoscaler_may_remove_are_named_as_the_reason() -> None:
    candidate = Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")
    result = found([in_pool("spot", "s", taints=(candidate,)), NODES[1]], [POD], looks("s", "d"))
    assert going(result) == {}
    code, text = staying(result)["web-0"]
    assert code is Reason.NO_BETTER_NODE
    assert text.endswith("the nodes of pool spot are about to go, or may be removed")


@pytest.mark.parametrize(
    "spot",
    [
        {"ready": False},
        {"unschedulable": True},
        {"taints": (Taint(key="spot", effect="NoSchedule"),)},
        {"taints": (Taint(key="aws-node-termination-handler/spot-itn", effect="NoExecute"),)},
        {"used": 13_000.0},
        {"labels": {"pool": "none"}},
        {"memory": 0.5 * GIB},
    ],
    ids=["not Ready", "cordoned", "not tolerated", "leaving", "hot", "in no pool", "full by memory"],
)
def test_these_nodes_are_no_room(spot: dict[str, Any]) -> None:
    nodes = [in_pool("spot", "s", **spot), NODES[1]]
    assert going(found(nodes, [POD], looks("s", "d"))) == {}


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("web-0", "d"),
        a_pod("web-0", "d", owner="web", owner_kind="DaemonSet"),
        a_pod("web-0", "d", owner="web", terminating=True),
        a_pod("web-0", "d", owner="web", namespace="kube-system"),
        a_pod("web-0", "d", owner="web", template={"nodeSelector": {"pool": "on-demand"}}),
        a_pod("web-0", "d", owner="web", cpu=17_000.0),
    ],
    ids=["bare", "DaemonSet", "terminating", "other namespace", "selects its pool", "too large"],
)
def test_for_these_nothing_is_found(pod: APod) -> None:
    result = found(NODES, [pod], looks("s", "d", "r"), args={"namespaces": {"include": ["shop"]}})
    assert going(result) == {}


def test_what_a_gpu_pod_needs_counts() -> None:
    gpu = {"nvidia.com/gpu": 1.0}
    nodes = [in_pool("spot", "s", extended=gpu), in_pool("reserved", "r"), in_pool("on-demand", "d", extended=gpu)]
    pod = a_pod("web-0", "d", owner="web", template={"extendedRequests": gpu})
    past = [
        RequestedSample(at=each.at, nodes={name: {**of, "nvidia.com/gpu": 0.0} for name, of in each.nodes.items()})
        for each in looks("s", "d", "r")
    ]
    assert going(found(nodes, [pod], past)) == {"web-0": {"s"}}
    taken = [RequestedSample(at=past[-1].at, nodes={"s": {"nvidia.com/gpu": 1.0}})]
    assert going(found(nodes, [pod], [*past[:-1], *taken])) == {}


def move(ago: float, strategy: str = "PoolPreference") -> Eviction:
    return an_eviction(strategy=strategy, owner_uid="ReplicaSet-shop-web", planned_at=NOW - ago)


@pytest.mark.parametrize(
    ("moves", "age", "barred"),
    [
        ([], HOUR, ""),
        ([move(50 * MINUTE)], HOUR, ""),
        ([move(50 * MINUTE)], 40 * MINUTE, "1 return of its service"),
        ([move(70 * MINUTE)], 40 * MINUTE, ""),
        ([move(50 * MINUTE, "PodLifeTime")], 40 * MINUTE, ""),
        ([move(9 * HOUR), move(110 * MINUTE)], 40 * MINUTE, "2 returns of its service"),
        ([move(9 * HOUR), move(130 * MINUTE)], 40 * MINUTE, ""),
        ([move(9 * HOUR), move(5 * HOUR), move(3 * HOUR)], 40 * MINUTE, "3 returns of its service"),
    ],
    ids=["never moved", "was there", "fell back", "an hour ago", "of others", "twice", "two hours ago", "three times"],
)
def test_a_pod_that_fell_back_stays_longer_each_time(moves: Sequence[Eviction], age: float, barred: str) -> None:
    result = found(NODES, [a_pod("web-0", "d", owner="web", age=age)], looks("s", "d", "r"), moves)
    if not barred:
        assert going(result) == {"web-0": {"s", "r"}}
        return
    assert going(result) == {}
    code, text = staying(result)["web-0"]
    assert code is Reason.REPEATED_EVICTION
    assert barred in text
    assert result[0].notes == ("PoolPreference: fallen back after a return, left alone for a time: 1 pod",)


def test_one_pod_of_many_that_falls_back_again_and_again_is_backed_off() -> None:
    others = [a_pod(f"web-{at}", "r", owner="web") for at in range(1, 50)]
    pods = [a_pod("web-0", "d", owner="web", age=40 * MINUTE), *others]
    moves = [move(at * HOUR + 70 * MINUTE) for at in range(20, -1, -1)]
    assert going(found(NODES, pods, looks("s", "d", "r"), moves)) == {}


def test_moves_of_a_service_within_an_hour_are_one_return() -> None:
    pods = [a_pod(f"web-{at}", "d", owner="web", age=40 * MINUTE) for at in range(4)]
    moves = [move((61 + at) * MINUTE) for at in range(4)]
    assert len(going(found(NODES, pods, looks("s", "d", "r"), moves))) == 4
    assert going(found(NODES, pods, looks("s", "d", "r"), [*moves, move(3 * HOUR)])) == {}


def test_the_order_of_nodes_and_pods_changes_nothing() -> None:
    pods = [a_pod(f"{owner}-{at}", "d", owner=owner) for owner in ("web", "api") for at in range(3)]
    one = found(NODES, pods, looks("s", "d", "r"))
    other = found(NODES[::-1], pods[::-1], looks("s", "d", "r"))
    assert going(one) == going(other)
    assert [names_of(each, one[1]) for each in one[0].findings] == [
        names_of(each, other[1]) for each in other[0].findings
    ]
