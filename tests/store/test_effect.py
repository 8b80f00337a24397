"""What became of it, in the database: assessments, episodes, hours and days come back as they were written."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text

from rebalancer.model.decisions.eviction import Outcome as EvictionOutcome
from rebalancer.model.decisions.plan import PlanScore
from rebalancer.model.errors import ConfigError
from rebalancer.model.reason import BlockedReason, MissReason, Reason
from rebalancer.model.records.effect import (
    Assessment,
    ChangeBreakdown,
    DayRow,
    EffectRecords,
    HotEpisode,
    Outcome,
    PodBefore,
    PoolHour,
    Step,
)
from rebalancer.store import SqlEffect, SqlRecords, open_records, upgrade
from rebalancer.store.db.engine import read
from tests.store.builders import CLUSTER, NOW, SteppingClock, build_eviction, build_report
from tests.store.conftest import opened
from tests.store.readers import raw_connection
from tests.store.scenarios.ledger_cluster import OTHER, Cluster, evict
from tests.store.scenarios.schemas import REVISIONS, downgrade, insert, up_to

HOUR, DAY = 3600.0, 86_400.0
EFFECT_TABLES = {"assessments", "hot_episodes", "pool_hours", "effect_days", "effect_state", "looks"}

ACCOUNT = ChangeBreakdown(
    before=3700.5,
    after=2600.25,
    evicted=1200.0,
    departed=0.0,
    arrived=50.5,
    returned=0.0,
    remaining_change=50.0,
    residual=math.nan,
)


def an_assessment(node: str = "n1", **fields: Any) -> Assessment:
    given: dict[str, Any] = {
        "cycle": "c1",
        "node": node,
        "pool": "general",
        "strategy": "LowNodeUtilization",
        "trigger": "alert",
        "step": Step.SETTLED,
        "last_eviction_at": NOW,
        "due_at": NOW + 900.5,
        "before_share": 0.925,
        "planned_share": 0.625,
        "target": 0.7,
        "high": 0.8,
        "capacity": 4000.0,
        "pods": (
            PodBefore(uid="u1", pod="shop/web-1", amount=1200.0, evicted=True),
            PodBefore(uid="u2", pod="shop/db-0", amount=300.5, evicted=False),
        ),
    }
    return Assessment(**{**given, **fields})


def an_episode(node: str = "n1", **fields: Any) -> HotEpisode:
    given: dict[str, Any] = {
        "node": node,
        "pool": "general",
        "started_at": NOW,
        "ended_at": NOW + 1800.0,
        "peak_share": 0.975,
        "threshold": 0.85,
    }
    return HotEpisode(**{**given, **fields})


def an_hour(hour: int, pool: str = "general", **fields: Any) -> PoolHour:
    given: dict[str, Any] = {
        "pool": pool,
        "hour": hour,
        "nodes": 500,
        "hot_nodes": 2.5,
        "hot_node_minutes": 150.0,
        "cpu_share": 0.55,
        "requested_share": 0.75,
        "share_stddev": 0.125,
        "highest_share": 0.9375,
        "new_pods": 40,
        "new_pods_over_target": 3,
    }
    return PoolHour(**{**given, **fields})


def a_day(day: int, **fields: Any) -> DayRow:
    given: dict[str, Any] = {
        "cluster": CLUSTER,
        "pool": "general",
        "strategy": "LowNodeUtilization",
        "trigger": "periodic",
        "day": day,
        "hot": 9,
        "discovered": 7,
        "evicted_from": 5,
        "cooled": 4,
        "assessed": 5,
        "evictions": 21,
        "relief_planned": 12.5,
        "relief_measured": 11.25,
        "hot_node_minutes": 240.0,
        "prevented": 3,
        "false_alarms": 2,
        "too_late": 1,
        "reasons": {"discovery/stabilizationWindow": 2, "effect/remainingPodsGrew": 1},
    }
    return DayRow(**{**given, **fields})


def known(each: Any) -> Any:
    """Without its row's number."""
    return replace(each, id=0)


@pytest.fixture
def effect(records: SqlRecords) -> EffectRecords:
    return records.effect()


@pytest.fixture
def elsewhere(elsewhere_records: SqlRecords) -> SqlEffect:
    return elsewhere_records.effect()


