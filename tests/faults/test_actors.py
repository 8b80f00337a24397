"""What one actor can do to the pods of others: the bounds of `tests/faults/actors.py` that no other test holds."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.model.cluster.objects import LabelSelector, Taint
from rebalancer.model.cluster.pods import FAILED, PENDING
from rebalancer.model.cluster.snapshot import DisruptionBudget
from rebalancer.policy import RebalancerPolicy
from tests.builders import ANode, APod, Outcome, a_budget, a_node, a_pod, a_policy, plan_all, replicas, some_limits
from tests.strategies.builders.finding import found_by

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
EVIL = "evil"
MANY = 5000

FREE = {"minReplicas": 1}
TIGHT = {**some_limits(node=3), "service": {"inFlight": 1}}
"""At most three from one node in ten minutes, one of each service at a time."""


def victims(node: str, count: int = 12, **fields: Any) -> list[APod]:
    """One pod each of as many services, in namespaces of their own."""
    return [
        a_pod(f"web-{at}", node, owner=f"web-{at}", **{"namespace": f"team-{at}", "cpu": 200, "used": 800.0, **fields})
        for at in range(count)
    ]


def room(*names: str, **fields: Any) -> list[ANode]:
    return [a_node(name, **fields) for name in names or ("cold-1", "cold-2", "cold-3")]


def gone(planned: Outcome, *nodes: str) -> list[str]:
    """Pods of others that leave these nodes, or any."""
    return [move.pod for move in planned.accepted if move.namespace != EVIL and (not nodes or move.node in nodes)]


# ---- pod creator


def test_the_load_of_a_pod_that_stays_takes_no_more_off_its_node_than_limits_allow() -> None:
    noisy = a_pod("noisy", "n1", namespace=EVIL, cpu=10, used=6_000.0)
    pods = [noisy, *victims("n1")]
    policy = a_policy(guards=FREE, limits=TIGHT)
    planned = plan_all([a_node("n1"), *room()], pods, policy)
    assert 0 < len(gone(planned)) <= 3
    assert plan_all([a_node("n1"), *room()], pods[1:], policy).accepted == []


def test_what_a_pod_that_stays_requests_takes_no_more_off_its_node_than_limits_allow() -> None:
    shares = {"high": {"cpu": 75}, "target": {"cpu": 60}, "low": {"cpu": 40}}
    policy = a_policy(
        guards=FREE,
        limits=TIGHT,
        strategies=[{"name": "LowNodeUtilization", "args": {"source": "Requests"}}],
        pools=[{"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "requestThresholds": shares}],
    )
    greedy = a_pod("greedy", "n1", namespace=EVIL, cpu=11_000, used=1.0)
    planned = plan_all([a_node("n1"), *room()], [greedy, *victims("n1")], policy)
    assert 0 < len(gone(planned)) <= 3


def test_thousands_of_pending_pods_cause_no_eviction_and_end_no_plan() -> None:
    hot = [a_node("n1"), *room()]
    pods = victims("n1", 18)
    policy = a_policy(guards=FREE)
    pending = {"phase": PENDING, "ready": False, "unschedulable": True, "priority": 1000}
    waiting = [a_pod(f"w-{at}", namespace=EVIL, owner="w", cpu=10, **pending) for at in range(MANY)]
    began = time.monotonic()
    planned = plan_all(hot, [*pods, *waiting], policy)
    assert time.monotonic() - began < 60.0
    assert set(gone(planned)) <= {pod.name for pod in pods}
    assert len(planned.accepted) <= len(plan_all(hot, pods, policy).accepted) > 0
    assert plan_all([a_node("n1"), *room()], [*victims("n1", 4), *waiting], policy).accepted == []


REPAIRS: dict[str, dict[str, Any]] = {
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsViolatingTopologySpreadConstraint": {},
    "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    "RemovePodsViolatingNodeTaints": {},
    "RemoveDuplicates": {},
    "RemoveFailedPods": {},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 100},
    "PodLifeTime": {"maxPodLifeTime": "7d"},
}
"""Strategies that repair single pods, with arguments."""


def anti(app: str, **fields: Any) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}} if app else {}, "topologyKey": HOST, **fields}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(app: str) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpread": [{**constraint, "labelSelector": {"matchLabels": {"app": app}}}]}


@pytest.mark.parametrize("name", REPAIRS)
def test_pods_that_can_not_be_evicted_change_no_finding_about_others(name: str) -> None:
    nodes = [
        a_node("n1", taints=(Taint(key="only", value="gpu", effect="NoSchedule"),)),
        *room("n2", "n3"),
    ]
    others = [
        *replicas("crowd", {"n2": 4}, template=spread("crowd")),
        *replicas("single", {"n1": 2}, template=anti("single")),
        *replicas("lost", {"n3": 1}, template={"nodeSelector": {"disk": "ssd"}}),
        *replicas("failed", {"n2": 1}, phase=FAILED, ready=False),
        *replicas("restless", {"n3": 1}, restarts=500),
        *replicas("old", {"n3": 1}, age=90 * 86_400.0),
    ]
    strangers = [
        a_pod(
            f"stranger-{node.name}-{at}",
            node.name,
            namespace=EVIL,
            cpu=10,
            age=90 * 86_400.0,
            restarts=1000,
            labels={"app": app},
            template={**anti("", namespaceSelector={}), **spread(app), "nodeSelector": {"disk": "none"}},
        )
        for node in nodes
        for at, app in enumerate(("crowd", "single", "web"))
    ]

    def found(pods: Sequence[APod]) -> list[tuple[str, int | None, list[str]]]:
        made, snapshot = found_by(name, nodes, pods, REPAIRS[name], namespace_labels={"shop": {}, EVIL: {}})
        spaces = [snapshot.namespaces[at] for at in snapshot.pods.namespace.tolist()]

        def of_others(candidates: Sequence[int]) -> list[str]:
            return [snapshot.pods.names[pod] for pod in candidates if spaces[pod] != EVIL]

        about = [
            (snapshot.nodes.names[each.node], each.wanted, of_others(each.candidates.tolist()))
            for each in made.findings
        ]
        return [each for each in about if each[2]]

    alone = found(others)
    assert alone
    assert found([*others, *strangers]) == alone


# ---- namespace admin


def test_thousands_of_budgets_in_a_namespace_change_no_plan_of_others_and_take_little_time() -> None:
    nodes, pods = [a_node("n1"), *room()], victims("n1", 18)
    own = replicas("mine", {"n1": 20}, namespace=EVIL, cpu=10, used=1.0)
    every = DisruptionBudget(namespace=EVIL, name="", selector=LabelSelector(), disruptions_allowed=0)
    budgets = [
        *(a_budget(f"b-{at}", "mine", 0, namespace=EVIL) for at in range(MANY)),
        *(replace(every, name=f"all-{at}") for at in range(MANY)),
    ]
    policy = a_policy(guards=FREE)
    before = plan_all(nodes, [*pods, *own], policy)
    began = time.monotonic()
    after = plan_all(nodes, [*pods, *own], policy, budgets=budgets)
    assert time.monotonic() - began < 30.0
    assert gone(after) == gone(before) != []
    assert {name for name in after.pods if name.startswith("mine")} == set()


# ---- metrics writer


def cooled(policy: RebalancerPolicy, node: float, pod: float) -> Outcome:
    """A plan in a cluster of idle nodes, where n1 and each of its 18 pods are said to use so many millicores."""
    return plan_all([a_node("n1", used=node), *room()], victims("n1", 18, used=pod), policy)


def test_a_node_that_is_written_hot_loses_no_more_pods_than_limits_allow() -> None:
    policy = a_policy(guards=FREE, limits=TIGHT)
    assert cooled(policy, 3_600.0, 200.0).accepted == []
    # a node alone, without pods that explain its load, loses none
    assert cooled(policy, 16_000.0, 200.0).accepted == []
    planned = cooled(policy, 15_000.0, 800.0)
    assert 0 < len(planned.accepted) <= 3
    assert max(Counter(str(move.service) for move in planned.accepted).values()) == 1


def test_where_every_node_is_written_hot_nothing_is_evicted() -> None:
    names, policy = ("n1", "n2", "n3"), a_policy(guards=FREE)
    # the pods explain the load of each node: only room for replacements is missing
    pods = [replace(pod, name=f"{name}-{pod.name}") for name in names for pod in victims(name, 18)]
    assert plan_all([a_node(name, used=15_000.0) for name in names], pods, policy).accepted == []
    assert plan_all([*(a_node(name, used=15_000.0) for name in names), *room()], pods, policy).accepted != []


# ---- node


def test_a_node_that_claims_a_thousand_cores_takes_no_more_replacements_at_a_time_than_limits_allow() -> None:
    limits = {**some_limits(), "replacements": {"perNode": 2}}
    liar = a_node("liar", cpu=1e9, memory=1e18, pods=100_000, used=0.0)
    full = [a_node(name, used=9_900.0) for name in ("b", "c")]
    planned = plan_all([a_node("n1"), liar, *full], victims("n1", 18), a_policy(guards=FREE, limits=limits))
    assert 0 < len(planned.accepted) <= 2
    assert {move.target_node for move in planned.accepted} == {"liar"}


@pytest.mark.parametrize("name", ["RemoveFailedPods", "RemovePodsHavingTooManyRestarts"])
def test_what_a_node_says_of_its_pods_evicts_no_pod_of_another_node(name: str) -> None:
    lies: dict[str, Any] = {"phase": FAILED, "ready": False} if name == "RemoveFailedPods" else {"restarts": 10**9}
    here = [replace(pod, **lies) for pod in victims("liar", 8)]
    pods = [*here, *[replace(pod, name=f"other-{pod.name}") for pod in replicas("web", {"b": 3})]]
    policy = a_policy(guards=FREE, strategies=[{"name": name, "args": REPAIRS[name]}], limits=TIGHT)
    planned = plan_all([a_node("liar"), *room()], [*pods], policy)
    assert 0 < len(planned.accepted) <= 3
    assert {move.node for move in planned.accepted} == {"liar"}


def test_a_node_that_claims_another_zone_costs_others_one_pod_for_each_of_its_own_at_most() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
    template = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    def zoned(of_liar: str) -> list[ANode]:
        zones = {"liar": of_liar, "b": "b", "c": "c", "d": "d"}
        return [a_node(name, labels={"pool": "general", ZONE: zone}) for name, zone in zones.items()]

    pods = replicas("db", {"liar": 1, "b": 1, "c": 1}, template=template)
    policy = a_policy(guards=FREE, strategies=[{"name": "RemovePodsViolatingInterPodAntiAffinity"}])
    assert plan_all(zoned("a"), pods, policy).accepted == []
    assert len(plan_all(zoned("b"), pods, policy).accepted) == 1
