"""Hot nodes by the standard: read piece by piece into a real database, from samples that a test makes up."""

import math
import random
from collections.abc import Callable

import pytest

from rebalancer.evaluation.hot_nodes import evaluate_slo
from rebalancer.model.decisions.plan import CycleReport, NodeLine, Trigger
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.reason import MissReason
from rebalancer.policy.pools import NodePools
from tests.builders import NOW, a_node, cluster
from tests.evaluation.scenarios import DAY, HOUR, MINUTE, FailsNow, Reads, hot_between, reads_on

# ---- episodes


def test_a_node_that_was_hot_for_long_enough_is_an_episode(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("b", NOW + 600, NOW + 2400))), NOW)
    assert reads.at(NOW + 2 * HOUR).notes == ()
    (found,) = reads.episodes()
    assert (found.node, found.pool, found.threshold, found.peak_share) == ("b", "general", 0.75, 0.9)
    assert (found.started_at, found.ended_at) == (NOW + 600, NOW + 2400)


def test_one_that_was_hot_for_too_short_is_none(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("b", NOW + 600, NOW + 1200))), NOW)  # samples of nine minutes
    reads.at(NOW + 2 * HOUR)
    assert reads.episodes() == []


def test_what_goes_on_over_many_readings_is_one_episode(open_at: Callable[..., Reads]) -> None:
    hot = hot_between(("a", NOW + 3000, NOW + 5 * HOUR))
    reads = reads_on(open_at(lambda node, at: hot(node, at) + (0.05 if at == NOW + HOUR else 0.0)), NOW)
    reads.every(600, since=NOW, until=NOW + 3 * HOUR)
    assert reads.spans() == [("a", 50, None)]
    reads.every(600, since=NOW + 3 * HOUR, until=NOW + 6 * HOUR)
    assert reads.spans() == [("a", 50, 300)]
    assert reads.episodes()[0].peak_share == pytest.approx(0.95)  # long ago


def test_a_node_that_was_hot_long_before_the_first_reading_is_hot_from_its_beginning(
    open_at: Callable[..., Reads],
) -> None:
    reads = open_at(hot_between(("a", NOW - 60 * DAY, NOW + 3 * HOUR)))
    reads.every(600, since=NOW, until=NOW + 5 * HOUR)
    (found,) = reads.episodes()
    assert found.ended_at == NOW + 3 * HOUR
    assert NOW - 25 * HOUR < found.started_at < NOW - 23 * HOUR


def test_the_first_reading_goes_back_a_day_and_the_next_goes_on(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between())
    reads.every(300, since=NOW + 1234, until=NOW + 1234)
    first, calls = reads.samples.asked[0], len(reads.samples.asked)
    assert NOW - 25 * HOUR <= first[0] <= NOW - 23 * HOUR
    assert reads.effect.slo_evaluated_until() == NOW + 900  # five minutes behind, on the minute
    reads.at(NOW + 1534)
    ((start, end, step),) = reads.samples.asked[calls:]
    assert (start <= NOW, end, step) == (True, NOW + 1200, 60.0)


def test_no_piece_is_longer_than_an_hour_and_what_hangs_over_from_the_one_before(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between())
    reads.every(300, since=NOW, until=NOW)
    assert max((end - start) / step for start, end, step in reads.samples.asked) <= 90
    assert len(reads.samples.asked) >= 24


def test_a_call_reads_some_hours_and_says_that_there_are_more(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between())
    assert reads.at(NOW).behind
    assert len(reads.samples.asked) == 6
    assert not reads_on(reads, NOW - HOUR).at(NOW).behind


def test_nothing_is_read_once_we_stop(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between())
    reads.at(NOW, stopping=lambda: True)
    assert reads.samples.asked == []


