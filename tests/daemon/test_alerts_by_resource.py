"""Alerts about a resource besides CPU: which one they mean, what they may change, and what counts against it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.cycle.triggers.alert_requests import (
    ActionableEpisode,
    AlertedNodes,
    RejectedEpisode,
    record_results,
    resolve_episode,
    with_alerts,
)
from rebalancer.model.decisions.alerts import Alert, AlertEpisode, ThresholdOverride
from rebalancer.model.decisions.eviction import Eviction, Outcome, PodAmount
from rebalancer.model.decisions.plan import CycleReport, NodeLine, ResourceExcess, ResourceShare, Trigger
from rebalancer.policy import RebalancerPolicy
from tests.builders import NOW, a_node, a_policy, an_eviction, cluster, replicas
from tests.daemon.test_alert_requests import Notes
from tests.store.builders import build_finding
from tests.strategies.test_resources import LICENCES, Scene, amounts, by_resources

MARKS = {"high": 85, "target": 75, "low": 60}


def policy(rule: Mapping[str, Any] | None = None, **alerts: Any) -> RebalancerPolicy:
    thresholds = {"high": 75, "target": 65, "low": 50, "resources": {"memory": MARKS}}
    return a_policy(
        alerts={"rules": [{"alert": "NodeHot", **(rule or {})}], **alerts},
        pools=[{"name": "general", "selector": {}, "thresholds": thresholds}],
        usage={"prometheus": {"url": "http://127.0.0.1:9090", "resources": [LICENCES]}},
    )


def read(
    annotations: Mapping[str, str], by: RebalancerPolicy | None = None, moves: Sequence[Eviction] = ()
) -> ActionableEpisode | RejectedEpisode:
    """An alert on n1 that came ten minutes ago."""
    alert = Alert(
        fingerprint="f",
        firing=True,
        labels={"alertname": "NodeHot", "node": "n1"},
        annotations={f"rebalancer_{name}": value for name, value in annotations.items()},
        starts_at=NOW - 660,
    )
    episode = AlertEpisode(id=1, alert=alert, received_at=NOW - 600, next_at=NOW)
    nodes = AlertedNodes(cluster([a_node("n1")], []), {"n1": "general"}, moves)
    return resolve_episode(episode, nodes, by or policy(), now=NOW)


def override(*of: Any) -> ThresholdOverride:
    found = read(*of)
    assert isinstance(found, ActionableEpisode), found.reason
    assert found.override is not None
    return found.override


def of_override(episode: AlertEpisode, mark: ThresholdOverride) -> ActionableEpisode:
    return ActionableEpisode(episode=episode, node=mark.node, strategy=mark.strategy, override=mark)


def refusal(*of: Any) -> RejectedEpisode:
    found = read(*of)
    assert isinstance(found, RejectedEpisode)
    return found


def test_an_alert_names_its_resource_by_its_annotation_else_the_rule_does_else_it_is_cpu() -> None:
    assert override({}).resource == "cpu"
    mark = override({"resource": "memory"})
    assert (mark.resource, mark.high, mark.target) == ("memory", 0.85, 0.75)
    assert override({}, policy({"resource": "memory"})).resource == "memory"
    assert override({"resource": "cpu"}, policy({"resource": "memory"})).resource == "cpu"
    assert override({"resource": " memory ", "high": "70"}).target == pytest.approx(0.60)


def test_an_unknown_resource_is_refused_with_the_names_that_are_known() -> None:
    refused = refusal({"resource": "memry"})
    assert refused.final
    assert refused.reason == "rebalancer_resource: expected one of cpu, memory, licences, got 'memry'"


def test_an_alert_about_a_resource_without_thresholds_is_refused() -> None:
    refused = refusal({"resource": "licences", "high": "80"})
    assert refused.final
    assert refused.reason == "pool general has no thresholds of licences"


@pytest.mark.parametrize("resource", ["licences", "memry"])
def test_a_rule_about_a_resource_without_thresholds_is_a_mistake_in_the_policy(resource: str) -> None:
    with pytest.raises(ValueError, match=rf"a resource that a pool has thresholds of \(cpu, memory\), got {resource}"):
        policy({"resource": resource})


def test_the_bounds_of_a_target_hold_for_every_resource() -> None:
    assert refusal({"resource": "memory", "high": "40"}).reason.startswith("its high of 40% is below alerts.minHigh")
    assert "alerts.minTarget" in refusal({"resource": "memory", "target": "30"}).reason


def moved(share: float, cpu: float = 160.0, ago: float = 300.0) -> Eviction:
    amounts = {"memory": PodAmount(share * 64e9, share)}
    return an_eviction(node="n1", planned_at=NOW - ago, cpu_millicores=cpu, amounts=amounts)


def test_the_excess_of_an_alert_counts_what_was_evicted_of_its_own_resource() -> None:
    moves = [moved(0.1), moved(0.05), moved(0.2, ago=4000.0), moved(float("nan")), an_eviction(planned_at=NOW - 60)]
    assert override({"resource": "memory"}, None, moves).max_excess == pytest.approx(0.15)
    assert override({}, None, [moved(0.25)]).max_excess == pytest.approx(0.29)
    used = refusal({"resource": "memory"}, None, [moved(0.3)])
    assert not used.final
    assert used.reason == "30% of memory of n1 was evicted already, alerts.maxExcess is 30%"


# ---- the finding


def hot(mark: ThresholdOverride, memory: float, cpu: float = 2_000.0) -> Any:
    """Of a node of 16 cores with this memory, in percent, for the first sample only."""
    pods = replicas("web", {"hot": 2}, used=500.0)
    used = {"memory": amounts([memory, 20, 20], [20, 20], rows=1)}
    scene = Scene([cpu, 0, 0], pods, used, by_resources(memory=MARKS))
    scene.view = replace(scene.view, overrides={(0, mark.resource): mark})
    return scene.find()


MARK = ThresholdOverride(
    node="hot", strategy="LowNodeUtilization", resource="memory", high=0.6, target=0.4, source="alert NodeMemoryHigh"
)


def test_an_alert_about_memory_makes_its_node_hot_by_memory_at_once() -> None:
    (finding,) = hot(MARK, 70.0).findings
    assert (finding.resource, finding.cpu_share, finding.high, finding.target) == ("memory", 0.7, 0.6, 0.4)
    assert finding.reason == (
        "real memory 70% is over high 60% (alert NodeMemoryHigh), to be cooled to 40%; "
        "alert NodeMemoryHigh set high 60% instead of 85%, target 40% instead of 75%"
    )


def test_maxexcess_bounds_the_target_of_memory() -> None:
    (finding,) = hot(replace(MARK, max_excess=0.2), 70.0).findings
    assert finding.target == pytest.approx(0.5)
    assert finding.reason.endswith("its target 40% is limited by alerts.maxExcess")


def test_an_alert_about_memory_leaves_the_thresholds_of_cpu_alone() -> None:
    assert hot(MARK, 50.0, cpu=11_000.0).findings == ()
    assert hot(replace(MARK, resource="cpu"), 70.0, cpu=8_000.0).findings == ()


def test_two_alerts_for_two_resources_of_a_node_both_count() -> None:
    episode = AlertEpisode(
        id=1,
        alert=Alert(fingerprint="f", firing=True, labels={}, starts_at=NOW),
        received_at=NOW,
        next_at=NOW,
    )
    marks = [MARK, replace(MARK, resource="cpu", high=0.7), replace(MARK, high=0.7)]
    request = with_alerts(None, [of_override(episode, each) for each in marks])
    assert request is not None
    assert {key: each.high for key, each in request.thresholds.items()} == {("hot", "memory"): 0.6, ("hot", "cpu"): 0.7}


# ---- what becomes of it


def outcome_of(report: CycleReport) -> str:
    inbox = Notes()
    episode = AlertEpisode(
        id=1, alert=Alert(fingerprint="f", firing=True, labels={}, starts_at=NOW), received_at=NOW, next_at=NOW
    )
    record_results(inbox, [of_override(episode, MARK)], report, now=NOW)
    [(_, reason, _)] = inbox.tried_
    return reason


def a_report(**fields: Any) -> CycleReport:
    line = NodeLine(
        name="hot",
        pool="general",
        cpu_before=0.9,
        cpu_planned=0.9,
        resources=(ResourceShare(resource="memory", before=0.55, planned=0.55),),
    )
    return CycleReport(
        id="c", cluster="test", trigger=Trigger.ALERT, dry_run=False, started_at=NOW, nodes=[line], **fields
    )


def test_where_measurement_and_alert_disagree_the_share_is_that_of_its_resource() -> None:
    wanted = "measured memory 55%, not above the alert's 60%: nothing is evicted"
    assert outcome_of(a_report()) == wanted
    # hot by CPU is no answer to an alert about memory
    assert outcome_of(a_report(findings=[(build_finding(), "hot")])) == wanted
    both = build_finding(others=(ResourceExcess(resource="memory", share=0.7, high=0.6, target=0.5),))
    assert outcome_of(a_report(findings=[(both, "hot")])) == "hot, but nothing may be evicted"


def test_evictions_for_another_resource_are_no_result_of_the_alert() -> None:
    gone = [an_eviction(node="hot", resource="cpu", outcome=Outcome.EVICTED) for _ in range(2)]
    nothing = "measured memory 55%, not above the alert's 60%: nothing is evicted"
    assert outcome_of(a_report(findings=[(build_finding(), "hot")], evictions=gone)) == nothing
    excess = ResourceExcess(resource="memory", share=0.7, high=0.6, target=0.5)
    # what relieves a node of CPU and of memory too is recorded with the first
    assert outcome_of(a_report(findings=[(build_finding(others=(excess,)), "hot")], evictions=gone)) == "2 evicted"
    by_memory = [(build_finding(resource="memory"), "hot")]
    assert outcome_of(a_report(findings=by_memory, evictions=gone)) == "hot, but nothing may be evicted"
    other = [an_eviction(node="hot", outcome=Outcome.EVICTED)]
    assert outcome_of(a_report(findings=by_memory, evictions=other)) == "1 evicted"
