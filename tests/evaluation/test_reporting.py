"""What a report is made of is read from the database as it was written."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.effect.report import Report, make_report
from rebalancer.evaluation.reporting import gather, sources_of
from rebalancer.model.decisions.eviction import Outcome as EvictionOutcome
from rebalancer.model.decisions.plan import PlanScore
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.effect import Rate, Step
from rebalancer.store import SqlEffect, open_engine, open_records, upgrade
from rebalancer.store.retention.details import keep_for
from tests.builders import a_policy, set_fields
from tests.effect.builders import an_episode, an_hour
from tests.evaluation.builders import ACCOUNT, DAY, HOUR, SINCE, UNTIL, fill
from tests.real.servers.postgres import PostgresServer
from tests.store.builders import SteppingClock, build_eviction, build_report
from tests.store.scenarios.ledger_cluster import evict

Gather = Callable[..., Report]


on_both = pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with the newest schema: SQLite, or what the test says."""
    if getattr(request, "param", "sqlite") == "sqlite":
        upgrade(f"sqlite:///{tmp_path / 'rebalancer.db'}")
        yield f"sqlite:///{tmp_path / 'rebalancer.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    made = server.create_database("reporting")
    try:
        upgrade(made)
        yield made
    finally:
        server.drop_database("reporting")


@pytest.fixture
def report(url: str) -> Gather:
    """Gathers with a policy of the cluster `test`; what isn't said is the recorded week."""

    def make(*, all_clusters: bool = False, policy: dict[str, Any] | None = None, **changes: Any) -> Report:
        with open_records(url=url, cluster="test", clock=SteppingClock(UNTIL)) as records:
            sources = sources_of(records, a_policy(**policy or {}), all_clusters=all_clusters)
            asked = {"since": SINCE, "until": UNTIL, "by": (), "now": UNTIL} | changes
            return gather(sources, **asked)

    return make


@on_both
def test_the_rates_of_a_week_are_those_that_were_counted(url: str, report: Gather) -> None:
    fill(url)
    found = report(by=("pool", "trigger"))
    assert found.total is not None
    assert (found.total.discovery, found.total.eviction) == (Rate(part=3, whole=4), Rate(part=2, whole=3))
    assert found.total.effectiveness == Rate(part=1, whole=2)
    assert (found.total.counts.evictions, found.total.counts.hot_node_minutes) == (3, 225.0)
    assert (found.total.counts.prevented, found.total.counts.false_alarms) == (1, 1)
    assert [{name: line.key(name) for name in found.by} for line in found.lines] == [
        {"pool": "general", "trigger": trigger} for trigger in ("", "alert", "forecast", "periodic")
    ]
    assert [(each.key, each.rate.part, each.example) for each in found.reasons] == [
        ("discovery/belowThreshold", 1, "n3: at most 71%"),
        ("eviction/limits", 1, "n2: nothing evicted: limits were used up"),
        ("effect/replacementsReturned", 1, "n1: 78% to 80%"),
    ]


@on_both
def test_nodes_services_and_the_account_come_from_the_details(url: str, report: Gather) -> None:
    fill(url)
    found = report()
    assert [(each.node, each.episodes, each.hot_minutes) for each in found.hottest] == [
        ("n1", 2, 150.0),
        ("n3", 1, 45.0),
        ("n2", 1, 30.0),
    ]
    assert [(each.node, each.evictions, each.ineffective_evictions) for each in found.ineffective] == [("n1", 3, 1)]
    [service] = found.services
    assert (service.service, service.evictions, service.counts.triggers) == ("shop/web", 3, {"alert": 3})
    assert service.effective == Rate(part=2, whole=3)
    assert found.breakdown is not None
    assert (found.breakdown.evicted, found.breakdown.arrived) == (2 * ACCOUNT.evicted, 2 * ACCOUNT.arrived)


def test_the_worth_of_the_plans_is_that_of_all_clusters_that_are_reported(url: str, report: Gather) -> None:
    fill(url)
    fill(url, "other")
    assert report().plans is None
    for cluster, price in (("test", 2.0), ("other", 3.0)):
        with open_records(url=url, cluster=cluster, clock=SteppingClock(UNTIL)) as records:
            score = PlanScore(hot_node_minutes=10 * price, price=price)
            cycle = replace(build_report(cycle=f"of-{cluster}", started_at=SINCE + HOUR, score=score), cluster=cluster)
            records.begin(cycle)
            evict(records, cycle, build_eviction(cluster=cluster))
            records.finish(cycle)
    assert report().plans == PlanScore(hot_node_minutes=20.0, price=2.0)
    assert report(all_clusters=True).plans == PlanScore(hot_node_minutes=50.0, price=5.0)
    assert report(since=SINCE + 2 * HOUR).plans is None