@pytest.mark.parametrize("seed", range(3))
def test_however_it_is_read_the_same_is_written(open_at: Callable[..., Reads], seed: int) -> None:
    """In one go, or in bites, with outages of source and database in between, and from the start again."""
    chance = random.Random(seed)
    level = {name: [chance.choice((0.4, 0.7, 0.8, 0.95, math.nan)) for _ in range(80)] for name in ("a", "b", "c")}

    def shares(node: str, at: float) -> float:
        return level[node][int((at - NOW + 2 * HOUR) // (7 * MINUTE)) % 80]

    since, until = NOW - HOUR, NOW + 4 * HOUR
    whole = reads_on(open_at(shares), since)
    now = since
    while now < until:
        whole.at(now := min(now + HOUR, until))
    bites = reads_on(open_at(shares), since)
    now = since
    while now < until:
        now = min(now + chance.randrange(60, 1500), until)
        bites.samples.fails = ConnectError("away") if chance.random() < 0.2 else None
        if chance.random() < 0.3:
            bites.effect = FailsNow(bites.records.effect(), after=chance.randrange(6))  # type: ignore[assignment]
        bites.at(now)
        bites.effect = bites.records.effect()
    bites.samples.fails = None
    bites.at(until)
    whole.at(until)
    assert bites.everything() == whole.everything()
    assert len(whole.episodes()) > 3
    read_again = whole.everything()
    reads_on(whole, since + HOUR).every(300, since=until, until=until)
    assert whole.everything() == read_again


def test_a_database_that_is_away_is_a_note(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between(("a", NOW, NOW + HOUR)))
    reads.effect = FailsNow(reads.effect, after=0)  # type: ignore[assignment]
    notes = reads.at(NOW + 2 * HOUR).notes
    assert [each.rpartition(": ")[2] for each in notes] == ["the database is away"] * 2


def test_an_episode_of_a_node_that_is_gone_ends_where_it_was_seen_last(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between(("a", NOW, NOW + 5 * HOUR)))
    reads_on(reads, NOW).every(300, since=NOW, until=NOW + HOUR)
    assert reads.spans() == [("a", 0, None)]
    reads.snapshot = cluster([a_node("b")], [])
    reads.at(NOW + HOUR + 300)
    assert reads.spans() == [("a", 0, 55)]


# ---- what counts as hot


def test_the_policys_own_threshold_counts_before_the_pools_and_for_nodes_in_no_pool(
    open_at: Callable[..., Reads],
) -> None:
    nodes = [a_node("a"), a_node("lone", labels={"pool": "other"})]
    shares = hot_between(("a", NOW, NOW + HOUR), ("lone", NOW, NOW + HOUR), hot=0.6)
    effect = {"hotNodeSLO": {"threshold": 55}}
    reads = reads_on(open_at(shares, snapshot=cluster(nodes, []), effect=effect), NOW)
    reads.every(600, since=NOW, until=NOW + 2 * HOUR)
    found = [(each.node, each.pool, each.threshold) for each in reads.episodes()]
    assert found == [("a", "general", 0.55), ("lone", "", 0.55)]
    assert reads.episodes()[1].miss_reason is MissReason.NOT_COVERED


def test_without_any_threshold_a_node_is_never_hot(open_at: Callable[..., Reads]) -> None:
    nodes = [a_node("a"), a_node("lone", labels={"pool": "other"})]
    reads = reads_on(open_at(hot_between(("lone", NOW, NOW + HOUR), hot=1.0), snapshot=cluster(nodes, [])), NOW)
    reads.every(600, since=NOW, until=NOW + 2 * HOUR)
    assert reads.episodes() == []


def test_in_deviation_mode_a_node_is_hot_over_the_mean_of_each_moment(open_at: Callable[..., Reads]) -> None:
    def shares(node: str, at: float) -> float:
        others = 0.2 if at < NOW + 1800 else 0.6  # all others come up: then a isn't special any more
        return 0.7 if node == "a" else others

    thresholds = {"high": 20, "target": 10, "low": 5, "relativeToMean": True, "floor": 50}
    pool = {"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": thresholds}
    reads = reads_on(open_at(shares, pools=[pool]), NOW)
    reads.every(600, since=NOW, until=NOW + 2 * HOUR)
    (found,) = reads.episodes()
    assert (found.node, found.ended_at, found.peak_share) == ("a", NOW + 1800, 0.7)
    assert found.threshold == pytest.approx((0.7 + 0.2 + 0.2) / 3 + 0.2)


@pytest.mark.parametrize(("wanted", "step"), [("0s", 60.0), ("30m", 60.0), ("31m", 300.0), ("1d", 300.0)])
def test_who_has_to_be_hot_for_long_is_looked_at_in_longer_steps(
    open_at: Callable[..., Reads], wanted: str, step: float
) -> None:
    reads = reads_on(open_at(hot_between(), effect={"hotNodeSLO": {"for": wanted}}), NOW)
    reads.at(NOW + 600)
    assert reads.samples.asked[0][2] == step


# ---- sources that fail


def test_a_source_that_fails_is_a_note_and_asked_again(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1800))), NOW)
    reads.samples.fails = ConnectError("Prometheus is away")
    assert reads.at(NOW + HOUR).notes == ("the hot-node SLO is not evaluated: Prometheus is away",)
    reads.samples.fails = None
    assert reads.at(NOW + HOUR + 300).notes == ()
    assert reads.spans() == [("a", 0, 30)]


