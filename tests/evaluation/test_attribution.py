"""Hot nodes by the standard, held against what our cycles said, and counted by days."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.cycle.evict.scheduled_assessments import assessments_of
from rebalancer.cycle.observe.observation import find, observe
from rebalancer.cycle.run import run_cycle
from rebalancer.evaluation.assessments import run_due_assessments
from rebalancer.evaluation.hot_nodes import LAG_SECONDS, evaluate_slo
from rebalancer.model.decisions.eviction import Outcome as Became
from rebalancer.model.decisions.limits import Pause, Scope
from rebalancer.model.decisions.plan import CycleReport, NodeLine, PodRefusal, Trigger
from rebalancer.model.reason import BlockedReason, MissReason, Reason
from rebalancer.model.records.effect import Assessment, DayRow, EffectRecords, Outcome, PodBefore
from rebalancer.prometheus.history.slo import PrometheusSlo
from rebalancer.store import open_records
from tests.builders import NOW, set_fields
from tests.effect.builders import an_assessment, an_episode
from tests.evaluation.scenarios import DAY, HOUR, MINUTE, Reads, hot_between, reads_on
from tests.store.builders import build_eviction, build_finding
from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service

# ---- what we had said of them


def a_cycle(
    reads: Reads,
    number: int,
    at: float,
    *,
    node: str = "a",
    share: float = 0.9,
    found: bool = True,
    refusals: Mapping[Reason, int] | None = None,
    trigger: Trigger = Trigger.PERIODIC,
) -> CycleReport:
    """One that looked at a node."""
    report = CycleReport(id=f"c{number}", cluster="test", trigger=trigger, dry_run=False, started_at=at)
    reads.records.begin(report)
    if found:
        marks = {"cpu_share": share, "high": 0.75, "target": 0.65}
        report.findings = [(build_finding(reason="hot", candidates=np.array([], dtype=np.int32), **marks), node)]
    report.nodes = [NodeLine(name=node, pool="general", cpu_before=share, cpu_planned=share, hot=found, high=0.75)]
    report.refusals = [
        PodRefusal(node=node, namespace="shop", name=f"p{index}", code=code, message=str(code))
        for code, count in (refusals or {}).items()
        for index in range(count)
    ]
    report.finished_at = at + 5
    reads.records.finish(report)
    return report


def test_what_no_cycle_saw_is_missed_because_none_ran(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1800))), NOW)
    reads.at(NOW + HOUR)
    (found,) = reads.episodes()
    assert (found.miss_reason, found.discovered_at) == (MissReason.DAEMON_DOWN, None)


def test_what_we_measured_below_our_own_mark_is_missed_by_that(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1800))), NOW)
    for number in range(20):
        a_cycle(reads, number, NOW + 120 * number, share=0.7, found=False)
    reads.at(NOW + HOUR)
    (found,) = reads.episodes()
    assert (found.miss_reason, found.measured_peak_share) == (MissReason.BELOW_THRESHOLD, 0.7)


def test_an_episode_that_is_found_later_counts_once_and_as_found(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 3000))), NOW)
    a_cycle(reads, 0, NOW + 60, share=0.7, found=False)
    reads.at(NOW + 1200)
    assert [each.miss_reason for each in reads.episodes()] == [MissReason.BELOW_THRESHOLD]
    a_cycle(reads, 1, NOW + 1300, refusals={Reason.NO_TARGET_NODE: 3})
    reads.at(NOW + HOUR)
    (found,) = reads.episodes()
    assert (found.miss_reason, found.discovered_at, found.discovery_trigger) == (None, NOW + 1300, "periodic")
    assert (found.blocked_reason, found.codes) == (BlockedReason.NO_TARGET_NODE, {Reason.NO_TARGET_NODE: 3})
    day = int(NOW // DAY)
    rows = {(each.strategy, each.trigger): each for each in reads.effect.days(day, day + 1)}
    counts = {("", ""): (0, 0), ("LowNodeUtilization", "periodic"): (1, 1)}
    assert {key: (row.hot, row.discovered) for key, row in rows.items()} == counts


def test_a_cycle_that_is_written_late_still_counts_for_what_just_ended(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1200))), NOW)
    reads.at(NOW + 1500)
    assert reads.episodes()[0].miss_reason is MissReason.DAEMON_DOWN
    a_cycle(reads, 1, NOW + 1100)
    reads.at(NOW + 1800)
    assert reads.episodes()[0].discovered_at == NOW + 1100


def test_what_a_cycle_found_after_the_time_that_was_read_is_not_held_against_an_open_episode(
    open_at: Callable[..., Reads],
) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 7 * HOUR))), NOW)
    a_cycle(reads, 1, NOW + 600, share=0.7, found=False)
    a_cycle(reads, 2, NOW + 8 * HOUR)
    assert reads.at(NOW + 9 * HOUR).behind
    assert reads.episodes()[0].discovered_at is None
    reads.at(NOW + 9 * HOUR)
    assert (reads.episodes()[0].ended_at, reads.episodes()[0].discovered_at) == (NOW + 7 * HOUR, None)


def test_what_becomes_known_of_yesterday_is_counted_within_the_hour(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between()), NOW)
    yesterday = NOW // DAY * DAY - HOUR
    due = evicted_from(reads, a_cycle(reads, 0, yesterday), "a")
    day = int(yesterday // DAY)
    reads.at(NOW + 300)
    assert reads.effect.days(day, day + 1)[0].reasons == {}
    reads.effect.made([replace(due, assessed_at=NOW + 400, after_share=0.6, outcome=Outcome.COOLED)])
    for minute in range(10, 80, 10):
        reads.at(NOW + minute * MINUTE)
    assert reads.effect.days(day, day + 1)[0].reasons == {"effect/cooled": 1}


def test_a_pause_that_kept_all_pods_is_the_reason(open_at: Callable[..., Reads]) -> None:
    refused = {Reason.NO_TARGET_NODE: 5, Reason.PAUSED: 1}
    pauses = {
        None: BlockedReason.NO_TARGET_NODE,
        Scope("pool", "test/general"): BlockedReason.PAUSED,
        Scope("node", "test/a"): BlockedReason.PAUSED,
        Scope("global", ""): BlockedReason.PAUSED,
        Scope("node", "test/b"): BlockedReason.NO_TARGET_NODE,
        Scope("namespace", "test/shop"): BlockedReason.NO_TARGET_NODE,
    }
    for scope, wanted in pauses.items():
        reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1800))), NOW)
        reads.pauses = [Pause(scope=scope, reason="why", created_by="me", until=None)] if scope else []
        a_cycle(reads, 0, NOW + 900, refusals=refused)
        reads.at(NOW + HOUR)
        assert reads.episodes()[0].blocked_reason is wanted, scope


def evicted_from(reads: Reads, report: CycleReport, node: str) -> Assessment:
    """One pod left, by the records; what is to be assessed."""
    eviction = build_eviction(node=node, outcome=Became.EVICTED)
    set_fields(eviction, record=reads.records.planned(report, eviction))
    reads.records.outcome(eviction)
    web = PodBefore(uid="uid-web-1", pod="shop/web-1", amount=4800.0, evicted=True)
    times = {"last_eviction_at": report.started_at + 5, "due_at": report.started_at + 905}
    shares = {"before_share": 0.9, "planned_share": 0.6, "target": 0.65, "capacity": 16_000.0}
    due = an_assessment(web, cycle=report.id, node=node, **times, **shares)
    reads.effect.expect([due])
    return due


@pytest.mark.parametrize("outcome", [Outcome.COOLED, Outcome.REMAINING_PODS_GREW])
def test_whether_it_cooled_is_filled_in_when_that_is_known(open_at: Callable[..., Reads], outcome: Outcome) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1200))), NOW)
    due = evicted_from(reads, a_cycle(reads, 0, NOW + 600), "a")
    reads.at(NOW + 1500)
    assert [(each.evictions, each.cooled, each.blocked_reason) for each in reads.episodes()] == [(1, None, None)]
    reads.every(HOUR, since=NOW + 2 * HOUR, until=NOW + 5 * HOUR)
    reads.effect.made([replace(due, assessed_at=NOW + 5 * HOUR, after_share=0.6, outcome=outcome)])
    reads.at(NOW + 5 * HOUR + 300)
    assert reads.episodes()[0].cooled is (outcome is Outcome.COOLED)
    day = int(NOW // DAY)
    (row,) = reads.effect.days(day, day + 1)
    assert (row.hot, row.discovered, row.evicted_from, row.assessed, row.evictions) == (1, 1, 1, 1, 1)
    assert row.cooled == (outcome is Outcome.COOLED)
    assert row.reasons == {f"effect/{outcome}": 1}
    assert row.relief_planned == pytest.approx(4.8)


def test_an_assessment_after_an_outage_is_not_counted_as_effectiveness(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1200))), NOW)
    due = evicted_from(reads, a_cycle(reads, 0, NOW + 600), "a")
    made = replace(due, assessed_at=NOW + HOUR, late=True, after_share=0.8, outcome=Outcome.REMAINING_PODS_GREW)
    reads.effect.made([made])
    reads.at(NOW + HOUR)
    assert reads.episodes()[0].cooled is None
    (row,) = reads.effect.days(int(NOW // DAY), int(NOW // DAY) + 1)
    assert (row.evicted_from, row.assessed, row.evictions, row.reasons) == (1, 0, 1, {})
    assert (row.relief_planned, row.relief_measured) == (0.0, 0.0)


class Counts:
    """Counts what is asked."""

    def __init__(self, inner: EffectRecords) -> None:
        self._inner = inner
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._inner, name)


@pytest.mark.parametrize(("days", "times"), [(0.1, 6), (1.0, 2), (2.5, 1)])
def test_a_node_that_is_hot_for_days_is_attributed_less_often_until_it_has_cooled(
    open_at: Callable[..., Reads], days: float, times: int
) -> None:
    began = NOW - round(days * 24) * HOUR
    reads = reads_on(open_at(hot_between(("a", began, NOW + 4800))), NOW + 3000)
    still_hot = {"minutes": None, "peak_share": 0.9, "miss_reason": MissReason.BELOW_THRESHOLD}
    reads.effect.put_episodes([an_episode(node="a", start=began, **still_hot)])
    a_cycle(reads, 0, began + 60, share=0.7, found=False)
    counts = Counts(reads.effect)
    reads.effect = counts  # type: ignore[assignment]
    for minute in (54, 60, 66, 72, 78, 90):  # an hour ends in the third, and it is over by the last
        reads.at(NOW + minute * MINUTE)
    assert (counts.asked.count("node_observations"), reads.episodes()[0].ended_at) == (times, NOW + 4800)


def test_days_whose_details_are_dropped_are_not_counted_again(open_at: Callable[..., Reads]) -> None:
    began = NOW - 5 * DAY
    reads = reads_on(open_at(hot_between(("a", began, NOW + HOUR)), effect={"detailRetention": "1d"}), NOW)
    still_hot = {"minutes": None, "peak_share": 0.9, "miss_reason": MissReason.STABILIZATION_WINDOW}
    old = an_episode(node="a", start=began, **still_hot)
    reads.effect.put_episodes([old])
    long_ago = DayRow(cluster="test", pool="general", strategy="", trigger="", day=int(began // DAY), hot=7)
    reads.effect.roll_up([long_ago])
    reads.at(NOW + 2 * HOUR)
    assert reads.effect.days(long_ago.day, long_ago.day + 1) == [replace(long_ago, reasons=None)]


# ---- in the lab


@pytest.mark.parametrize("runs", [True, False])
def test_in_the_lab_an_episode_is_what_the_lab_knows_and_what_we_did(tmp_path: Path, runs: bool) -> None:
    """A pod makes a node hot; a quarter of an hour later comes a cycle, which without `runs` only looks."""
    world = a_scenario(
        ("hot", "a", "b"),
        burner("quiet", "hot", 1.8),
        *(service(name, {"hot": 1, "a": 1, "b": 1}) for name in ("web", "api", "db")),
    )
    standard = {"query": "instance:node_cpu_utilisation:rate5m", "label": "instance", "threshold": 70, "for": "5m"}
    with a_stage(world, tmp_path, effect={"hotNodeSLO": standard, "settlingTime": "10m"}) as stage:
        lab, policy = stage.lab, stage.policy
        since = lab.clock.now() // MINUTE * MINUTE
        records = open_records(url=stage.settings.database, cluster=policy.cluster, clock=lab.clock)
        reader = PrometheusSlo(policy.usage, policy.effect.hot_node_slo)
        with records, closing(reader):
            kept: EffectRecords = records.effect()
            kept.put_hours([], read_until=since)
            lab.clock.sleep(5 * MINUTE)
            lab.cluster.add_workload(burner("burner", "hot", 8.0))
            lab.clock.sleep(15 * MINUTE)
            seen = observe(stage.world, policy, writes=False)
            found = find(seen, policy)
            report = run_cycle(stage.world, policy, dry_run=not runs).report
            kept.expect(assessments_of(report, seen, found, policy, now=lab.clock.now()))
            for _ in range(5):
                lab.clock.sleep(5 * MINUTE)
                seen, now = observe(stage.world, policy, writes=False), lab.clock.now()
                run_due_assessments(kept, seen.snapshot, seen.usage, replacements=lambda _: {}, policy=policy, now=now)
                reading = evaluate_slo(reader, kept, seen.snapshot, seen.node_pools, policy, now=now)
                assert reading.notes == ()
            (episode,) = kept.episodes(0.0, now)
            (row,) = kept.days(int(since // DAY), int(since // DAY) + 1)
            hours = kept.hours(since, now)
            (truth,) = lab.truth.episodes(high=0.7, start=since, end=now - LAG_SECONDS)
    assert (episode.node, episode.started_at) == ("hot", truth.start)
    assert episode.peak_share == pytest.approx(truth.peak_share)
    discovered = (episode.discovered_at, episode.discovery_trigger, episode.measured_peak_share)
    assert discovered == (report.started_at, "manual", pytest.approx(0.8))
    assert sum(each.hot_node_minutes for each in hours) == pytest.approx((truth.end - truth.start) / 60, abs=1.0)
    if runs:
        assert (episode.ended_at, episode.evictions, episode.cooled) == (truth.end, 3, True)
        assert (row.hot, row.discovered, row.evicted_from, row.assessed, row.cooled) == (1, 1, 1, 1, 1)
        assert row.evictions == 3
        assert row.relief_measured == pytest.approx(3.0, rel=0.01)
    else:
        assert (episode.ended_at, episode.evictions, episode.blocked_reason) == (None, 0, BlockedReason.DRY_RUN)
        assert (row.hot, row.discovered, row.evicted_from) == (1, 1, 0)