def test_what_is_outside_of_the_time_is_left_out(url: str, report: Gather) -> None:
    fill(url)
    second_day = report(since=SINCE + DAY_SECONDS, until=SINCE + 2 * DAY_SECONDS)
    assert second_day.total is not None
    assert second_day.total.counts.hot == 2
    assert [each.node for each in second_day.hottest] == ["n1", "n2"]
    assert [each.evictions for each in second_day.services] == [1]
    before = report(since=SINCE - 3 * DAY_SECONDS, until=SINCE)
    assert (before.total, before.hottest, before.services, before.breakdown) == (None, (), (), None)


def test_nothing_is_reported_of_the_time_to_come(url: str, report: Gather) -> None:
    """A node that is still hot has been so until now, not until the end of the time that was asked for."""
    with open_records(url=url, cluster="test", clock=SteppingClock(UNTIL)) as records:
        records.effect().put_episodes([an_episode(start=UNTIL - 2 * HOUR, minutes=None)])
    found = report(until=UNTIL + 30 * DAY_SECONDS)
    assert found.until == UNTIL
    assert [each.hot_minutes for each in found.hottest] == [120.0]


def test_a_week_is_compared_with_the_one_before_beside_pools_that_were_left_alone(url: str, report: Gather) -> None:
    fill(url)
    comparison = report().comparison
    assert comparison is not None
    assert (comparison.matched_days, comparison.sufficient_data) == (7, True)
    # per node and day, of ten nodes
    assert (comparison.before, comparison.after) == (pytest.approx(72.0), pytest.approx(28.8))
    assert comparison.control is not None
    assert comparison.control.median == 0.0
    assert comparison.net_change is not None
    assert comparison.net_change.median == pytest.approx(-43.2)


def test_without_an_eviction_nothing_is_compared(url: str, report: Gather) -> None:
    fill(url)
    assert report(since=SINCE + 3 * DAY_SECONDS).comparison is None


def test_evictions_before_as_well_are_named(url: str, report: Gather) -> None:
    """Then the comparison tells a change of what we do, not what we do."""
    fill(url)
    message = "3 pods were also evicted before"
    assert not any(message in note for note in report().notes)
    with open_records(url=url, cluster="test", clock=SteppingClock(UNTIL)) as records:
        effect = records.effect()
        effect.put_hours([an_hour(hour) for hour in range((DAY + 7) * 24, (DAY + 14) * 24)], read_until=UNTIL)
        later = [row for row in effect.days(DAY, DAY + 1) if row.evictions]
        effect.roll_up([replace(row, day=DAY + 8) for row in later])
    next_week = report(since=UNTIL, until=UNTIL + 7 * DAY_SECONDS, now=UNTIL + 7 * DAY_SECONDS)
    assert next_week.comparison is not None
    assert any(message in note for note in next_week.notes)


def test_a_declared_event_is_named_beside_the_comparison(url: str, report: Gather) -> None:
    pool = {"selector": {}, "thresholds": {"high": 75, "target": 65, "low": 50}}
    event = {"name": "sale", "from": "2024-10-05T00:00:00Z", "to": "2024-10-06T00:00:00Z", "uplift": 30}
    events = [event, event | {"name": "ours", "pools": ["general"]}, event | {"name": "theirs", "pools": ["batch"]}]
    policy = {"pools": [pool | {"name": "general"}, pool | {"name": "batch"}], "forecast": {"events": events}}
    for cluster in ("test", "other"):  # alone, and beside another one
        fill(url, cluster)
        comparison = report(policy=policy, all_clusters=True).comparison
        assert comparison is not None
        # batch was left alone
        assert comparison.confounders == ("declared event sale was after", "declared event ours was after")


def test_an_event_of_ours_is_none_of_another_clusters(url: str, report: Gather) -> None:
    fill(url, "other")
    event = {"name": "sale", "from": "2024-10-05T00:00:00Z", "to": "2024-10-06T00:00:00Z", "uplift": 30}
    for own in ([], [an_hour(DAY * 24)]):
        with open_records(url=url, cluster="test", clock=SteppingClock(UNTIL)) as records:
            records.effect().put_hours(own, read_until=UNTIL)
        comparison = report(policy={"forecast": {"events": [event]}}, all_clusters=True).comparison
        assert comparison is not None
        assert comparison.confounders == ()


