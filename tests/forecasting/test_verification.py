"""Forecasts written down with a real database, and judged by a history of our own making."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from rebalancer.forecast.peaks.expected_peaks import NodeForecasts, forecast_nodes
from rebalancer.forecasting.verification import (
    IN_TIME_SECONDS,
    record_acted_forecasts,
    record_daily_forecasts,
    verify_due,
)
from rebalancer.model.cluster.pods import RUNNING, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock, History
from rebalancer.model.records.forecasts import ForecastKind, StoredForecast, Verdict
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.store import SqlLedger, SqlRecords, open_records, upgrade
from tests.builders import a_node, a_pod, a_policy, set_fields
from tests.forecast.builders import MIDNIGHT, TODAY, flat, history, world
from tests.store.builders import build_eviction, build_report

TOMORROW = MIDNIGHT + DAY_SECONDS
HOUR = 3600.0
PAST = {"shop/web-1": flat(1000.0), "shop/web-2": flat(500.0), "shop/db-1": flat(2000.0)}
"""Eight days in which nothing changed."""
NODES = {"n1": flat(1600.0), "n2": flat(2000.0)}


class StandingClock:
    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock(MIDNIGHT)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(url)
    return url


@pytest.fixture
def records(url: str, clock: StandingClock) -> Iterator[SqlRecords]:
    with open_records(url=url, cluster="test", clock=clock) as opened:
        yield opened


def a_world(*, taken: float = MIDNIGHT, gone: Sequence[str] = (), **fields: Any) -> ClusterSnapshot:
    """web-1, web-2 and an agent on n1, db-1 on n2, a node n3 without history; all of 4 CPU."""
    pods = [
        a_pod("web-1", "n1", owner="web"),
        a_pod("web-2", "n1", owner="web"),
        a_pod("db-1", "n2", owner="db"),
    ]
    pods = [pod for pod in pods if pod.name not in gone]
    made = world([a_node(name, cpu=4000.0, **fields) for name in ("n1", "n2", "n3")], pods)
    uids = [f"{pod.name}-0000-1111-2222" for pod in pods]
    return replace(made, taken=taken, pods=replace(made.pods, uids=uids))


def seen_ahead(
    snapshot: ClusterSnapshot, policy: RebalancerPolicy, now: float, past: History | None = None
) -> NodeForecasts:
    return forecast_nodes(
        past or history(PAST, NODES),
        snapshot,
        policy=policy.forecast,
        pool_of=NodePools.of(policy.pools, snapshot.nodes).of_node,
        pools=[pool.name for pool in policy.pools],
        now=now,
    )


def keep(
    records: SqlRecords,
    now: float = MIDNIGHT + 10.0,
    *,
    snapshot: ClusterSnapshot | None = None,
    policy: RebalancerPolicy | None = None,
    past: History | None = None,
    peaks: bool = True,
) -> tuple[str, ...]:
    snapshot, policy = snapshot or a_world(), policy or a_policy()
    node_forecasts = seen_ahead(snapshot, policy, now, past)
    laid = node_forecasts.peaks(snapshot, now=now) if peaks else None
    return record_daily_forecasts(
        records.forecasts(), node_forecasts.forecasts, snapshot, policy=policy, peaks=laid, now=now
    )


def ahead(records: SqlRecords, hot_from: Mapping[str, float], now: float = MIDNIGHT + 10.0) -> tuple[str, ...]:
    snapshot, policy = a_world(), a_policy()
    node_forecasts = seen_ahead(snapshot, policy, now)
    return record_acted_forecasts(
        records.forecasts(),
        node_forecasts.forecasts,
        snapshot,
        policy=policy,
        peaks=node_forecasts.peaks(snapshot, now=now),
        hot_from=hot_from,
        now=now,
    )


def kept(records: SqlRecords) -> list[StoredForecast]:
    return [forecast for _, forecast in records.forecasts().due(MIDNIGHT + 99 * DAY_SECONDS)]


# ---- keeping


def test_each_nodes_first_forecast_of_a_day_is_kept_with_all_that_it_says(records: SqlRecords) -> None:
    now = MIDNIGHT + 10.0
    assert keep(records, now) == ()
    first, second = kept(records)
    assert (first.kind, first.node, first.pool) == (ForecastKind.DAILY, "n1", "general")
    assert (first.made_at, first.until) == (now, now + DAY_SECONDS)
    # without changes there is no margin: 1000 and 500, and 100 that is no pod's
    assert (first.peak_millicores, first.margin_millicores) == pytest.approx((1600.0, 0.0))
    assert (first.capacity_millicores, first.high, first.days_used, first.confidence) == (4000.0, 0.75, 8, 1.0)
    assert first.predictor == "combined"
    assert first.hot_from is None
    assert first.pods == (("web-1-00", 0.625), ("web-2-00", 0.3125))
    assert (second.node, second.pods) == ("n2", (("db-1-000", 1.0),))


def test_later_ones_of_the_same_day_are_not(records: SqlRecords) -> None:
    keep(records, MIDNIGHT + 10.0)
    keep(records, MIDNIGHT + 900.0, past=history({**PAST, "shop/web-1": flat(1500.0)}, NODES))
    assert [(each.node, each.made_at) for each in kept(records)] == [("n1", MIDNIGHT + 10), ("n2", MIDNIGHT + 10)]
    keep(records, TOMORROW + 5.0)
    assert [each.made_at for each in kept(records)[2:]] == [TOMORROW + 5, TOMORROW + 5]


def test_a_node_of_which_nothing_is_known_is_kept_once_something_is(records: SqlRecords) -> None:
    keep(records, MIDNIGHT + 10.0)
    assert [each.node for each in kept(records)] == ["n1", "n2"]
    keep(records, MIDNIGHT + HOUR, past=history(PAST, {**NODES, "n3": flat(300.0)}))
    assert [(each.node, each.made_at) for each in kept(records)][2:] == [("n3", MIDNIGHT + HOUR)]


@pytest.mark.parametrize(
    ("fields", "pool", "high"),
    [
        ({"thresholds": {"high": 60, "target": 50, "low": 40}}, "general", 0.6),
        ({"thresholds": {"high": 10, "target": 5, "low": 5, "relativeToMean": True, "floor": 40}}, "general", None),
        ({"selector": {"matchLabels": {"pool": "another"}}}, "", None),
    ],
    ids=["a fixed mark", "marks relative to the mean", "a node in no pool"],
)
def test_high_is_the_pools_where_it_is_fixed(
    records: SqlRecords, fields: dict[str, Any], pool: str, high: float | None
) -> None:
    [one] = a_policy().model_dump(by_alias=True, exclude_unset=True)["pools"]
    keep(records, policy=a_policy(pools=[{**one, **fields}]))
    assert [(each.pool, each.high) for each in kept(records)] == [(pool, high)] * 2


def test_without_peaks_the_pods_are_not_known(records: SqlRecords) -> None:
    keep(records, peaks=False)
    assert [each.pods for each in kept(records)] == [(), ()]


@pytest.mark.parametrize(
    ("web_2", "node", "pods"),
    [(1500.0, 2500.0, ["web-2-00", "web-1-00"]), (1.0, 1600.0, ["web-1-00"])],
    ids=["the largest part first", "next to nothing is not written down"],
)
def test_the_pods_that_make_a_peak_are_kept(records: SqlRecords, web_2: float, node: float, pods: list[str]) -> None:
    keep(records, past=history({**PAST, "shop/web-2": flat(web_2)}, {**NODES, "n1": flat(node)}))
    shares = dict(kept(records)[0].pods)
    assert list(shares) == pods
    assert web_2 < 1000.0 or shares == {"web-2-00": 0.6, "web-1-00": 0.4}


def test_those_that_a_cycle_is_started_for_are_kept_beside(records: SqlRecords) -> None:
    keep(records)
    assert ahead(records, {"n2": MIDNIGHT + 9 * HOUR}) == ()
    assert ahead(records, {"n2": MIDNIGHT + 10 * HOUR}, now=MIDNIGHT + HOUR) == ()  # the same peak, seen again
    assert ahead(records, {}) == ()
    found = [each for each in kept(records) if each.kind is ForecastKind.AHEAD]
    assert [(each.node, each.hot_from, each.until) for each in found] == [
        ("n2", MIDNIGHT + 9 * HOUR, MIDNIGHT + 10 + DAY_SECONDS)
    ]


# ---- judging


def days_after(nodes: Mapping[str, float | np.ndarray], pods: Mapping[str, float] | None = None) -> History:
    """The day of the forecasts and the next one, on which an hour is over."""
    pods = pods or {}

    def grid(series: Mapping[str, float | np.ndarray]) -> np.ndarray:
        rows = [np.broadcast_to(np.asarray(level, dtype=np.float32), SLOTS) for level in series.values()]
        return np.array(rows, dtype=np.float32).reshape(-1, SLOTS)

    blocks = [
        DayBlock(
            day=TODAY + ahead,
            nodes=tuple(nodes),
            node_millicores=grid(nodes),
            pods=tuple(pods),
            pod_millicores=grid(pods),
            complete=ahead == 0,
            filled=SLOTS if ahead == 0 else 12,
        )
        for ahead in (0, 1)
    ]
    return History(days=blocks)


def test_a_day_later_what_came_stands_beside_the_forecast(records: SqlRecords, clock: StandingClock) -> None:
    keep(records)
    now = clock.at = TOMORROW + 900.0
    forecasts = records.forecasts()
    past = days_after({"n1": 1700.0, "n2": 1900.0})
    judging = verify_due(forecasts, past, a_world(taken=now, gone=["web-2"]), now=now)
    assert judging.notes == ()
    judged = forecasts.judged(0.0)
    assert [each.forecast.node for each in judging.judged] == [each.forecast.node for each in judged] == ["n1", "n2"]
    assert [each.actuals for each in judged] == [each.actuals for each in judging.judged]
    assert [each.actuals.p95_millicores for each in judged] == [1700.0, 1900.0]
    assert [each.actuals.departed_peak_share for each in judged] == [0.3125, 0.0]
    assert [each.actuals.verdict for each in judged] == [None, None]
    assert verify_due(forecasts, past, a_world(taken=now), now=now).judged == ()


def test_what_is_not_over_or_has_no_samples_yet_waits(records: SqlRecords) -> None:
    keep(records, MIDNIGHT + 900.0)
    forecasts = records.forecasts()
    past = days_after({"n1": 1700.0, "n2": 1900.0})
    assert verify_due(forecasts, past, a_world(), now=TOMORROW + 899.0).judged == ()
    unread = History(days=[past.days[0], replace(past.days[1], filled=2)])
    assert verify_due(forecasts, unread, a_world(), now=TOMORROW + 900.0).judged == ()
    assert len(verify_due(forecasts, past, a_world(), now=TOMORROW + 900.0).judged) == 2


@pytest.mark.parametrize(
    ("late", "changed"), [(IN_TIME_SECONDS, 0.3125), (IN_TIME_SECONDS + 1, math.nan)], ids=["in time", "too late"]
)
def test_who_looks_too_late_does_not_know_who_had_left(records: SqlRecords, late: float, changed: float) -> None:
    keep(records, MIDNIGHT)
    snapshot = a_world(taken=TOMORROW + late, gone=["web-2"])
    [first, _] = verify_due(
        records.forecasts(), days_after({"n1": 1700.0, "n2": 1900.0}), snapshot, now=TOMORROW + late
    ).judged
    assert first.actuals.departed_peak_share == pytest.approx(changed, nan_ok=True)
    assert first.actuals.p95_millicores == 1700.0


def test_a_pod_that_has_finished_has_left(records: SqlRecords) -> None:
    keep(records, MIDNIGHT)
    snapshot = a_world(taken=TOMORROW)
    phase = np.array([SUCCEEDED, RUNNING, RUNNING], dtype=np.int8)
    done = replace(snapshot, pods=replace(snapshot.pods, phase=phase))
    judged = verify_due(records.forecasts(), days_after({"n1": 1700.0, "n2": 1900.0}), done, now=TOMORROW).judged
    assert [each.actuals.departed_peak_share for each in judged] == [0.625, 0.0]


def test_on_a_node_that_is_gone_all_pods_have_left(records: SqlRecords) -> None:
    keep(records, MIDNIGHT)
    snapshot = a_world(taken=TOMORROW)
    gone = replace(snapshot, nodes=replace(snapshot.nodes, names=("n1", "n9", "n3")))
    half = np.where(np.arange(SLOTS) < 200, 1900.0, np.nan)
    judged = verify_due(records.forecasts(), days_after({"n1": 1700.0, "n2": half}), gone, now=TOMORROW).judged
    assert [each.actuals.departed_peak_share for each in judged] == [0.0, 1.0]


def test_a_peak_that_a_move_prevented_is_no_false_alarm(records: SqlRecords, clock: StandingClock) -> None:
    """Both expected over 3000 from nine. n1 lost 400 to an eviction and stays at 2800; n2 lost 100, at the same."""
    hot_from = MIDNIGHT + 9 * HOUR
    ahead(records, {"n1": hot_from, "n2": hot_from})
    ledger = records.ledger(clock=clock)
    report = build_report(cycle="c1")
    records.begin(report)
    for pod, node in (("web-1", "n1"), ("db-1", "n2")):
        clock.at = MIDNIGHT + 7 * HOUR
        evict(ledger, report, pod, node)
    level = np.where(np.arange(SLOTS) < 9 * 12, 1000.0, 2800.0)
    now = clock.at = TOMORROW + 900.0

    judged = verify_due(
        records.forecasts(),
        days_after({"n1": level, "n2": level}, {"shop/web-1-new": 400.0, "shop/db-1-new": 100.0}),
        a_world(taken=now),
        now=now,
    ).judged

    verdicts = {each.forecast.node: each.actuals for each in judged}
    assert (verdicts["n1"].counterfactual_peak_millicores, verdicts["n1"].verdict) == (3200.0, Verdict.PREVENTED)
    assert (verdicts["n2"].counterfactual_peak_millicores, verdicts["n2"].verdict) == (2900.0, Verdict.FALSE_ALARM)
    assert [each.actuals for each in records.forecasts().judged(0.0)] == [each.actuals for each in judged]


def evict(ledger: SqlLedger, report: Any, pod: str, node: str) -> None:
    """An eviction whose replacement, of the same name and `-new`, landed on n3."""
    eviction = build_eviction(pod=pod, node=node, cluster="test", deadline_at=MIDNIGHT + 8 * HOUR)
    record = ledger.reserve(report, eviction, checks=(), term=None)
    assert isinstance(record, int)
    set_fields(eviction, record=record, outcome=Outcome.EVICTED)
    ledger.outcome(eviction)
    ledger.landed(record, at=MIDNIGHT + 7 * HOUR + 60, pod=f"{pod}-new", uid="u", node="n3")


# ---- a database that fails


def test_a_database_that_fails_is_a_note(records: SqlRecords, url: str) -> None:
    keep(records)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE forecasts"))
    engine.dispose()
    notes = [
        *keep(records, TOMORROW),
        *ahead(records, {"n1": TOMORROW}),
        *verify_due(records.forecasts(), days_after({}), a_world(), now=TOMORROW + 900.0).notes,
    ]
    written = ("kept", "kept", "judged")
    assert [note.partition(": ")[0] for note in notes] == [f"forecasts are not {each}" for each in written]
    assert all("no such table: forecasts" in note and "\n" not in note for note in notes)


class Unreadable(Sequence[DayBlock]):
    """Days that nobody may touch."""

    def __len__(self) -> int:
        raise AssertionError("a day was looked for")

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a day was loaded")


def test_while_nothing_is_due_no_day_is_loaded(records: SqlRecords) -> None:
    keep(records)
    judging = verify_due(records.forecasts(), History(days=Unreadable()), a_world(), now=MIDNIGHT + HOUR)
    assert (judging.judged, judging.notes) == ((), ())
