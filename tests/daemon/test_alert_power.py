"""The power of an alert: the thresholds that it may set, the CPU that it may take off a node, and when it counts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cycle.triggers.alert_requests import (
    RETRY_SECONDS,
    ActionableEpisode,
    AlertedNodes,
    AlertSpacing,
    RejectedEpisode,
    resolve_episode,
)
from rebalancer.lab import node, scenario, workload
from rebalancer.model.decisions.alerts import Alert, AlertEpisode, ThresholdOverride
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy
from rebalancer.store import open_records
from rebalancer.strategies.utilization.low_node_utilization import find
from tests.builders import NO_LIMITS, NOW, a_node, a_pod, a_policy, an_eviction, cluster, usage_of, view_of
from tests.daemon.test_worker import Around, around
from tests.e2e.servers import ALERT

HOUR = 3600.0
MARK = ThresholdOverride(node="n1", strategy="LowNodeUtilization", high=0.6, target=0.4, source="alert NodeHot")


def read(
    marks: Mapping[str, str], moves: Sequence[Eviction] = (), **alerts: Any
) -> ActionableEpisode | RejectedEpisode:
    """An alert on n1 that came ten minutes ago, read by a policy with these bounds."""
    alert = Alert(
        fingerprint="f",
        firing=True,
        labels={"alertname": "NodeHot", "node": "n1"},
        annotations={f"rebalancer_{name}": value for name, value in marks.items()},
        starts_at=NOW - 660,
    )
    policy = a_policy(alerts={"rules": [{"alert": "NodeHot"}], **alerts})
    nodes = AlertedNodes(cluster([a_node("n1")], []), {"n1": "general"}, moves)
    episode = AlertEpisode(id=1, alert=alert, received_at=NOW - 600, next_at=NOW)
    return resolve_episode(episode, nodes, policy, now=NOW)


def found(mark: ThresholdOverride, used: float) -> Any:
    """What LowNodeUtilization finds on a node of 16 cores with this alert."""
    nodes, pods = [a_node("n1", used=used)], [a_pod("p", "n1", owner="web")]
    made, policy = cluster(nodes, pods), a_policy()
    [finding] = find(view_of(made, usage_of(made, nodes, pods), policy, overrides={(0, mark.resource): mark})).findings
    return finding


def test_a_target_of_1_is_refused() -> None:
    refused = read({"high": "50", "target": "1"})
    assert isinstance(refused, RejectedEpisode)
    assert refused.final
    assert refused.reason == "its target of 1% is below alerts.minTarget (40%)"


@pytest.mark.parametrize(("high", "bound", "fits"), [("50", 50, True), ("49.9", 50, False), ("65", 70, False)])
def test_the_policy_says_how_low_a_high_may_be(high: str, bound: int, fits: bool) -> None:
    episode = read({"high": high}, minHigh=bound)
    if fits:
        assert isinstance(episode, ActionableEpisode)
        assert episode.override is not None
        assert episode.override.high == float(high) / 100
    else:
        assert isinstance(episode, RejectedEpisode)
        assert episode.final
        assert episode.reason == f"its high of {high}% is below alerts.minHigh ({bound}%)"


@pytest.mark.parametrize(("target", "fits"), [("45", True), ("44.9", False)])
def test_the_policy_says_how_low_a_target_may_be(target: str, fits: bool) -> None:
    assert isinstance(read({"high": "60", "target": target}, minTarget=45), ActionableEpisode) is fits


def test_a_target_that_follows_from_high_is_no_lower_than_the_policy_allows() -> None:
    episode = read({"high": "51"}, minTarget=48)
    assert isinstance(episode, ActionableEpisode)
    assert episode.override is not None
    assert (episode.override.high, episode.override.target) == (0.51, 0.48)


def test_a_lowest_target_over_the_lowest_high_is_a_mistake_in_the_policy() -> None:
    text = a_policy().model_dump(mode="json", by_alias=True, exclude_unset=True)
    with pytest.raises(ConfigError, match=r"alerts\.minTarget: expected minTarget < minHigh, got 60 and 50"):
        load_policy(json.dumps({**text, "alerts": {"minTarget": 60}}).encode(), source="policy.yaml")


def test_the_excess_of_an_alert_is_bounded() -> None:
    bounded = replace(MARK, max_excess=0.2)
    assert found(bounded, 0.95 * 16_000).target == pytest.approx(0.65)  # the pool's own holds in any case
    assert found(bounded, 0.70 * 16_000).target == pytest.approx(0.50)
    assert found(bounded, 0.61 * 16_000).target == pytest.approx(0.41)


@pytest.mark.parametrize(
    ("ago", "cores", "left"),
    [(300, 3.2, 0.1), (300, 1.6, 0.2), (1800, 3.2, 0.1), (HOUR + 1, 3.2, 0.3), (300, float("nan"), 0.3)],
)
def test_what_was_evicted_from_the_node_counts(ago: float, cores: float, left: float) -> None:
    moves = [
        an_eviction(node="n1", planned_at=NOW - ago, cpu_millicores=1000 * cores),
        an_eviction(node="n2", planned_at=NOW - 60, cpu_millicores=9000.0),
    ]
    episode = read({"high": "60"}, moves)
    assert isinstance(episode, ActionableEpisode)
    assert episode.override is not None
    assert episode.override.max_excess == pytest.approx(left)


def test_an_alert_whose_excess_is_used_up_waits() -> None:
    refused = read({"high": "60"}, [an_eviction(node="n1", planned_at=NOW - 60, cpu_millicores=4800.0)])
    assert isinstance(refused, RejectedEpisode)
    assert not refused.final
    assert refused.reason == "30% of n1 was evicted already, alerts.maxExcess is 30%"


def test_what_an_alert_changed_stands_in_the_reason() -> None:
    changed = "alert NodeHot set high 60% instead of 75%, target 40% instead of 65%"
    assert found(MARK, 0.7 * 16_000).reason == (
        f"real CPU 70% is over high 60% (alert NodeHot), to be cooled to 40%; {changed}"
    )
    limited = replace(MARK, max_excess=0.2)
    assert found(limited, 0.7 * 16_000).reason.endswith(
        "; alert NodeHot set high 60% instead of 75%, target 50% instead of 65%, "
        "its target 40% is limited by alerts.maxExcess"
    )


def test_an_alert_that_changes_nothing_says_nothing_of_it() -> None:
    same = replace(MARK, high=0.75, target=0.65)
    assert found(same, 0.8 * 16_000).reason == "real CPU 80% is over high 75% (alert NodeHot), to be cooled to 65%"


def crowded() -> Any:
    """A node at 90% with sixteen small services, and empty ones."""
    nodes = [node(name, cpu=8, overhead_cores=0.3) for name in ("crowded", "cold-1", "cold-2", "cold-3")]
    return scenario(
        nodes=nodes,
        workloads=[
            workload(
                f"svc-{number}",
                namespace="shop",
                place={"crowded": 1, "cold-1": 1},
                cpu_request="100m",
                memory_request="64Mi",
                cpu=0.42,
            )
            for number in range(8)
        ]
        + [
            workload(
                f"solo-{number}",
                namespace="shop",
                place={"crowded": 1},
                cpu=0.42,
                cpu_request="100m",
                memory_request="64Mi",
            )
            for number in range(8)
        ],
    )


def alert(it: Around, *, high: float, target: float, number: int = 0, node: str = "crowded", **times: float) -> None:
    one = Alert(
        fingerprint=f"crowded {number}",
        firing=True,
        labels={"alertname": ALERT, "node": node},
        annotations={"rebalancer_high": f"{high:g}", "rebalancer_target": f"{target:g}"},
        **{"starts_at": it.lab.clock.now(), **times},
    )
    it.inbox.receive([one], max_age_seconds=12 * HOUR)


FREE = {
    "limits": NO_LIMITS,
    "guards": {"minAge": "1m", "minReplicas": 1},
    "safety": {"cooldowns": {"node": "0s", "service": "0s", "serviceNode": "0s"}},
}
POD_SHARE = 0.42 / 8


def test_no_alert_takes_more_than_the_bounded_excess_off_a_node(tmp_path: Path) -> None:
    with around(tmp_path, practice=crowded(), **FREE) as it:
        for number in range(4):  # again and again, under other names
            alert(it, high=50.0, target=1.0, number=number)
            alert(it, high=50.0, target=40.0, number=number + 10)
            it.worker.work(None)
            it.lab.clock.sleep(600)
        gone = it.evicted().count("crowded")
        assert 0 < gone <= 0.30 / POD_SHARE + 1
        reasons = {each.reason for report in it.reports for each in report.evictions}
        assert all(f"alert {ALERT} set high 50% instead of 90%" in each for each in reasons)


def test_an_alert_whose_end_has_passed_does_not_count(it: Around) -> None:
    now = it.lab.clock.now()
    alert(it, high=60.0, target=50.0, node="warm-1", starts_at=now - 300, ends_at=now - 60)
    assert it.worker.work(None) is None
    assert it.evicted() == []
    alert(it, high=60.0, target=50.0, node="warm-1", starts_at=now - 30, ends_at=now + 60)
    assert it.worker.work(None) is not None
    assert it.evicted() == ["warm-1"]


def test_an_open_alert_whose_end_has_passed_is_resolved(it: Around, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'db'}"
    now = it.lab.clock.now()
    alert(it, high=60.0, target=50.0, node="warm-1", starts_at=now - 300)
    alert(it, high=60.0, target=50.0, node="warm-1", starts_at=now - 300, ends_at=now - 60)
    assert it.worker.work(None) is None
    with open_records(url=url, cluster="test", clock=it.lab.clock) as records:
        assert records.inbox(clock=it.lab.clock).open_count() == 0


@pytest.mark.parametrize("label", ["pod", "namespace", "service", "container", "uid", "owner"])
def test_an_alert_names_a_node_and_chooses_no_pod_of_it(label: str) -> None:
    nodes = [a_node("n1", used=15_000.0), a_node("n2", used=0.0), a_node("n3", used=0.0)]
    pods = [a_pod(f"p-{at}", "n1", owner=f"web-{at}", cpu=200, used=500.0 + 50 * at) for at in range(12)]
    policy = a_policy(guards={"minReplicas": 1}, alerts={"rules": [{"alert": "NodeHot"}]})
    made = cluster(nodes, pods)
    names = AlertedNodes(made, {"n1": "general"})

    def found_with(labels: Mapping[str, str]) -> list[Any]:
        alert = Alert(fingerprint="f", firing=True, labels={"alertname": "NodeHot", **labels}, starts_at=NOW - 60)
        episode = resolve_episode(AlertEpisode(id=1, alert=alert, received_at=NOW, next_at=NOW), names, policy, now=NOW)
        if isinstance(episode, RejectedEpisode):
            return []
        assert episode.override is not None
        view = view_of(made, usage_of(made, nodes, pods), policy, overrides={(0, "cpu"): episode.override})
        return [(each.node, each.reason, each.candidates.tolist()) for each in find(view).findings]

    plain = found_with({"node": "n1"})
    assert [node for node, _, _ in plain] == [0]
    assert found_with({"node": "n1", label: "p-3"}) == plain
    assert found_with({label: "p-3"}) == []


def test_new_alerts_about_a_node_start_a_cycle_a_minute_and_the_first_at_once(tmp_path: Path) -> None:
    with around(tmp_path, practice=crowded(), **FREE) as it:
        began = it.lab.clock.now()
        for number in range(150):  # each a new alert, a second after the last
            alert(it, high=95.0, target=90.0, number=number)
            it.worker.work(None)
            it.lab.clock.sleep(1)
        assert [round(each.started_at - began) for each in it.reports] == [0, 60, 120]


def test_a_new_alert_about_another_node_waits_for_no_other(tmp_path: Path) -> None:
    with around(tmp_path, practice=crowded(), **FREE) as it:
        for number, name in enumerate(("crowded", "cold-1", "cold-2")):
            alert(it, high=95.0, target=90.0, number=number, node=name)
            assert it.worker.work(None) is not None


def test_a_postponed_alert_says_why(tmp_path: Path) -> None:
    with around(tmp_path, practice=crowded(), **FREE) as it:
        alert(it, high=95.0, target=90.0)
        it.worker.work(None)
        it.lab.clock.sleep(5)
        alert(it, high=95.0, target=90.0, number=1)
        assert it.worker.work(None) is None
        assert it.inbox.next_at() == it.reports[0].started_at + RETRY_SECONDS
        it.lab.clock.sleep(RETRY_SECONDS)
        reasons = {each.alert.fingerprint: each.reason for each in it.inbox.due(expire_after_seconds=HOUR)}
        assert reasons["crowded 1"] == "crowded had a cycle of LowNodeUtilization less than 60 s ago"


def test_a_cycle_that_decided_nothing_postpones_no_alert(tmp_path: Path) -> None:
    with around(tmp_path, practice=crowded(), **FREE) as it:
        it.lab.faults.set(nan=("*",))
        alert(it, high=95.0, target=90.0)
        it.worker.work(None)
        assert it.reports[0].stopped is not None
        it.lab.faults.clear()
        it.lab.clock.sleep(5)
        alert(it, high=95.0, target=90.0, number=1)
        assert it.worker.work(None) is not None
        assert it.reports[1].stopped is None


def test_a_clock_that_was_set_back_postpones_nothing() -> None:
    found = read({"high": "60"})
    assert isinstance(found, ActionableEpisode)
    spacing = AlertSpacing()
    spacing.count([found], NOW)
    assert [spacing.next_at(found, at) - at for at in (NOW, NOW + 59, NOW + 60, NOW - 1)] == [60, 1, 0, 0]


def test_hundreds_of_alerts_are_one_cycle_and_none_before_they_are_retried(tmp_path: Path) -> None:
    with around(tmp_path, practice=crowded(), **FREE) as it:
        for number in range(200):
            alert(it, high=95.0, target=90.0, number=number)
        assert it.worker.work(None) is not None
        assert [it.worker.work(None) for _ in range(20)] == [None] * 20
        assert len(it.reports) == 1
        it.lab.clock.sleep(RETRY_SECONDS - 5)
        assert it.worker.work(None) is None