def test_what_can_not_be_read_for_a_day_is_left_out_and_reported(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between()), NOW)
    reads.samples.fails = ConfigError("effect.hotNodeSLO.query: wrong")
    assert reads.at(NOW + DAY - 1).read_until == NOW - 300
    notes = reads.at(NOW + DAY + 600).notes
    assert reads.effect.slo_evaluated_until() == NOW  # the end of that hour
    assert "can't be read and are skipped" in notes[0]
    assert notes[1].endswith("effect.hotNodeSLO.query: wrong")


def test_a_source_without_samples_of_late_is_waited_for_and_not_for_ever(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between()), NOW)
    reads.samples.unknown_after = NOW - 300
    notes = reads.at(NOW + 600).notes
    assert notes == ("the hot-node SLO query returned no recent samples of this cluster's nodes",)
    assert reads.effect.slo_evaluated_until() == NOW - 300
    reads.at(NOW + 2 * HOUR)
    assert reads.effect.slo_evaluated_until() == NOW + HOUR


def test_a_partial_answer_is_taken_and_reported(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("a", NOW, NOW + 1800))), NOW)
    reads.samples.partial = ("a store is away",)
    assert reads.at(NOW + HOUR).notes == ("the hot-node SLO query returned a partial result: a store is away",)
    assert reads.spans() == [("a", 0, 30)]


def test_without_prometheus_there_is_no_standard_and_that_is_reported(open_at: Callable[..., Reads]) -> None:
    reads = open_at(hot_between())
    pools = NodePools.of(reads.policy.pools, reads.snapshot.nodes)
    found = evaluate_slo(None, reads.effect, reads.snapshot, pools, reads.policy, now=NOW)
    assert found.notes == ("the hot-node SLO is not evaluated: it needs Prometheus",)


# ---- nodes that are removed


def test_a_node_removed_during_an_outage_stays_in_the_denominator(open_at: Callable[..., Reads]) -> None:
    reads = reads_on(open_at(hot_between(("gone", NOW + 600, NOW + 3000), ("a", NOW + 600, NOW + 3000))), NOW)
    report = CycleReport(id="before", cluster="test", trigger=Trigger.PERIODIC, dry_run=False, started_at=NOW - HOUR)
    names = [*reads.snapshot.nodes.names, "gone"]
    report.nodes = [NodeLine(name=name, pool="general", cpu_before=0.4, cpu_planned=None, high=0.75) for name in names]
    report.finished_at = NOW - HOUR
    reads.records.begin(report)
    reads.records.finish(report)
    reads.at(NOW + 2 * HOUR)
    assert reads.spans() == [("a", 10, 50), ("gone", 10, 50)]
    assert {each.pool for each in reads.episodes()} == {"general"}
    # the hours of the pools are of the nodes that are there
    there = len(reads.snapshot.nodes)
    assert {each.nodes for each in reads.effect.hours(NOW, NOW + HOUR) if each.pool == "general"} == {there}
    (row,) = reads.effect.days(int(NOW // DAY), int(NOW // DAY) + 1)
    assert (row.hot, row.discovered) == (2, 0)
