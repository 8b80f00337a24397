"""Forecasts in the database: kept once a day, judged once, pruned by age."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.forecasts import Actuals, ForecastKind, ForecastRecords, StoredForecast, Verdict
from rebalancer.store import SqlForecasts, SqlRecords, open_engine, open_records, upgrade
from rebalancer.store.db.engine import read
from rebalancer.store.retention.pruning import BATCH, BATCHES_BY_ITSELF, FORECASTS_SECONDS, prune_in
from tests.store.builders import CLUSTER, MIDNIGHT, NOW, SteppingClock, a_forecast, build_eviction, build_report
from tests.store.readers import raw_connection
from tests.store.scenarios import ledger_cluster
from tests.store.scenarios.ledger_cluster import Cluster
from tests.store.scenarios.schemas import downgrade, old_rows, up_to

NOTHING = Actuals(
    p95_millicores=math.nan,
    peak_millicores=math.nan,
    peak_at=math.nan,
    departed_peak_share=math.nan,
    counterfactual_peak_millicores=math.nan,
)
CAME = Actuals(
    p95_millicores=2900.5,
    peak_millicores=3100.25,
    peak_at=MIDNIGHT + 36_000.0,
    departed_peak_share=0.125,
    counterfactual_peak_millicores=3300.75,
    verdict=Verdict.FALSE_ALARM,
)


def ahead(node: str = "n1", **fields: Any) -> StoredForecast:
    return a_forecast(node, **{"kind": ForecastKind.AHEAD, "hot_from": MIDNIGHT + 32_000.0, **fields})


@pytest.fixture
def forecasts(records: SqlRecords) -> SqlForecasts:
    return records.forecasts()


@pytest.fixture
def elsewhere(elsewhere_records: SqlRecords) -> SqlForecasts:
    return elsewhere_records.forecasts()


def test_what_was_kept_comes_back_as_it_was(forecasts: ForecastRecords) -> None:
    kept = [
        a_forecast("n1"),
        a_forecast("n2", made_at=MIDNIGHT + 61.0, high=None, pods=(), pool=""),
        ahead("n1", made_at=MIDNIGHT + 62.0),
    ]
    forecasts.keep(kept)
    assert [forecast for _, forecast in forecasts.due(MIDNIGHT + 2 * DAY_SECONDS)] == kept


def test_figures_that_are_not_known_come_back_as_such(forecasts: ForecastRecords) -> None:
    fields = ("peak_millicores", "peak_at", "margin_millicores", "capacity_millicores", "confidence")
    forecasts.keep([a_forecast(**dict.fromkeys(fields, math.nan))])
    [(_, forecast)] = forecasts.due(MIDNIGHT + 2 * DAY_SECONDS)
    assert all(math.isnan(getattr(forecast, name)) for name in fields)


def test_nothing_to_keep_or_to_judge_is_nothing(forecasts: ForecastRecords) -> None:
    forecasts.keep([])
    forecasts.judge([])
    assert forecasts.due(NOW * 2) == forecasts.judged(0.0) == []
    assert forecasts.evicted_pods(0.0, NOW * 2) == {}


@pytest.mark.parametrize(
    ("second", "stays"),
    [
        pytest.param(a_forecast(made_at=MIDNIGHT + DAY_SECONDS - 1), False, id="the same day, later"),
        pytest.param(a_forecast(made_at=MIDNIGHT + DAY_SECONDS), True, id="the next day"),
        pytest.param(a_forecast("n2"), True, id="another node"),
        pytest.param(ahead(), True, id="another kind"),
    ],
)
def test_a_second_one_of_a_kind_node_and_day_is_left_out(
    forecasts: ForecastRecords, second: StoredForecast, *, stays: bool
) -> None:
    first = a_forecast(pool="the first")
    forecasts.keep([first])
    forecasts.keep([second, first])
    found = [forecast for _, forecast in forecasts.due(MIDNIGHT + 3 * DAY_SECONDS)]
    assert found == ([first, second] if stays else [first])


def test_a_second_one_within_one_call_is_left_out_too(forecasts: ForecastRecords) -> None:
    forecasts.keep([a_forecast(), a_forecast(), a_forecast("n2")])
    assert [each.node for _, each in forecasts.due(MIDNIGHT + 2 * DAY_SECONDS)] == ["n1", "n2"]


def test_those_ahead_of_a_peak_count_for_the_day_of_the_peak(forecasts: ForecastRecords) -> None:
    tomorrow = MIDNIGHT + DAY_SECONDS + 3600
    forecasts.keep([ahead(hot_from=tomorrow)])
    forecasts.keep([ahead(hot_from=tomorrow + 60, made_at=MIDNIGHT + DAY_SECONDS + 1)])  # the same peak, seen again
    forecasts.keep([ahead(hot_from=MIDNIGHT + 7200)])
    assert sorted(each.hot_from or 0.0 for _, each in forecasts.due(MIDNIGHT + 3 * DAY_SECONDS)) == [
        MIDNIGHT + 7200,
        tomorrow,
    ]


def test_which_nodes_are_kept_is_read_by_kind_and_day(forecasts: ForecastRecords, elsewhere: ForecastRecords) -> None:
    forecasts.keep([a_forecast("n1"), a_forecast("n2", made_at=MIDNIGHT + DAY_SECONDS), ahead("n3")])
    elsewhere.keep([a_forecast("n4")])
    assert forecasts.kept(ForecastKind.DAILY, MIDNIGHT + 7) == {"n1"}
    assert forecasts.kept(ForecastKind.DAILY, MIDNIGHT + DAY_SECONDS + 7) == {"n2"}
    assert forecasts.kept(ForecastKind.AHEAD, MIDNIGHT) == {"n3"}
    assert forecasts.kept(ForecastKind.DAILY, MIDNIGHT - 1) == frozenset()


def test_one_is_due_when_its_day_is_over_and_until_it_is_judged(forecasts: ForecastRecords) -> None:
    forecasts.keep([a_forecast("late", made_at=MIDNIGHT + 500.0), a_forecast("early", made_at=MIDNIGHT + 100.0)])
    assert forecasts.due(MIDNIGHT + DAY_SECONDS + 99.0) == []
    assert [each.node for _, each in forecasts.due(MIDNIGHT + DAY_SECONDS + 100.0)] == ["early"]
    due = forecasts.due(MIDNIGHT + DAY_SECONDS + 500.0)
    assert [each.node for _, each in due] == ["early", "late"]
    forecasts.judge([(due[0][0], CAME)])
    assert [each.node for _, each in forecasts.due(NOW + 9 * DAY_SECONDS)] == ["late"]


def test_what_came_comes_back_beside_the_forecast(forecasts: ForecastRecords) -> None:
    first, second = a_forecast("n1"), ahead("n2", made_at=MIDNIGHT + 100.0)
    forecasts.keep([first, second, a_forecast("n3")])
    numbers = {each.node: number for number, each in forecasts.due(NOW + 2 * DAY_SECONDS)}
    forecasts.judge([(numbers["n2"], CAME), (numbers["n1"], NOTHING)])

    one, two = forecasts.judged(0.0)

    # which pods it was made of is only needed for judging
    assert (one.forecast, two.forecast, two.actuals) == (replace(first, pods=()), replace(second, pods=()), CAME)
    assert math.isnan(one.actuals.p95_millicores)
    assert math.isnan(one.actuals.peak_at)
    assert one.actuals.verdict is None
    assert [each.forecast.node for each in forecasts.judged(MIDNIGHT + 100.0)] == ["n2"]
    assert forecasts.judged(MIDNIGHT + 101.0) == []


def test_another_clusters_forecasts_are_not_ours(forecasts: ForecastRecords, elsewhere: ForecastRecords) -> None:
    forecasts.keep([a_forecast()])
    elsewhere.keep([a_forecast(pool="theirs")])
    [(number, ours)] = forecasts.due(NOW * 2)
    assert ours.pool == "general"
    elsewhere.judge([(number, CAME)])  # not theirs to judge
    assert forecasts.judged(0.0) == elsewhere.judged(0.0) == []


def test_the_nodes_of_a_large_cluster_are_kept_and_judged(forecasts: ForecastRecords) -> None:
    kept = [a_forecast(f"n{number}") for number in range(5000)]
    forecasts.keep(kept)
    forecasts.keep(kept)
    due = forecasts.due(NOW + 2 * DAY_SECONDS)
    forecasts.judge([(number, CAME) for number, _ in due])
    assert {each.forecast.node for each in forecasts.judged(0.0)} == {each.node for each in kept}


# ---- what we moved


def evict(cluster: Cluster, pod: str, outcome: Outcome = Outcome.EVICTED, **fields: Any) -> int:
    record = cluster.answer(cluster.reserve(pod=pod, **fields), outcome).reserved.record
    assert record is not None
    return int(record)


def test_a_replacement_has_the_lineage_of_all_that_were_in_flight_together(blue: Cluster, clock: SteppingClock) -> None:
    alone, unseen = evict(blue, "alone"), evict(blue, "unseen", service="api")
    clock.sleep(10)
    blue.ledger.landed(alone, at=clock.now(), pod="web-7", uid="w7", node="n2")
    blue.ledger.landed(unseen, at=clock.now())
    clock.sleep(10)
    pair = [evict(blue, "one"), evict(blue, "two")]
    clock.sleep(10)
    for record, uid in zip(pair, ("w8", "w9"), strict=True):
        blue.ledger.landed(record, at=clock.now(), pod=uid, uid=uid, node="n2")
    evict(blue, "in-flight")

    found = blue.ledger.lineages(NOW)
    assert found.keys() == {"w7", "w8", "w9"}
    assert len(found["w7"].uids) == 1
    assert len(found["w8"].uids) == 2
    assert found["w8"] == found["w9"]
    assert found["w7"].uids.isdisjoint(found["w8"].uids)
    assert list(found["w7"].moved.values()) == [NOW]
    assert list(found["w8"].moved.values()) == [NOW + 20]
    assert blue.ledger.lineages(NOW + 1).keys() == {"w8", "w9"}


def test_evicted_pods_come_with_their_replacements(blue: Cluster, clock: SteppingClock) -> None:
    landed, back, gone = (evict(blue, pod) for pod in ("landed", "came-back", "not-replaced"))
    blue.ledger.landed(landed, at=NOW + 30, pod="web-9", uid="u", node="n2")
    blue.ledger.landed(back, at=NOW + 30, pod="web-8", uid="v", node="n1")
    blue.ledger.landed(gone, at=NOW + 30)
    clock.sleep(60)
    evict(blue, "in-flight", Outcome.UNKNOWN, node="n3")
    for outcome in (Outcome.REFUSED, Outcome.FAILED):
        evict(blue, f"stayed-{outcome.value}", outcome)
    blue.reserve(pod="not-answered")

    found = blue.records.forecasts().evicted_pods(NOW - 1, NOW + 61)
    assert {
        node: [(each.full_name, each.replacement, each.at, each.cpu_millicores) for each in evictions]
        for node, evictions in found.items()
    } == {
        "n1": [("shop/landed", "shop/web-9", NOW, 750.5), ("shop/not-replaced", "", NOW, 750.5)],
        "n3": [("shop/in-flight", "", NOW + 60, 750.5)],
    }


def test_only_what_this_cluster_evicted_then_is_read(blue: Cluster, green: Cluster, clock: SteppingClock) -> None:
    evict(blue, "before")
    clock.sleep(100)
    evict(blue, "then", node="n1")
    evict(green, "elsewhere")
    clock.sleep(100)
    evict(blue, "after")
    dry = build_report(cycle="dry", dry_run=True)
    blue.records.begin(dry)
    ledger_cluster.evict(blue.records, dry, build_eviction(pod="dry"))

    found = blue.records.forecasts()

    assert [each.full_name for each in found.evicted_pods(NOW + 100, NOW + 200)["n1"]] == ["shop/then"]
    assert [each.full_name for each in found.evicted_pods(NOW, NOW + 1000)["n1"]] == [
        "shop/before",
        "shop/then",
        "shop/after",
    ]


def test_a_pod_whose_cpu_was_not_known_is_read_as_such(records: SqlRecords) -> None:
    report = build_report()
    records.begin(report)
    ledger_cluster.evict(records, report, build_eviction(cpu=math.nan))
    [moved] = records.forecasts().evicted_pods(NOW - 1, NOW + 1)["n1"]
    assert math.isnan(moved.cpu_millicores)


# ---- for how long


def test_forecasts_are_dropped_after_ninety_days_in_every_cluster(
    engine: Engine, forecasts: ForecastRecords, elsewhere: ForecastRecords, clock: SteppingClock
) -> None:
    at = NOW - FORECASTS_SECONDS
    for of in (forecasts, elsewhere):
        of.keep(
            [a_forecast("judged", made_at=at - 1), a_forecast("old", made_at=at - 1), a_forecast("young", made_at=at)]
        )
    [number] = [number for number, each in forecasts.due(NOW) if each.node == "judged"]
    forecasts.judge([(number, CAME)])
    assert prune_in(engine, clock=clock, dry_run=True).forecasts == 4
    assert len(forecasts.due(NOW)) == 2
    assert prune_in(engine, clock=clock, dry_run=False).forecasts == 4
    assert [each.node for of in (forecasts, elsewhere) for _, each in of.due(NOW)] == ["young", "young"]
    assert forecasts.judged(0.0) == []


def test_how_far_limits_look_back_does_not_matter_to_forecasts(
    engine: Engine, blue: Cluster, forecasts: ForecastRecords, clock: SteppingClock
) -> None:
    blue.ledger.publish_global_limits(digest="d", text="{}", longest_window_seconds=400 * DAY_SECONDS, nodes=3)
    forecasts.keep([a_forecast(made_at=NOW - FORECASTS_SECONDS - 1)])
    assert prune_in(engine, clock=clock, dry_run=False).forecasts == 1


def test_the_ledger_drops_a_bounded_number_of_forecasts_by_itself(
    url: str, blue: Cluster, forecasts: ForecastRecords
) -> None:
    blue.records.ledger_identity()
    forecasts.keep([a_forecast(made_at=NOW - 1)])
    more = BATCH * BATCHES_BY_ITSELF + 7
    numbers, old = old_rows(url, more)
    with raw_connection(url) as connection:
        connection.execute(
            "INSERT INTO forecasts (cluster, kind, node, day, pool, made_at, until, predictor, days_used, pods) "
            f"SELECT 'x', 'daily', 'n', m.i, 'p', {old}, {old}, 'q', 8, '[]' FROM {numbers} AS m"
        )
        blue.ledger.prune_at_times()
        assert connection.execute("SELECT count(*) FROM forecasts").fetchone() == (8,)


# ---- the schema


def test_the_migration_can_be_taken_back_and_made_again(empty_url: str, tmp_path: Path, clock: SteppingClock) -> None:
    """Those after it may refuse to be."""
    scripts = up_to("0005", tmp_path)
    assert upgrade(empty_url, scripts=scripts) == "0005"
    engine = open_engine(empty_url)
    SqlForecasts(engine=engine, cluster=CLUSTER, clock=clock).keep([a_forecast()])
    downgrade(engine, "0004", scripts)
    assert not read(engine, lambda connection: inspect(connection).has_table("forecasts"))
    assert read(engine, lambda connection: inspect(connection).has_table("alert_episodes"))
    engine.dispose()

    upgrade(empty_url)

    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        assert records.forecasts().due(NOW * 2) == []
        records.forecasts().keep([a_forecast()])
        assert len(records.forecasts().due(NOW * 2)) == 1
