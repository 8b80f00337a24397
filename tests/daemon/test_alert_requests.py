"""Open alerts: which node each means, what it calls hot, and what is written about it afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.cycle.triggers.alert_requests import (
    ActionableEpisode,
    AlertedNodes,
    RejectedEpisode,
    close_rejected,
    record_results,
    resolve_episode,
)
from rebalancer.model.decisions.alerts import Alert, AlertEpisode, EpisodeState, Received, ThresholdOverride
from rebalancer.model.decisions.plan import CycleReport, NodeLine, PodRefusal, Trigger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from tests.builders import NOW, a_node, a_policy, cluster
from tests.store.builders import build_finding

POOL_OF = {"n1": "general"}


@dataclass
class Notes:
    """An inbox that only remembers what is written into it."""

    tried_: list[tuple[int, str, float]] = field(default_factory=list)
    closed: list[tuple[int, EpisodeState, str]] = field(default_factory=list)

    def receive(self, alerts: Sequence[Alert], *, max_age_seconds: float) -> Received:
        raise NotImplementedError

    def due(self, *, expire_after_seconds: float) -> Sequence[AlertEpisode]:
        raise NotImplementedError

    def next_at(self) -> float | None:
        raise NotImplementedError

    def tried(self, episode: AlertEpisode, *, reason: str, next_at: float) -> None:
        self.tried_.append((episode.id, reason, next_at))

    def close(self, episode: AlertEpisode, *, state: EpisodeState, reason: str) -> None:
        self.closed.append((episode.id, state, reason))


def episode(annotations: dict[str, str] | None = None, **labels: str) -> AlertEpisode:
    alert = Alert(
        fingerprint="f",
        firing=True,
        labels={"alertname": "NodeHot", **(labels or {"node": "n1"})},
        annotations=annotations or {},
        starts_at=NOW - 60,
    )
    return AlertEpisode(id=1, alert=alert, received_at=NOW - 50, next_at=NOW)


def policy(**rule: Any) -> RebalancerPolicy:
    return a_policy(alerts={"rules": [{"alert": "NodeHot", **rule}]})


def read(one: AlertEpisode, by: RebalancerPolicy | None = None) -> ActionableEpisode | RejectedEpisode:
    made = cluster([a_node("n1"), a_node("n2", labels={})], [])
    return resolve_episode(one, AlertedNodes(made, POOL_OF), by or policy(high=60, target=50), now=NOW)


def marks_of(found: ActionableEpisode | RejectedEpisode) -> tuple[str, float, float]:
    assert isinstance(found, ActionableEpisode), found.reason
    assert found.override is not None
    return found.node, found.override.high, found.override.target


def test_the_rule_says_what_is_hot() -> None:
    assert marks_of(read(episode())) == ("n1", 0.6, 0.5)


def test_the_alerts_own_annotations_go_before_the_rule() -> None:
    own = episode({"rebalancer_high": "70", "rebalancer_target": " 55.5% "})
    assert marks_of(read(own)) == ("n1", 0.7, 0.555)


def test_without_marks_anywhere_the_pools_own_hold() -> None:
    assert marks_of(read(episode(), policy())) == ("n1", 0.75, 0.65)


def test_a_high_without_a_target_keeps_the_pools_distance() -> None:
    assert marks_of(read(episode({"rebalancer_high": "60"}), policy())) == ("n1", 0.6, pytest.approx(0.5))


@pytest.mark.parametrize("value", ["n1", "n1:9100"])
def test_an_instance_with_a_port_names_its_node(value: str) -> None:
    assert marks_of(read(episode(instance=value)))[0] == "n1"


def test_the_first_label_that_names_a_node_counts() -> None:
    assert marks_of(read(episode(node="unknown", instance="n1:9100")))[0] == "n1"


@pytest.mark.parametrize(
    ("one", "by", "final", "words"),
    [
        (episode(job="x"), None, True, "names no node: expected one of node, instance"),
        (episode(node="gone"), None, False, "no node of this cluster is gone"),
        (episode(node="n2"), None, False, "n2 is in no pool"),
        (episode({"rebalancer_high": "0.6"}), None, True, "expected a percentage between 1 and 100, got '0.6'"),
        (episode({"rebalancer_high": "nan"}), None, True, "expected a percentage"),
        (episode({"rebalancer_high": "40"}), None, True, "its high of 40% is below alerts.minHigh (50%)"),
        (episode({"rebalancer_target": "60"}), None, True, "expected target < high"),
        (episode(), policy(labels={"team": "x"}), True, "no rule for NodeHot"),
    ],
)
def test_an_alert_that_says_too_little_is_put_aside_with_the_reason(
    one: AlertEpisode, by: RebalancerPolicy | None, final: bool, words: str
) -> None:
    found = read(one, by)
    assert isinstance(found, RejectedEpisode)
    assert words in found.reason
    assert found.final is final


def test_what_time_may_change_stays_open_and_the_rest_is_closed() -> None:
    inbox = Notes()
    close_rejected(
        inbox,
        [
            RejectedEpisode(episode=episode(), reason="never", final=True),
            RejectedEpisode(episode=episode(), reason="not yet", final=False),
        ],
        now=NOW,
    )
    assert inbox.closed == [(1, EpisodeState.REFUSED, "never")]
    assert [(reason, at > NOW) for _, reason, at in inbox.tried_] == [("not yet", True)]


def result_of(report: CycleReport) -> tuple[str, float]:
    inbox = Notes()
    marks = ThresholdOverride(node="n1", strategy="LowNodeUtilization", high=0.6, target=0.5, source="alert NodeHot")
    record_results(
        inbox,
        [ActionableEpisode(episode=episode(), node="n1", strategy=marks.strategy, override=marks)],
        report,
        now=NOW,
    )
    [(_, reason, at)] = inbox.tried_
    return reason, at - NOW


def report(**fields: Any) -> CycleReport:
    return CycleReport(id="c", cluster="test", trigger=Trigger.ALERT, dry_run=False, started_at=NOW, **fields)


def refused(code: Reason, next_at: float | None = None, name: str = "p") -> PodRefusal:
    return PodRefusal(node="n1", namespace="shop", name=name, code=code, message="m", next_at=next_at)


def test_where_measurement_and_alert_disagree_that_is_written_down() -> None:
    line = NodeLine(name="n1", pool="general", cpu_before=0.55, cpu_planned=0.55)
    assert result_of(report(nodes=[line])) == ("measured 55%, not above the alert's 60%: nothing is evicted", 60.0)


def test_a_cycle_that_could_not_decide_is_tried_again() -> None:
    stopped = Refusal.of(Reason.COVERAGE_TOO_LOW)
    assert result_of(report(stopped=stopped))[0] == stopped.message


def test_a_node_that_was_not_judged_says_why() -> None:
    assert result_of(report(refusals=[refused(Reason.SETTLING, name="")]))[0] == "m"


def test_what_a_limit_refuses_is_tried_again_at_the_next_possible_time() -> None:
    hot = report(
        findings=[(build_finding(), "n1")],
        refusals=[
            refused(Reason.LIMIT_SERVICE, NOW + 240),
            refused(Reason.WINDOW_CLOSED, NOW + 90),
            refused(Reason.BARE_POD),
        ],
    )
    reason, after = result_of(hot)
    assert after == 90.0
    assert "BarePod 1, LimitService 1, WindowClosed 1" in reason


@pytest.mark.parametrize(("next_at", "after"), [(None, 60.0), (NOW - 5, 60.0), (NOW + 0.1, 1.0), (NOW + 9000, 900.0)])
def test_it_looks_again_neither_at_once_nor_in_hours(next_at: float | None, after: float) -> None:
    hot = report(findings=[(build_finding(), "n1")], refusals=[refused(Reason.WINDOW_CLOSED, next_at)])
    assert result_of(hot)[1] == after