def test_an_assessment_is_due_when_its_time_has_come_until_it_is_made(effect: EffectRecords) -> None:
    hour = an_assessment(step=Step.HOUR, due_at=NOW + HOUR)
    effect.expect([hour, an_assessment()])
    assert effect.due(NOW + 900.0) == []
    (due,) = effect.due(NOW + 900.5)
    assert known(due) == an_assessment()
    assert due.id
    assert [each.step for each in effect.due(NOW + DAY)] == [Step.SETTLED, Step.HOUR]

    made = replace(
        due,
        assessed_at=NOW + 950.0,
        late=True,
        after_share=0.65,
        breakdown=replace(ACCOUNT, residual=0.25),
        outcome=Outcome.COOLED,
        detail="from 92.5% to 65%, target 70%",
    )
    effect.made([made])
    assert [known(each) for each in effect.due(NOW + DAY)] == [hour]
    (waiting,) = effect.due(NOW + DAY)
    # who stayed was asked for by the account alone
    assert list(effect.assessments(NOW, NOW + 1)) == [replace(made, pods=made.pods[:1]), waiting]


def test_what_is_not_known_comes_back_as_not_known(effect: EffectRecords) -> None:
    blind = an_assessment(
        before_share=math.nan,
        capacity=math.nan,
        pods=(PodBefore(uid="u", pod="a/b", amount=math.nan, evicted=True),),
    )
    effect.expect([blind])
    effect.made([replace(blind, assessed_at=NOW, breakdown=ACCOUNT, outcome=Outcome.UNKNOWN)])
    (back,) = effect.assessments(NOW, NOW + 1)
    assert back.breakdown is not None
    assert [back.before_share, back.capacity, back.pods[0].amount, back.breakdown.residual] == [
        pytest.approx(math.nan, nan_ok=True)
    ] * 4
    assert (back.breakdown.evicted, back.after_share, back.outcome) == (1200.0, None, Outcome.UNKNOWN)
    effect.put_hours([an_hour(5, share_stddev=math.nan)], read_until=NOW)
    assert math.isnan(effect.hours(0.0, DAY)[0].share_stddev)


def test_expecting_the_same_again_replaces_it_until_it_is_made(effect: EffectRecords) -> None:
    effect.expect([an_assessment()])
    effect.expect([an_assessment(due_at=NOW + 1000.0, planned_share=0.5)])
    assert effect.due(NOW + 999.0) == []
    (due,) = effect.due(NOW + 1000.0)
    assert due.planned_share == 0.5
    effect.made([replace(due, assessed_at=NOW + 1001.0, outcome=Outcome.REMAINING_PODS_GREW)])
    effect.expect([an_assessment(planned_share=0.25)])
    (kept,) = effect.assessments(NOW, NOW + 1)
    assert (kept.planned_share, kept.outcome) == (0.5, Outcome.REMAINING_PODS_GREW)


def test_an_assessment_that_is_gone_meanwhile_is_no_error(effect: EffectRecords) -> None:
    effect.made([an_assessment(assessed_at=NOW, outcome=Outcome.COOLED)])
    effect.expect([])
    effect.made([])
    assert effect.assessments(0.0, NOW + DAY) == []


def test_assessments_are_asked_for_by_when_we_acted_and_by_node(effect: EffectRecords) -> None:
    later = an_assessment("n2", cycle="c2", last_eviction_at=NOW + 60.0)
    effect.expect([later, an_assessment(), an_assessment("n2")])
    assert [(each.cycle, each.node) for each in effect.assessments(NOW, NOW + 60.0)] == [("c1", "n1"), ("c1", "n2")]
    assert [known(each) for each in effect.assessments(NOW + 0.5, NOW + 61.0)] == [later]
    assert [each.cycle for each in effect.assessments(0.0, NOW + DAY, node="n2")] == ["c1", "c2"]
    assert effect.assessments(0.0, NOW + DAY, step=Step.HOUR) == []
    assert len(effect.assessments(0.0, NOW + DAY, step=Step.SETTLED)) == 3


