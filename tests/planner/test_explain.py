"""Explanations: each node's filter or scores, what an eviction needs, why a node is hot, its placement skews."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.cli.output.explanations import pod_document
from rebalancer.model.cluster.pods import FAILED, PENDING
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner.explain.context import ExplainContext
from rebalancer.planner.explain.nodes import NodeExplanation, explain_node
from rebalancer.planner.explain.pods import CHECK_OF, Check, PodExplanation, explain_pod, find_pod
from rebalancer.policy.pools import NodePools
from tests.builders import (
    NOW,
    ANode,
    APod,
    a_budget,
    a_door,
    a_model,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    found_in,
    planner_for,
    replicas,
    usage_of,
    view_of,
)


def scene_of(
    nodes: Sequence[ANode],
    pods: Sequence[APod],
    *,
    config: SchedulerConfig | None = None,
    stopped: Refusal | None = None,
    policy: dict[str, Any] | None = None,
    measured: dict[str, ResourceUsage] | None = None,
    **fields: Any,
) -> ExplainContext:
    """What a dry cycle sees and plans. `measured`: resources besides CPU."""
    rules = a_policy(**(policy or {}))
    snapshot = cluster(nodes, pods, **fields)
    usage = usage_of(snapshot, nodes, pods, resources=measured or {})
    report = CycleReport(id="1", cluster="test", trigger=Trigger.MANUAL, dry_run=True, started_at=NOW, stopped=stopped)
    planner = planner_for(snapshot, usage, rules)
    if stopped is None:
        report.evictions += carry_out(planner, snapshot).accepted
    report.refusals += planner.outcome.refusals()
    pool_of = NodePools.of(rules.pools, snapshot.nodes).of_node
    return ExplainContext(
        snapshot=snapshot,
        usage=usage,
        pools=[rules.pools[pool].name if pool >= 0 else "" for pool in pool_of],
        found=[] if stopped is not None else found_in(snapshot, usage, rules),
        admission=a_door(snapshot, rules),
        report=report,
        config=config or SchedulerConfig(),
        placement=a_model(snapshot, config=config),
        now=NOW,
        cpu=view_of(snapshot, usage, rules).cpu.pods,
    )


def of_pod(scene: ExplainContext, name: str) -> PodExplanation:
    pod = find_pod(scene.snapshot, "shop", name)
    assert pod is not None
    return explain_pod(scene, pod)


def of_node(scene: ExplainContext, name: str) -> NodeExplanation:
    return explain_node(scene, scene.snapshot.node_index[name], strategies=["LowNodeUtilization"])


def checks(found: PodExplanation) -> dict[str, tuple[bool, str | None]]:
    return {each.name: (each.ok, str(each.code) if each.code else None) for each in found.checks}


def check_of(found: PodExplanation, name: str) -> Check:
    return next(each for each in found.checks if each.name == name)


GUARDS, LIMITS = "guards, lists, levels, windows", "limits, pauses, cooldowns"


def hot_world(**fields: Any) -> tuple[list[ANode], list[APod]]:
    """n1 runs at 80%; n2 and n3 are idle. The cool ones request less."""
    nodes = [a_node("n1"), a_node("n2"), a_node("n3", unschedulable=True)]
    pods = [
        *replicas("web", {"n1": 4, "n2": 1}, used=3000.0, cpu=2000.0, **fields),
        *replicas("cart", {"n1": 1, "n2": 1}, used=800.0),
    ]
    return nodes, pods


def test_a_node_has_a_line_for_each_resource_and_pods_their_shares() -> None:
    nodes, pods = [a_node("n1"), a_node("n2")], replicas("web", {"n1": 3}, used=500.0)
    node = np.array([90.0, 10.0])
    memory = ResourceUsage(
        node=node, capacity=np.full(2, 100.0), pod=np.array([30.0, 20.0, np.nan]), samples=np.tile(node, (5, 1))
    )
    marks = {"high": 75, "target": 65, "low": 50, "resources": {MEMORY: {"high": 85, "target": 75, "low": 50}}}
    pools = [{"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": marks}]
    found = of_node(scene_of(nodes, pods, policy={"pools": pools}, measured={MEMORY: memory}), "n1")
    by_cpu, by_memory = found.evaluations[0].thresholds
    assert (by_cpu.resource, by_cpu.hot) == ("cpu", False)
    assert (by_memory.resource, by_memory.measured, by_memory.high, by_memory.hot) == (MEMORY, 0.9, 0.85, True)
    assert {each.name: each.resource_shares[MEMORY] for each in found.pods} == {
        "web-0": 0.3,
        "web-1": 0.2,
        "web-2": None,
    }


# ---- pods


def test_each_node_has_its_filter_or_its_scores_best_first() -> None:
    found = of_pod(scene_of(*hot_world()), "web-0")
    assert [each.name for each in found.scored] == ["n2", "n1"]
    assert [(each.name, each.filter) for each in found.failed] == [("n3", "NodeUnschedulable")]
    assert found.failed[0].message == "node(s) were unschedulable"
    assert found.failures == {"NodeUnschedulable": 1}
    for node in found.scored:
        assert node.total == pytest.approx(sum(node.scores.values()))
        assert node.raw.keys() == node.scores.keys()
    assert found.target_nodes == (("n2", 1.0),)
    assert [each.probability for each in found.scored] == [1.0, 0.0]


def test_failures_are_counted_most_first() -> None:
    nodes = [a_node("a", cpu=100), a_node("b", cpu=100), a_node("c", unschedulable=True), a_node("d")]
    found = of_pod(scene_of(nodes, [a_pod("web-0", "d", owner="web")]), "web-0")
    assert list(found.failures.items()) == [("NodeResourcesFit", 2), ("NodeUnschedulable", 1)]
    assert {each.message for each in found.failed if each.filter == "NodeResourcesFit"} == {"Insufficient cpu"}


def test_a_planned_pod_would_be_evicted_and_passes_every_check() -> None:
    scene = scene_of(*hot_world())
    moved = [each.pod for each in scene.report.evictions]
    assert moved
    found = of_pod(scene, moved[0])
    assert found.eviction is not None
    assert all(ok for ok, _ in checks(found).values())
    assert "n2" in found.checks[-1].detail


def test_a_pod_of_a_cool_node_is_not_asked_for() -> None:
    found = of_pod(scene_of(*hot_world()), "web-4")
    assert found.eviction is None
    assert checks(found)["finding"] == (False, None)
    assert checks(found)[GUARDS] == (True, None)
    assert checks(found)["plan"] == (False, None)


def test_each_obstacle_has_its_code() -> None:
    nodes, pods = hot_world()
    scene = scene_of(
        nodes,
        [*pods, a_pod("bare", "n1")],
        budgets=[a_budget("cart", "cart", 0)],
        policy={"limits": {"perCycle": 0}},
    )
    cart, bare = checks(of_pod(scene, "cart-0")), checks(of_pod(scene, "bare"))
    assert cart["budget"] == (False, "BudgetExhausted")
    assert cart[LIMITS] == (False, "LimitCycle")
    assert cart[GUARDS] == (True, None)
    assert bare[GUARDS] == (False, "BarePod")
    assert LIMITS not in bare


def test_a_closed_window_is_told() -> None:
    closed = {"windows": {"cluster": [{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]}}
    assert checks(of_pod(scene_of(*hot_world(), policy=closed), "web-0"))[GUARDS] == (False, "WindowClosed")


def test_a_pod_that_would_come_back_is_told_so_with_its_probability() -> None:
    nodes = [a_node("n1", used=14_000), a_node("n2", unschedulable=True)]
    scene = scene_of(nodes, replicas("web", {"n1": 2}, used=3000.0))
    landing = check_of(of_pod(scene, "web-0"), "landing")
    assert landing.code is Reason.WOULD_RETURN_TO_NODE
    assert "100%" in landing.detail


def test_unsafe_data_stops_every_pod() -> None:
    stopped = Refusal.of(Reason.COVERAGE_TOO_LOW, "1 of 3")
    found = of_pod(scene_of(*hot_world(), stopped=stopped), "web-0")
    assert checks(found)["finding"] == (False, "CoverageTooLow")


def test_a_waiting_pod_is_explained_as_the_scheduler_sees_it_now() -> None:
    nodes = [a_node("n1", cpu=1000), a_node("n2")]
    waiting = a_pod("new", owner="web", cpu=1500, phase=PENDING, ready=False)
    found = of_pod(scene_of(nodes, [waiting]), "new")
    assert found.checks == ()
    assert found.target_nodes == (("n2", 1.0),)
    assert found.failures == {"NodeResourcesFit": 1}


def test_a_waiting_pod_that_fits_nowhere_has_no_landing() -> None:
    waiting = a_pod("new", owner="web", cpu=99_000, phase=PENDING, ready=False)
    found = of_pod(scene_of([a_node("n1")], [waiting]), "new")
    assert found.no_target_node is not None
    assert found.no_target_node.code is Reason.NO_TARGET_NODE
    assert found.scored == ()


def test_a_waiting_pod_of_another_scheduler_lands_nobody_knows_where() -> None:
    waiting = a_pod("new", owner="web", phase=PENDING, ready=False, template={"schedulerName": "other"})
    found = of_pod(scene_of([a_node("n1")], [waiting]), "new")
    assert found.no_target_node is not None
    assert found.no_target_node.code is Reason.PLACEMENT_NOT_MODELLED


def test_what_is_not_modelled_is_passed_on() -> None:
    config = SchedulerConfig(unknown=("plugin Mine",))
    scene = scene_of(*hot_world(), config=config)
    assert of_pod(scene, "web-0").unknown == ("plugin Mine",)
    assert of_node(scene, "n1").unknown == ("plugin Mine",)


def test_a_pod_that_is_not_there_is_not_found() -> None:
    scene = scene_of(*hot_world())
    assert find_pod(scene.snapshot, "other", "web-0") is None
    assert find_pod(scene.snapshot, "shop", "web-99") is None


# ---- nodes


def test_a_hot_node_has_its_numbers_and_everybody_on_it_a_verdict() -> None:
    scene = scene_of(*hot_world())
    found = of_node(scene, "n1")
    (load,) = found.evaluations[0].thresholds
    assert found.hot
    assert (load.resource, load.hot) == ("cpu", True)
    assert (load.measured, load.high, load.target, load.low) == pytest.approx((0.8, 0.75, 0.65, 0.5))
    assert "80%" in found.evaluations[0].reason
    assert [each.name for each in found.pods] == ["web-0", "web-1", "web-2", "web-3", "cart-0"]
    assert all((each.target_node is None) != (each.code is None) for each in found.pods)
    assert {each.name for each in found.pods if each.target_node} == {each.pod for each in scene.report.evictions}
    assert found.pods[0].cpu_share == pytest.approx(3000 / 16000)


def test_a_cool_node_is_not_hot_and_nobody_leaves() -> None:
    found = of_node(scene_of(*hot_world()), "n2")
    assert not found.hot
    assert found.evaluations[0].reason == ""
    assert all(each.target_node is None and each.message for each in found.pods)


def test_a_node_without_a_sample_says_so() -> None:
    nodes, pods = hot_world()
    nodes[0].ready = False
    found = of_node(scene_of(nodes, pods), "n1")
    assert found.evaluations[0].skipped is not None
    assert found.evaluations[0].skipped.code is Reason.NODE_NOT_READY


# ---- strategies that cool nothing


def test_a_pod_that_is_asked_for_without_its_node_being_hot_is_told_why() -> None:
    nodes = [a_node("n1", used=1_000.0), a_node("n2", used=1_000.0)]
    pods = [*replicas("old", {"n1": 2}, age=30 * 86_400.0), *replicas("young", {"n1": 2})]
    scene = scene_of(nodes, pods, policy={"strategies": [{"name": "PodLifeTime"}]})
    found = of_pod(scene, "old-0")
    assert all(ok for ok, _ in checks(found).values())
    assert found.checks[0].detail == scene.found[0].findings[0].reason
    assert checks(of_pod(scene, "young-0"))["finding"] == (False, None)
    node = of_node(scene, "n1")
    assert node.evaluations[0].thresholds == ()
    assert not node.hot
    lines = {each.name: each for each in node.pods}
    assert lines["old-0"].target_node is not None
    assert lines["young-0"].message == "its node is not hot"


def test_a_new_pod_that_may_come_back_is_no_obstacle_where_that_is_all_that_is_wanted() -> None:
    pods = replicas("old", {"n1": 2}, age=30 * 86_400.0)
    scene = scene_of([a_node("n1", used=1_000.0)], pods, policy={"strategies": [{"name": "PodLifeTime"}]})
    landing = check_of(of_pod(scene, "old-0"), "landing")
    assert (landing.ok, landing.detail) == (
        True,
        "its replacement may come back to its node, with a probability of 100%",
    )


def test_a_pod_that_nobody_asks_for_is_not_told_why_others_of_its_node_should_go() -> None:
    release = {"mode": "Release", "full": 60, "idle": 50, "releaseTarget": 40, "minAge": "0s"}
    nodes = [a_node("n1", used=4_000.0), a_node("n2", used=0.0)]
    pods = [*replicas("idle", {"n1": 5}, cpu=2000.0, used=10.0), *replicas("busy", {"n1": 2}, cpu=100.0, used=1500.0)]
    scene = scene_of(nodes, pods, policy={"strategies": [{"name": "HighNodeUtilization", "args": release}]})
    (finding,) = scene.found[0].findings
    lines = {each.name: each for each in of_node(scene, "n1").pods}
    assert lines["busy-0"].message == "no strategy selects it"
    assert "idle in fact" in finding.reason


def test_a_finished_pod_lands_nowhere_and_may_go() -> None:
    pods = [*replicas("web", {"n1": 2}), a_pod("dead", "n1", owner="web", phase=FAILED, ready=False)]
    scene = scene_of([a_node("n1")], pods, policy={"strategies": [{"name": "RemoveFailedPods"}]})
    found = of_pod(scene, "dead")
    assert all(ok for ok, _ in checks(found).values())
    assert found.checks[-1].detail == "a run would evict it now"
    assert check_of(found, "landing").detail == "it has no replacement"
    document = pod_document(found)
    assert (document["wouldEvict"], document["targetNode"]) == (True, None)
    assert [each.name for each in of_node(scene, "n1").pods] == ["web-0", "web-1"]


# ---- CPU elsewhere


def test_it_says_what_a_landing_counts_and_where_the_figure_is_from() -> None:
    nodes = [a_node("full", cpu=4_000, used=4_000.0), a_node("other", cpu=4_000, used=2_000.0)]
    pods = [a_pod("squeezed", "full", owner="web", used=900.0), a_pod("rested", "other", owner="web", used=2_000.0)]
    pods += [a_pod("alone", "full", owner="api", used=100.0, cpu=700.0)]
    one = scene_of(nodes, pods)

    squeezed, rested, alone = (check_of(of_pod(one, name), "CPU elsewhere") for name in ("squeezed", "rested", "alone"))
    assert (squeezed.ok, squeezed.detail) == (True, "2000m, as its siblings use on other nodes")
    assert (rested.ok, rested.detail) == (True, "2000m, as measured")
    assert alone.ok
    assert alone.detail.startswith("700m, as it requests: its node is saturated")


def contradictions(scene: ExplainContext) -> list[tuple[str, str]]:
    """(pod, check) of checks that say the opposite of what the plan decided."""
    out = []
    for pod in scene.snapshot.pods.names:
        checks = {each.name: each for each in of_pod(scene, pod).checks}
        plan = checks["plan"]
        decided = "landing" if plan.ok else CHECK_OF.get(plan.code.group if plan.code is not None else None, "")
        if decided in checks and checks[decided].ok != plan.ok:
            out.append((pod, decided))
    return out


def test_no_check_says_the_opposite_of_the_plan() -> None:
    """One pod of web is evicted; by then its service has one in flight, as many as may be."""
    nodes = [a_node("n1"), a_node("n2")]
    pods = [*replicas("web", {"n1": 5, "n2": 1}, used=2900.0, cpu=2000.0), *replicas("cart", {"n2": 2}, used=800.0)]
    scene = scene_of(nodes, pods, policy={"limits": {"service": {"inFlight": 1}}})
    assert scene.report.evictions
    assert {each.code.group for each in scene.report.refusals} & CHECK_OF.keys()
    assert contradictions(scene) == []


def test_the_landing_of_a_pod_that_the_plan_refused_says_what_the_plans_other_evictions_change() -> None:
    scene = scene_of(*hot_world())
    evicted = {each.pod for each in scene.report.evictions}
    assert evicted
    refused = next(each for each in scene.report.refusals if each.name not in evicted and each.name.startswith("web"))
    refused = replace(refused, code=Reason.WOULD_RETURN_TO_NODE, message="would come back: 100%")
    scene.report.refusals[:] = [refused]
    landing = check_of(of_pod(scene, refused.name), "landing")
    assert (landing.ok, landing.code) == (False, Reason.WOULD_RETURN_TO_NODE)
    assert landing.detail == (
        f"would come back: 100%; without the plan's {len(evicted)} eviction: "
        "kube-scheduler puts the replacement elsewhere"
    )


def test_a_pod_that_waits_for_a_better_pool_is_told_since_when_it_has_room() -> None:
    """No earlier cycle has seen the room."""
    marks = {"high": 75, "target": 65, "low": 50}
    pools = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": marks} for name in ("spot", "od")
    ]
    policy = {"pools": pools, "strategies": [{"name": "PoolPreference", "args": {"order": ["spot", "od"]}}]}
    nodes = [a_node("s", labels={"pool": "spot"}), a_node("d", labels={"pool": "od"})]
    pods = replicas("web", {"d": 2}, used=100.0)
    check = check_of(of_pod(scene_of(nodes, pods, policy=policy), "web-0"), "finding")
    assert (check.ok, check.code) == (False, Reason.NO_BETTER_NODE)
    assert check.detail.endswith("pool spot has had room for it for 0s of 10m")