@on_both
def test_forecasts_are_reported_by_pool_with_their_drift(url: str, report: Gather) -> None:
    fill(url)
    everything, general = report().accuracy
    assert (everything.pool, general.pool) == (None, "general")
    # three days too high by 100 of 4000, three too low by 300; 2400 was called hot each day, 2300 was
    assert (general.forecasts, general.mae, general.coverage) == (72, pytest.approx(0.05), 1.0)
    assert (general.hot_recall, general.hot_precision, general.peak_hour_error) == (1.0, 0.5, 1.5)
    drift = "the error of the last 3 days is 7.5% of capacity, 2.5% before"
    assert (everything.drift, general.drift) == (drift, drift)
    assert f"forecasts of pool general: {drift}" in report().notes
    assert report(until=UNTIL - 4 * DAY_SECONDS).accuracy[0].drift == ""


def test_too_few_forecasts_tell_nothing(url: str, report: Gather) -> None:
    fill(url)
    everything, _ = report(since=UNTIL - 2 * DAY_SECONDS, until=UNTIL).accuracy
    assert (everything.forecasts, everything.mae, everything.peak_hour_error) == (12, None, None)


def test_details_that_are_not_kept_any_more_are_missed_in_a_note(url: str, report: Gather) -> None:
    fill(url, details=False)
    short = "older details are not kept"
    reported = report(now=UNTIL + 40 * DAY_SECONDS)
    assert reported.total is not None
    assert reported.total.counts.hot == 4
    assert reported.hottest == ()
    assert any(short in note for note in reported.notes)
    assert not any(short in note for note in report().notes)
    longer = {"effect": {"detailRetention": "60d"}}
    assert not any(short in note for note in report(now=UNTIL + 40 * DAY_SECONDS, policy=longer).notes)


@on_both
def test_clusters_that_share_a_database_are_reported_apart_or_together(url: str, report: Gather) -> None:
    fill(url)
    fill(url, "other")
    alone = report()
    assert alone.total is not None
    assert alone.total.counts.hot == 4

    both = report(all_clusters=True, by=("cluster",))
    assert [(line.cluster, line.counts.hot) for line in both.lines] == [("other", 4), ("test", 4)]
    assert {each.pool for each in both.pools} == {
        *("other/general", "other/batch", "test/general", "test/batch"),
        None,
    }
    assert [each.node for each in both.hottest][:2] == ["other/n1", "test/n1"]
    [service] = both.services
    assert (service.evictions, service.nodes, service.effective) == (6, 2, Rate(part=4, whole=6))
    assert [each.pool for each in both.accuracy] == [None, "other/general", "test/general"]
    assert both.accuracy[0].forecasts == 144
    assert both.comparison is not None
    assert both.comparison.net_change is not None


def test_the_shortest_memory_of_all_clusters_is_reported(url: str, report: Gather) -> None:
    fill(url)
    fill(url, "other")
    engine = open_engine(url)
    keep_for(engine, "other", 5 * DAY_SECONDS)
    engine.dispose()
    short = "older details are not kept"
    assert any(short in note for note in report(all_clusters=True).notes)
    assert not any(short in note for note in report().notes)


@on_both
def test_an_empty_database_tells_nothing(report: Gather) -> None:
    for every in (False, True):
        found = report(all_clusters=every)
        assert (found.total, found.lines, found.pools, found.accuracy, found.comparison) == (None, (), (), (), None)


@on_both
def test_a_report_reads_the_evictions_of_the_services_that_it_shows_and_one_assessment_of_each_node(
    url: str, report: Gather, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url)
    with open_records(url=url, cluster="test", clock=SteppingClock(SINCE + HOUR)) as records:
        cycle = build_report(cycle="many", started_at=SINCE + HOUR)
        records.begin(cycle)
        for number in range(60):  # of 16 services
            name = f"s{math.isqrt(4 * number):02}"
            eviction = build_eviction(pod=f"{name}-{number}", service=name, node=f"n{number}")
            set_fields(eviction, record=records.planned(cycle, eviction))
            set_fields(eviction, outcome=EvictionOutcome.EVICTED)
            records.outcome(eviction)
        everything, settled = records.effect().moved(SINCE, UNTIL), records.effect().assessments(SINCE, UNTIL)
    read: dict[str, int] = {}

    def counts(name: str) -> None:
        reads = getattr(SqlEffect, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            found = reads(*arguments, **named)
            read[name] = read.get(name, 0) + len(found)
            return found

        monkeypatch.setattr(SqlEffect, name, wrapped)

    counts("moved")
    counts("assessments")
    shown = report().services
    most = make_report(since=SINCE, until=UNTIL, by=(), days=(), moved=everything, assessments=settled).services
    assert shown == most
    assert len(shown) == 10
    assert read == {
        "moved": sum(each.evictions for each in shown),
        "assessments": sum(each.step is Step.SETTLED for each in settled),
    }
    assert read["moved"] < len(everything)
