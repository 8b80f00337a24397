"""LowNodeUtilization by requests, extended resources among them."""

import pkgutil

import pytest

from rebalancer import strategies
from rebalancer.constraints.admission import LedgerState
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import EvictionBackoff
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.strategies import BUILT_IN
from rebalancer.strategies import strategy_for
from tests.builders import (
    GIB,
    NOW,
    APod,
    a_node,
    carry_out,
    cluster,
    plan_all,
    planner_for,
    replicas,
    usage_of,
)
from tests.strategies.test_low_node_utilization import NAN, a_move, find, hot_in, loads_of, requests_policy, sampled


@pytest.mark.parametrize(
    ("target", "count", "hot"),
    [
        ({"cpu": 50}, 4, False),  # 2,400 of 4,000 are 60%: not over
        ({"cpu": 50}, 5, True),
        ({"memory": 50}, 6, False),
        ({"memory": 50}, 7, True),
        ({"pods": 50}, 6, False),
        ({"pods": 50}, 7, True),
        ({"cpu": 80, "memory": 50}, 7, True),  # one of several is enough
    ],
)
def test_a_node_is_hot_by_any_requested_resource(target: dict[str, float], count: int, hot: bool) -> None:
    nodes = [a_node("n", cpu=4_000, memory=10 * GIB, pods=10)]
    found = find(
        nodes,
        replicas("web", {"n": count}, cpu=600 if "cpu" in target else 0, memory=1 * GIB),
        policy=requests_policy(target),
    )
    assert bool(found.findings) is hot
    assert set(loads_of(found).resources) == set(target)


def test_the_reason_names_the_worst_resource() -> None:
    nodes = [a_node("n", cpu=4_000, memory=10 * GIB)]
    found = find(
        nodes, replicas("web", {"n": 7}, cpu=400, memory=1.2 * GIB), policy=requests_policy({"cpu": 50, "memory": 50})
    )
    assert found.findings[0].reason == "requested memory 84% is over high 60%, to be cooled to 50%"


def test_by_requests_neither_usage_nor_samples_nor_moves_matter() -> None:
    nodes = [a_node("n", cpu=4_000, used=NAN)]
    found = find(
        nodes,
        replicas("web", {"n": 6}, cpu=500),
        policy=requests_policy({"cpu": 50}),
        recent=(a_move(1.0, node="n"),),
        problems={0: Refusal.of(Reason.NO_SAMPLE)},
        **sampled([0], [NAN]),
    )
    assert hot_in(found, nodes) == ["n"]
    assert found.skipped == {}


def test_by_requests_an_eviction_is_for_no_measured_resource_and_any_backoff_holds_it_back() -> None:
    nodes = [a_node("a", memory=10 * GIB), a_node("b", memory=10 * GIB)]
    pods, policy = replicas("web", {"a": 7}, memory=1 * GIB), requests_policy({"memory": 50})
    made = cluster(nodes, pods)
    usage = usage_of(made, nodes, pods)

    def moves(*backoffs: EvictionBackoff) -> list[Eviction]:
        return carry_out(planner_for(made, usage, policy, standing=LedgerState(backoffs=backoffs)), made).accepted

    free = moves()
    assert {each.resource for each in free} == {""}
    held = EvictionBackoff(
        service_identity=free[0].service_identity, node="a", until=NOW + 60, count=2, reason="no use", resource="cpu"
    )
    assert moves(held) == []


def test_what_is_hot_by_requests_is_hot_by_no_measured_resource() -> None:
    nodes = [a_node("a", memory=10 * GIB)]
    loads = loads_of(find(nodes, replicas("web", {"a": 7}, memory=1 * GIB), policy=requests_policy({"memory": 50})))
    assert loads.hot.tolist() == [True]
    assert loads.hot_by(0) == []
    outcome = plan_all(nodes, replicas("web", {"a": 7}, memory=1 * GIB), requests_policy({"memory": 50}))
    assert outcome.planner.outcome.still_hot() == [(0, "")]


def test_the_registry_knows_each_strategy_that_a_policy_may_name() -> None:
    prefix = f"{strategies.__name__}."
    modules = {module.name.removeprefix(prefix) for module in pkgutil.walk_packages(strategies.__path__, prefix)}
    assert {each.MODULE for each in BUILT_IN} <= modules
    for each in BUILT_IN:
        assert callable(strategy_for(each.model_construct(name=each.__name__)))


GPU = "nvidia.com/gpu"


def gpu_pods(count: int, node: str) -> list[APod]:
    return replicas("train", {node: count}, template={"extendedRequests": {GPU: 2.0}})


def test_a_node_is_hot_by_the_requested_share_of_an_extended_resource() -> None:
    nodes = [a_node("a", extended={GPU: 8.0}), a_node("b", extended={GPU: 8.0}), a_node("none")]
    policy = requests_policy({GPU: 70})
    (finding,) = find(nodes, gpu_pods(4, "a"), policy=policy).findings
    assert finding.reason == "requested nvidia.com/gpu 100% is over high 80%, to be cooled to 70%"
    outcome = plan_all(nodes, gpu_pods(4, "a"), policy)
    assert {(move.node, each.node) for move in outcome.accepted for each in move.target_nodes} == {("a", "b")}


def test_a_node_without_an_extended_resource_is_judged_by_the_others() -> None:
    nodes = [a_node("a", cpu=4_000, extended={GPU: 8.0}), a_node("none", cpu=4_000)]
    pods = [*gpu_pods(1, "a"), *replicas("web", {"none": 7}, cpu=500)]
    (finding,) = find(nodes, pods, policy=requests_policy({GPU: 70, "cpu": 70})).findings
    assert (finding.node, finding.resource) == (1, "cpu")


def test_request_thresholds_name_resources_that_pods_can_request() -> None:
    with pytest.raises(ValueError, match="expected cpu, memory, pods or an extended resource"):
        requests_policy({"gpu": 50})