def test_what_was_moved_is_what_happened_or_may_have(
    records: SqlRecords, clock: SteppingClock, blue: Cluster, green: Cluster
) -> None:
    report, simulation = build_report(cycle="c1"), build_report(cycle="c2", dry_run=True)
    records.begin(report)
    records.begin(simulation)
    records.planned(simulation, build_eviction())
    for number, outcome in enumerate(EvictionOutcome):
        evict(records, report, build_eviction(node=f"n{number}"), outcome)
        clock.sleep(1)
    blue.answer(blue.reserve(service="db"), EvictionOutcome.EVICTED)
    green.answer(green.reserve(), EvictionOutcome.EVICTED)
    moved = records.effect().moved(0.0, NOW + HOUR)
    assert [(each.service_identity, each.node, each.reserved.cycle, each.reserved.trigger) for each in moved] == [
        ("shop/web", "n1", "c1", "manual"),
        ("shop/web", "n4", "c1", "manual"),
        ("shop/db", "n1", "cycle-of-blue", "manual"),
    ]
    assert [each.node for each in records.effect().moved(NOW + 1, NOW + 4)] == ["n1"]
    assert len(green.records.effect().moved(0.0, NOW + HOUR)) == 1
    evicted = {("shop/web", "n1"): 1, ("shop/web", "n4"): 1, ("shop/db", "n1"): 1}
    assert records.effect().eviction_counts(0.0, NOW + HOUR) == evicted
    assert records.effect().moved(0.0, NOW + HOUR, services=["shop/db"]) == moved[2:]


def test_the_worth_of_plans_is_the_sum_over_the_cycles_that_evicted(records: SqlRecords, effect: EffectRecords) -> None:
    def cycle(name: str, *, at: float, price: float | None, evicts: bool = True, dry_run: bool = False) -> None:
        score = None if price is None else PlanScore(hot_node_minutes=10 * price, price=price)
        report = build_report(cycle=name, dry_run=dry_run, started_at=at, score=score)
        records.begin(report)
        if evicts:
            evict(records, report, build_eviction(), EvictionOutcome.PLANNED if dry_run else EvictionOutcome.EVICTED)
        records.finish(report)

    cycle("before", at=NOW - 1, price=1.0)
    cycle("first", at=NOW, price=2.0)
    cycle("nothing", at=NOW + 1, price=None, evicts=False)
    cycle("proposed", at=NOW + 1.5, price=32.0, evicts=False)
    cycle("dry", at=NOW + 2, price=4.0, dry_run=True)
    cycle("second", at=NOW + 3, price=8.0)
    cycle("after", at=NOW + 4, price=16.0)
    assert effect.worth_of_plans(NOW, NOW + 4) == PlanScore(hot_node_minutes=100.0, price=10.0)
    assert effect.worth_of_plans(NOW + 1, NOW + 3) is None


def test_an_episode_is_written_once_and_grows(effect: EffectRecords) -> None:
    effect.put_episodes([an_episode(ended_at=None), an_episode("n2")])
    full = an_episode(
        discovered_at=NOW + 300.0,
        discovery_trigger="periodic",
        strategy="LowNodeUtilization",
        evictions=3,
        measured_peak_share=0.9125,
        miss_reason=MissReason.STABILIZATION_WINDOW,
        blocked_reason=BlockedReason.GUARDS,
        codes={Reason.LOCAL_VOLUME: 4, Reason.TOO_YOUNG: 1},
        detail="4 pods keep data on the node\x00",
        cooled=False,
    )
    effect.put_episodes([full])
    one, two = effect.episodes(NOW, NOW + 1)
    assert known(one) == replace(full, detail="4 pods keep data on the node")
    assert known(two) == an_episode("n2")
    assert one.id != two.id
    # nothing that was known is left standing when it turns out otherwise
    effect.put_episodes([an_episode()])
    assert known(effect.episodes(NOW, NOW + 1, node="n1")[0]) == an_episode()


def test_an_episode_is_known_by_its_start_to_the_microsecond(effect: EffectRecords) -> None:
    effect.put_episodes([an_episode(started_at=NOW + 0.000_001, ended_at=None)])
    effect.put_episodes([an_episode(started_at=NOW + 0.000_002)])
    effect.put_episodes([an_episode(started_at=NOW + 0.000_001, peak_share=0.5, ended_at=None)])
    assert [(each.peak_share, each.ended_at) for each in effect.episodes(NOW, NOW + 1)] == [
        (0.5, None),
        (0.975, NOW + 1800.0),
    ]


