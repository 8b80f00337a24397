"""Sums over many evaluated forecasts, added up by the database: a report on a quarter of 5,000 nodes has 450,000 rows.

`forecast.evaluation.accuracy.sums_of` adds up the same sums in memory, and derives all figures from either.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, case, cast, extract, func, select

from rebalancer.model.records.forecasts import TOLERANCE, ForecastKind, ForecastSums
from rebalancer.store.db.tables import FORECASTS

_ROWS = FORECASTS.c
_CAME, _CAPACITY = _ROWS.actual_p95_millicores, _ROWS.capacity_millicores
_FORECAST = _ROWS.peak_millicores
_KNOWN = and_(_CAME.is_not(None), _FORECAST.is_not(None), _ROWS.margin_millicores.is_not(None), _CAPACITY > 0)
# what is NULL compares as neither, so it isn't steady
_STEADY = _ROWS.counterfactual_peak_millicores <= _ROWS.actual_peak_millicores * (1 + TOLERANCE)
_ERROR = func.abs(_CAME - (_FORECAST - _ROWS.margin_millicores)) / _CAPACITY
_COVERED = _CAME <= _FORECAST + TOLERANCE * _CAPACITY
_HIGH = _ROWS.high * _CAPACITY
_HOT = and_(_STEADY, _HIGH < _CAME)
_CALLED = and_(_STEADY, _HIGH < _FORECAST)


def read_sums(connection: Connection, since: float, until: float, *, cluster: str) -> list[ForecastSums]:
    """Of the daily forecasts made from `since` up to, not including, `until`, by pool."""
    query = (
        select(
            _ROWS.pool,
            func.count().label("count"),
            func.sum(_ERROR).label("error"),
            _times(_COVERED).label("covered"),
            _times(_STEADY).label("steady_count"),
            func.sum(case((_STEADY, _ERROR), else_=0.0)).label("steady_error"),
            _times(and_(_STEADY, _COVERED)).label("steady_covered"),
            _times(_HOT).label("hot"),
            _times(_CALLED).label("called_hot"),
            _times(and_(_HOT, _CALLED)).label("both"),
        )
        .where(*_judged(since, until, cluster))
        .group_by(_ROWS.pool)
        .order_by(_ROWS.pool)
    )
    return [ForecastSums(**row._mapping) for row in connection.execute(query)]


def read_minutes_off(
    connection: Connection, since: float, until: float, *, cluster: str
) -> Mapping[str, Mapping[int, int]]:
    """Pool -> minutes between the predicted and the real peak, not round the clock -> forecasts."""
    seconds = func.abs(extract("epoch", _ROWS.peak_at) - extract("epoch", _ROWS.actual_peak_at))
    minutes = (cast(seconds, Integer) // 60).label("minutes")
    query = (
        select(_ROWS.pool, minutes, func.count().label("times"))
        .where(*_judged(since, until, cluster), _ROWS.peak_at.is_not(None), _ROWS.actual_peak_at.is_not(None))
        .group_by(_ROWS.pool, minutes)
    )
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for pool, apart, times in connection.execute(query):
        found[pool][apart] = times
    return found


def _judged(since: float, until: float, cluster: str) -> tuple[ColumnElement[bool], ...]:
    return (
        _ROWS.cluster == cluster,
        _ROWS.kind == ForecastKind.DAILY.value,
        _ROWS.evaluated_at.is_not(None),
        _KNOWN,
        _ROWS.made_at >= since,
        _ROWS.made_at < until,
    )


def _times(condition: ColumnElement[bool]) -> Any:
    return func.sum(case((condition, 1), else_=0))
