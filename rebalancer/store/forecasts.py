"""Forecasts of one cluster and their actuals: the adapter behind `model.records.forecasts.ForecastRecords`.

A forecast is a row, and what came is written into it; 5,000 nodes make 5,000 rows a day, in one transaction each way.
Nothing counts these rows, so pruning drops them by age alone.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, bindparam, false, func, or_, select, update

from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.forecasts import (
    Actuals,
    ForecastKind,
    ForecastSums,
    StoredForecast,
    Verdict,
    VerifiedForecast,
)
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import EVICTIONS, FORECASTS
from rebalancer.store.forecast_sums import read_minutes_off, read_sums
from rebalancer.store.ledger.rows import read_evictions

_ROWS = FORECASTS.c
_HAPPENED = (Outcome.EVICTED.value, Outcome.UNKNOWN.value)


class SqlForecasts:
    """See the module. Every method is one transaction; all raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock) -> None:
        """The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock

    def keep(self, forecasts: Sequence[StoredForecast]) -> None:
        """Write them down; one whose kind, node and day is there already is left out."""
        # in one order, so that two processes which write the same ones don't wait for each other in a circle
        rows = sorted(map(self._row, forecasts), key=lambda row: (row["kind"], row["day"], row["node"]))
        if rows:
            write(
                self._engine,
                lambda connection: connection.execute(upsert(connection)(FORECASTS).on_conflict_do_nothing(), rows),
            )

    def kept(self, kind: ForecastKind, at: float) -> frozenset[str]:
        """Nodes of which one of that kind is kept for the UTC day of `at`."""
        query = select(_ROWS.node).where(
            _ROWS.cluster == self._cluster, _ROWS.kind == kind.value, _ROWS.day == _day(at)
        )
        return frozenset(read(self._engine, lambda connection: connection.execute(query).scalars().all()))

    def due(self, now: float) -> list[tuple[int, StoredForecast]]:
        """(id, forecast) of those that are over and not verified yet, oldest first."""
        query = (
            select(FORECASTS)
            .where(_ROWS.cluster == self._cluster, _ROWS.evaluated_at.is_(None), _ROWS.until <= now)
            .order_by(_ROWS.made_at, _ROWS.id)
        )
        return read(self._engine, lambda connection: [(row.id, _forecast(row)) for row in connection.execute(query)])

    def judge(self, truths: Sequence[tuple[int, Actuals]]) -> None:
        """Store the actuals and drop what only verification needed. A missing row is ignored: it was pruned."""
        now = self._clock.now()
        rows: list[dict[str, Any]] = [
            {
                "record": record,
                "evaluated_at": now,
                "actual_p95_millicores": actuals.p95_millicores,
                "actual_peak_millicores": actuals.peak_millicores,
                "actual_peak_at": _or_none(actuals.peak_at),
                "departed_peak_share": actuals.departed_peak_share,
                "counterfactual_peak_millicores": actuals.counterfactual_peak_millicores,
                "verdict": None if actuals.verdict is None else actuals.verdict.value,
                "pods": [],
            }
            for record, actuals in sorted(truths, key=lambda each: each[0])
        ]
        statement = update(FORECASTS).where(_ROWS.id == bindparam("record"), _ROWS.cluster == self._cluster)
        if rows:
            write(self._engine, lambda connection: connection.execute(statement, rows))

    def judged(self, since: float) -> list[VerifiedForecast]:
        """Those made at or after `since` (seconds since the epoch), oldest first."""
        query = (
            select(FORECASTS)
            .where(_ROWS.cluster == self._cluster, _ROWS.made_at >= since, _ROWS.evaluated_at.is_not(None))
            .order_by(_ROWS.made_at, _ROWS.id)
        )

        def work(connection: Connection) -> list[VerifiedForecast]:
            return [VerifiedForecast(forecast=_forecast(row), actuals=_truth(row)) for row in connection.execute(query)]

        return read(self._engine, work)

    def sums(self, since: float, until: float) -> list[ForecastSums]:
        """Of the daily forecasts made from `since` up to, not including, `until`, and verified, by pool."""
        return read(
            self._engine, lambda connection: read_sums(connection, max(since, 0.0), until, cluster=self._cluster)
        )

    def minutes_off(self, since: float, until: float) -> Mapping[str, Mapping[int, int]]:
        """Of the same: pool -> minutes between the predicted and the real busiest quarter of an hour -> forecasts."""
        return read(
            self._engine, lambda connection: read_minutes_off(connection, max(since, 0.0), until, cluster=self._cluster)
        )

    def evicted_pods(self, since: float, until: float) -> Mapping[str, Sequence[Eviction]]:
        """Node -> the pods that we evicted from it from `since` up to, not including, `until`, oldest first.

        Evictions that happened or may have; no dry runs. One whose replacement is known to be on the same node again
        is left out.
        """
        rows = EVICTIONS.c
        query = (
            select(EVICTIONS)
            .where(
                rows.cluster == self._cluster,
                rows.dry_run == false(),
                rows.outcome.in_(_HAPPENED),
                rows.planned_at >= since,
                rows.planned_at < until,
                or_(rows.replacement_node.is_(None), rows.replacement_node != rows.node),
            )
            .order_by(func.coalesce(rows.answered_at, rows.planned_at), rows.id)
        )
        found: dict[str, list[Eviction]] = {}
        for each in read_evictions(self._engine, query):
            found.setdefault(each.node, []).append(each)
        return found

    def _row(self, forecast: StoredForecast) -> dict[str, Any]:
        ahead = forecast.hot_from if forecast.kind is ForecastKind.AHEAD else None
        return {
            "cluster": self._cluster,
            "kind": forecast.kind.value,
            "node": forecast.node,
            "day": _day(forecast.made_at if ahead is None else ahead),
            "pool": forecast.pool,
            "made_at": forecast.made_at,
            "until": forecast.until,
            "predictor": forecast.predictor,
            "peak_millicores": forecast.peak_millicores,
            "peak_at": _or_none(forecast.peak_at),
            "margin_millicores": forecast.margin_millicores,
            "capacity_millicores": forecast.capacity_millicores,
            "high": forecast.high,
            "days_used": forecast.days_used,
            "confidence": forecast.confidence,
            "pods": [list(each) for each in forecast.pods],
            "hot_from": None if forecast.hot_from is None else _or_none(forecast.hot_from),
        }


def _forecast(row: Row[Any]) -> StoredForecast:
    return StoredForecast(
        kind=ForecastKind(row.kind),
        node=row.node,
        pool=row.pool,
        made_at=row.made_at,
        until=row.until,
        predictor=row.predictor,
        peak_millicores=_or_nan(row.peak_millicores),
        peak_at=_or_nan(row.peak_at),
        margin_millicores=_or_nan(row.margin_millicores),
        capacity_millicores=_or_nan(row.capacity_millicores),
        high=row.high,
        days_used=row.days_used,
        confidence=_or_nan(row.confidence),
        pods=tuple((uid, share) for uid, share in row.pods),
        hot_from=row.hot_from,
    )


def _truth(row: Row[Any]) -> Actuals:
    return Actuals(
        p95_millicores=_or_nan(row.actual_p95_millicores),
        peak_millicores=_or_nan(row.actual_peak_millicores),
        peak_at=_or_nan(row.actual_peak_at),
        departed_peak_share=_or_nan(row.departed_peak_share),
        counterfactual_peak_millicores=_or_nan(row.counterfactual_peak_millicores),
        verdict=None if row.verdict is None else Verdict(row.verdict),
    )


def _day(at: float) -> int:
    return int(at // DAY_SECONDS)


def _or_none(at: float) -> float | None:
    return at if math.isfinite(at) else None


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