def test_episodes_are_those_that_were_hot_at_any_time_of_the_span(effect: EffectRecords) -> None:
    effect.put_episodes(
        [
            an_episode("over", started_at=NOW - 900.0, ended_at=NOW - 1.0),
            an_episode("from-before", started_at=NOW - 600.0, ended_at=NOW + 1.0),
            an_episode("open", started_at=NOW - 700.0, ended_at=None),
            an_episode("within", started_at=NOW + 10.0, ended_at=NOW + 20.0),
            an_episode("to-come", started_at=NOW + 60.0, ended_at=None),
        ]
    )
    assert [each.node for each in effect.episodes(NOW, NOW + 60.0)] == ["open", "from-before", "within"]
    assert [each.node for each in effect.episodes(NOW, NOW + 60.0, node="within")] == ["within"]


def test_hours_are_replaced_and_asked_for_by_what_the_span_touches(effect: EffectRecords) -> None:
    assert effect.slo_evaluated_until() is None
    effect.put_hours([an_hour(11), an_hour(10, "b"), an_hour(10)], read_until=12 * HOUR)
    effect.put_hours([an_hour(11, hot_nodes=4.0)], read_until=12.5 * HOUR)
    assert effect.slo_evaluated_until() == 12.5 * HOUR
    assert effect.hours(0.0, DAY) == [an_hour(10, "b"), an_hour(10), an_hour(11, hot_nodes=4.0)]
    assert [each.hour for each in effect.hours(10.5 * HOUR, 11 * HOUR)] == [10, 10]
    assert [each.hour for each in effect.hours(11 * HOUR, 11 * HOUR + 1)] == [11]
    # nothing was hot: that it was looked at is kept all the same
    effect.put_hours([], read_until=13 * HOUR)
    assert effect.slo_evaluated_until() == 13 * HOUR


def test_a_days_counts_are_replaced_by_pool_strategy_trigger_and_day(effect: EffectRecords) -> None:
    missed = a_day(20, strategy="", trigger="", discovered=0, reasons=None)
    effect.roll_up([a_day(21), a_day(20), missed, a_day(20, trigger="alert")])
    effect.roll_up([a_day(20, cooled=0, reasons={})])
    assert effect.days(20, 21) == [missed, a_day(20, trigger="alert"), a_day(20, cooled=0, reasons={})]
    assert effect.days(21, 30) == [a_day(21)]
    effect.roll_up([])


def test_a_day_of_another_cluster_is_not_ours_to_write(effect: EffectRecords) -> None:
    with pytest.raises(ValueError, match="a day of green among those of blue"):
        effect.roll_up([a_day(20), a_day(20, cluster=OTHER)])
    assert effect.days(0, 100) == []


def test_clusters_that_share_a_database_have_their_own(effect: EffectRecords, elsewhere: SqlEffect) -> None:
    for each, share in ((effect, 0.5), (elsewhere, 0.25)):
        each.expect([an_assessment(cycle=f"c-{share}", planned_share=share)])
        each.put_episodes([an_episode(peak_share=share)])
        each.put_hours([an_hour(10, cpu_share=share)], read_until=share * DAY)
    effect.roll_up([a_day(20)])
    elsewhere.roll_up([a_day(20, cluster=OTHER, hot=1)])
    for each, share in ((effect, 0.5), (elsewhere, 0.25)):
        assert [row.planned_share for row in each.due(NOW + DAY)] == [share]
        assert [row.planned_share for row in each.assessments(NOW, NOW + 1)] == [share]
        assert [row.peak_share for row in each.episodes(NOW, NOW + 1)] == [share]
        assert [row.cpu_share for row in each.hours(0.0, DAY)] == [share]
        assert each.slo_evaluated_until() == share * DAY
    assert [(row.cluster, row.hot) for row in effect.days(0, 100)] == [(CLUSTER, 9)]
    assert [(row.cluster, row.hot) for row in effect.days(0, 100, clusters=[OTHER, CLUSTER])] == [
        (CLUSTER, 9),
        (OTHER, 1),
    ]
    assert effect.days(0, 100, clusters=[]) == []
    # and none makes another's assessment
    (theirs,) = elsewhere.due(NOW + DAY)
    effect.made([replace(theirs, assessed_at=NOW, outcome=Outcome.COOLED)])
    assert len(elsewhere.due(NOW + DAY)) == 1


