"""The numeric cases of tests/cases, each by its id."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.constraints.pods.guards import GuardView, guarded
from rebalancer.model.reason import Reason
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.policy.schema.guards import Guards
from tests.builders import (
    NOW,
    ANode,
    APod,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    found_in,
    plan_all,
    planner_for,
    projection_of,
    replicas,
    some_limits,
    usage_of,
)
from tests.strategies.builders.emptied import Plan

CASES = Path(__file__).parent / "cases"
LOW: dict[str, Any] = yaml.safe_load((CASES / "low_node_utilization.yaml").read_text())
HIGH: dict[str, Any] = yaml.safe_load((CASES / "high_node_utilization.yaml").read_text())
GUARDS: dict[str, Any] = {each["id"]: each for each in yaml.safe_load((CASES / "guards.yaml").read_text())["cases"]}

LIMIT = "limit-with-evictions-in-flight"


def told(case: str) -> Callable[[Any], str]:
    """Test ids that begin with the case's."""
    return lambda given: f"{case}-{given}"


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`change` laid over `base`; null takes an entry away."""
    out = {key: dict(value) for key, value in base.items()}
    for key, fields in change.items():
        if fields is None:
            out.pop(key)
        else:
            out[key] = {**out.get(key, {}), **fields}
    return out


def built(case: dict[str, Any]) -> tuple[list[ANode], list[APod]]:
    change = case.get("change", {})
    return made_of(
        merged(LOW["base"]["nodes"], change.get("nodes", {})), merged(LOW["base"]["pods"], change.get("pods", {}))
    )


def made_of(nodes: dict[str, Any], pods: dict[str, Any]) -> tuple[list[ANode], list[APod]]:
    made_nodes = [
        a_node(
            name,
            cpu=spec["cpu"],
            memory=spec.get("memory", 3000),
            pods=spec.get("pods", 110),
            used=spec.get("used"),
            unschedulable=spec.get("unschedulable", False),
            labels=spec.get("labels", {}),
        )
        for name, spec in nodes.items()
    ]
    made_pods = []
    for name, spec in pods.items():
        template: dict[str, Any] = {}
        if spec.get("mirror"):
            template["annotations"] = {"kubernetes.io/config.mirror": "x"}
        if spec.get("emptyDir"):
            template["volumes"] = [{"emptyDir": {}}]
        if "nodeSelector" in spec:
            template["nodeSelector"] = spec["nodeSelector"]
        kind = spec.get("ownerKind", None if spec.get("mirror") else "ReplicaSet")
        made_pods.append(
            a_pod(
                name,
                spec["node"],
                cpu=spec["cpu"],
                memory=0,
                used=spec.get("used", float("nan")),
                namespace=spec.get("namespace", "default"),
                owner=f"owner-{name}" if kind else "",
                owner_kind=kind or "ReplicaSet",
                priority=spec.get("priority", 0),
                template=template,
            )
        )
    return made_nodes, made_pods


def low_policy(case: dict[str, Any], *, source: str) -> Any:
    low, target = LOW["base"]["low"], LOW["base"]["target"]
    return a_policy(
        pools=[
            {
                "name": "all",
                "selector": {},
                "thresholds": {"high": target["cpu"] + 0.01, "target": target["cpu"], "low": low["cpu"]},
                "requestThresholds": {
                    "high": {name: mark + 0.01 for name, mark in target.items()},
                    "target": target,
                    "low": low,
                },
            }
        ],
        strategies=[{"name": "LowNodeUtilization", "args": {"source": source}}],
        guards={"minReplicas": 1, "namespaces": {"exclude": case.get("excludeNamespaces", [])}},
    )


@pytest.mark.parametrize("case", LOW["cases"], ids=lambda case: case["id"])
def test_low_node_utilization_case(case: dict[str, Any]) -> None:
    expectations = case["expect"]
    if "evicted" in expectations:
        expectations = {"requests": expectations}
    for source, expect in expectations.items():
        nodes, pods = built(case)
        outcome = plan_all(nodes, pods, low_policy(case, source={"requests": "Requests", "usage": "CPU"}[source]))
        assert len(outcome.pods) == expect["evicted"], outcome.refusals
        assert set(outcome.pods) <= set(expect.get("from", outcome.pods))
        if "exactly" in expect:
            assert set(outcome.pods) == set(expect["exactly"])


def high_policy(case: dict[str, Any]) -> Any:
    """As far as it goes, without our own all or nothing. No landing has a mark: what fits by requests will do."""
    return a_policy(
        pools=[
            {
                "name": "all",
                "selector": {},
                "requestThresholds": {
                    "low": case["low"],
                    "target": dict.fromkeys(case["low"], 99),
                    "high": dict.fromkeys(case["low"], 100),
                },
            }
        ],
        strategies=[
            {
                "name": "HighNodeUtilization",
                "args": {"mode": "Drain", "source": "Requests", "wholeNodes": False, "maxConcurrentNodes": 100},
            }
        ],
        guards={"minReplicas": 1, "namespaces": {"exclude": []}},
    )


@pytest.mark.parametrize("case", HIGH["cases"], ids=lambda case: case["id"])
def test_high_node_utilization_case(case: dict[str, Any]) -> None:
    """Simulated, as a real run is: kube-scheduler favours the node that is emptied, by requests, until it has a soft
    taint. Without that we would evict nothing, where others evict and see the pod come back."""
    nodes, pods = made_of(case["nodes"], case["pods"])
    plan = Plan(nodes, pods, high_policy(case))
    assert len(plan.pods) == case["expect"]["evicted"], plan.refusals
    assert plan.pods == case["expect"].get("exactly", plan.pods)


@pytest.mark.parametrize("expect", GUARDS["guard-min-replicas"]["expect"], ids=told("guard-min-replicas"))
def test_guard_min_replicas(expect: dict[str, Any]) -> None:
    snapshot = cluster([a_node("n1")], replicas("web", {"n1": GUARDS["guard-min-replicas"]["replicas"]}))
    guards = Guards.model_validate({"minReplicas": expect["minReplicas"]})
    refusal = guarded(snapshot.pod(0), GuardView.of(projection=projection_of(snapshot), guards=guards, now=NOW))
    assert (refusal is not None) is expect["guarded"]
    assert refusal is None or refusal.code is Reason.MIN_REPLICAS


@pytest.mark.parametrize("expect", GUARDS["guard-min-age"]["expect"], ids=told("guard-min-age"))
def test_guard_min_age(expect: dict[str, Any]) -> None:
    minutes = expect["startedMinutesAgo"]
    fields = {"started": False} if minutes is None else {"age": minutes * 60.0}
    snapshot = cluster([a_node("n1")], replicas("web", {"n1": 2}, **fields))
    guards = Guards.model_validate({"minAge": GUARDS["guard-min-age"]["minAge"]})
    refusal = guarded(snapshot.pod(0), GuardView.of(projection=projection_of(snapshot), guards=guards, now=NOW))
    assert (refusal is not None) is expect["guarded"]
    assert refusal is None or refusal.code is Reason.TOO_YOUNG


@pytest.mark.parametrize("expect", GUARDS["guard-fit-resources"]["expect"], ids=told("guard-fit-resources"))
def test_guard_fit_resources(expect: dict[str, Any]) -> None:
    case = GUARDS["guard-fit-resources"]
    nodes = [a_node("source", memory=100, labels={"zone": "a"})]
    pods = [
        a_pod("mover", "source", owner="web", template={"nodeSelector": {"zone": "a"}}, **case["pod"]),
    ]
    for index, memory in enumerate(expect["memory"]):
        nodes.append(a_node(f"other-{index}", memory=memory, labels={"zone": "a"}))
        pods.append(a_pod(f"there-{index}", f"other-{index}", owner=f"o{index}", cpu=0, memory=case["usedMemory"]))
    snapshot = cluster(nodes, pods)
    feasible = PlacementModel(snapshot).feasible(snapshot.pod(0))
    assert not isinstance(feasible, tuple)
    assert bool(feasible[1:].any()) is expect["fits"]


@pytest.mark.parametrize("scope", GUARDS[LIMIT]["scopes"], ids=told(LIMIT))
@pytest.mark.parametrize("seed", range(GUARDS[LIMIT]["shuffles"]))
def test_limit_with_evictions_in_flight(scope: str, seed: int) -> None:
    """Whatever the order, evictions planned and in flight together stay within the limit."""
    case = GUARDS[LIMIT]
    nodes = [a_node("hot", used=15_000.0), a_node("cold", used=1_000.0)]
    pods = replicas("web", {"hot": case["candidates"], "cold": 1}, used=1_000.0)
    # its requests keep the hot node less attractive to the scheduler than the cold one
    pods.append(a_pod("agent", "hot", owner="agent", owner_kind="DaemonSet", cpu=13_000))
    random.Random(seed).shuffle(pods)
    policy = a_policy(guards={"minReplicas": 1})
    snapshot = cluster(nodes, pods)
    usage = usage_of(snapshot, nodes, pods)
    limited = a_policy(guards={"minReplicas": 1}, limits=some_limits(**{scope: case["limit"]}))
    planner = planner_for(snapshot, usage, limited)
    under_way = []
    for _ in range(case["inFlight"]):
        move = planner.next_move()
        assert move is not None
        assert planner.admission.reserve(move) is None
        planner.accept(move)
        under_way.append(move.pod)
    outcome = carry_out(planner, snapshot)
    assert found_in(snapshot, usage, policy)[0].findings
    assert outcome.moves
    assert len(outcome.moves) + len(under_way) <= case["limit"]