def test_how_long_details_are_kept_is_apart_from_how_far_the_standard_was_read(
    records: SqlRecords, elsewhere: SqlEffect, blue: Cluster
) -> None:
    effect = records.effect()
    effect.put_hours([], read_until=NOW)
    assert effect.keeps_details() is None
    blue.ledger.prune_at_times(keep_details=30 * DAY)
    assert (effect.keeps_details(), effect.slo_evaluated_until()) == (30 * DAY, NOW)
    assert (elsewhere.keeps_details(), elsewhere.slo_evaluated_until()) == (None, None)


def test_many_rows_go_in_and_come_back(effect: EffectRecords) -> None:
    episodes = [an_episode(f"n{number}", started_at=NOW + number) for number in range(3000)]
    effect.put_episodes(episodes)
    effect.put_episodes(episodes)
    assert [known(each) for each in effect.episodes(NOW, NOW + DAY)] == episodes


def test_a_database_without_the_tables_says_what_to_run(url: str, effect: EffectRecords) -> None:
    with raw_connection(url) as connection:
        connection.execute("DROP TABLE hot_episodes")
    with pytest.raises(ConfigError, match=r"hot_episodes.*run `rebalancer db upgrade`"):
        effect.put_episodes([an_episode()])


OLD = "'2025-10-09 08:53:20.250000'"
ROWS_OF_0001 = (
    f"INSERT INTO cycles (id, cluster, trigger, dry_run, started_at, version, notes) "
    f"VALUES ('c1', '{CLUSTER}', 'alert', false, {OLD}, '0.1', '[]')",
    "INSERT INTO node_lines (cycle, node, pool, cpu_before, cpu_planned, hot) "
    "VALUES ('c1', 'n1', 'general', 0.9, 0.6, true)",
    "INSERT INTO findings (cycle, node, pool, strategy, cpu_share, high, target, reason) "
    "VALUES ('c1', 'n1', 'general', 'LowNodeUtilization', 0.9, 0.8, 0.7, 'hot')",
    f"INSERT INTO evictions (cycle, cluster, pool, node, namespace, pod, uid, service, service_kind, strategy, "
    f"landings, reason, outcome, detail, dry_run, planned_at) VALUES ('c1', '{CLUSTER}', 'general', 'n1', 'shop', "
    f"'web-1', 'u', 'shop/web', 'Deployment', 'LowNodeUtilization', '[]', 'r', 'evicted', '', false, {OLD})",
    "INSERT INTO refusals (cycle, node, code, count, examples) VALUES ('c1', 'n1', 'TooYoung', 2, "
    '\'[{"namespace": "shop", "pod": "web-2", "message": "too young"}]\')',
)


def test_what_the_first_version_wrote_is_kept_and_seen(empty_url: str, tmp_path: Path, clock: SteppingClock) -> None:
    upgrade(empty_url, scripts=up_to("0001", tmp_path))
    with opened(empty_url) as engine:
        insert(engine, ROWS_OF_0001)
    assert upgrade(empty_url) == REVISIONS[-1]
    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        (seen,) = records.effect().node_observations(["n1"], NOW, NOW + 1)["n1"]
        assert (seen.finding, seen.share, seen.high, seen.evictions) == ("LowNodeUtilization", 0.9, None, 1)
        assert (seen.refusals, seen.examples) == ({Reason.TOO_YOUNG: 2}, ("shop/web-2: too young",))
        records.effect().expect([an_assessment()])


def test_taking_the_tables_away_keeps_everything_else(url: str, engine: Engine, effect: EffectRecords) -> None:
    downgrade(engine, "0006")
    insert(engine, ROWS_OF_0001)
    before = read(engine, lambda connection: set(inspect(connection).get_table_names()))
    assert upgrade(url) == REVISIONS[-1]
    effect.expect([an_assessment()])
    downgrade(engine, "0005")
    after = read(engine, lambda connection: set(inspect(connection).get_table_names()))
    assert before - after == EFFECT_TABLES
    columns = read(engine, lambda connection: {each["name"] for each in inspect(connection).get_columns("node_lines")})
    assert "high" not in columns
    rows = read(engine, lambda connection: connection.execute(text("SELECT cycle, cpu_before FROM node_lines")).all())
    assert [tuple(row) for row in rows] == [("c1", 0.9)]
    assert upgrade(url) == REVISIONS[-1]
    assert effect.due(NOW + DAY) == []
