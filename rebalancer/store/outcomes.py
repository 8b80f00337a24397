"""Outcomes of one cluster's forecasts: the adapter behind `model.measured.outcomes.OutcomeRecords`.

A row is one resource of one pool in one period, with the figures of all its nodes in one packed value of single
precision, about 10 kB.
"""

import logging
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from sqlalchemy import Connection, Engine, Row, Select, bindparam, select, update

from rebalancer.model.decisions.ports import Clock
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.outcomes import ForecastOutcomes
from rebalancer.model.notation.decoding import msgpack_decoder
from rebalancer.model.notation.resource_names import CPU
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import FORECAST_OUTCOMES

_log = logging.getLogger(__name__)
_ROWS = FORECAST_OUTCOMES.c
_VERSION: Final = 1
_BETWEEN: Final = "\x1f"
"""Between a resource and a pool; no name has it."""
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """The packed value, deflated MessagePack."""

    version: int
    layout: int
    nodes: tuple[str, ...]
    features: _Count
    uppers: _Count
    figures: bytes
    """(features + capacity + usage + uppers + actual, nodes) in little-endian single precision."""


class SqlOutcomes:
    """See the module. Every method is one transaction; all raise ConfigError, ConnectError.

    A row that can't be unpacked, broken or of another version, is logged once and left out. Not for several threads.
    """

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock) -> None:
        """The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock
        self._skipped: set[tuple[str, int]] = set()

    def keep_outcomes(self, forecasts: Sequence[ForecastOutcomes]) -> None:
        """Write down forecasts without actuals; one whose pool and period is there already is left out."""
        # in one order, so that two processes which write the same ones don't wait for each other in a circle
        rows: list[dict[str, Any]] = [
            {
                "cluster": self._cluster,
                "pool": _key(each),
                "period": each.period,
                "made_at": each.made_at,
                "data": _packed(each),
            }
            for each in sorted(forecasts, key=lambda each: (_key(each), each.period))
        ]
        if rows:
            write(
                self._engine,
                lambda connection: connection.execute(
                    upsert(connection)(FORECAST_OUTCOMES).on_conflict_do_nothing(), rows
                ),
            )

    def outcomes_due(self, now: float) -> list[ForecastOutcomes]:
        """Those without actuals whose 24 hours are over, oldest first."""
        return self._read(self._ours().where(_ROWS.evaluated_at.is_(None), _ROWS.made_at <= now - DAY_SECONDS))

    def judge_outcomes(self, outcomes: Sequence[ForecastOutcomes]) -> None:
        """Store the actuals. A row that is judged already stays as it is; a missing one was pruned."""
        now = self._clock.now()
        rows = [
            {"of_pool": _key(each), "of_period": each.period, "evaluated_at": now, "data": _packed(each)}
            for each in sorted(outcomes, key=lambda each: (_key(each), each.period))
        ]
        statement = update(FORECAST_OUTCOMES).where(
            _ROWS.cluster == self._cluster,
            _ROWS.pool == bindparam("of_pool"),
            _ROWS.period == bindparam("of_period"),
            _ROWS.evaluated_at.is_(None),
        )
        if rows:
            write(self._engine, lambda connection: connection.execute(statement, rows))

    def outcomes(self, since: float) -> list[ForecastOutcomes]:
        """Those with actuals that were made at or after `since` (seconds since the epoch), oldest first."""
        return self._read(self._ours().where(_ROWS.evaluated_at.is_not(None), _ROWS.made_at >= max(since, 0.0)))

    def _ours(self) -> Select[Any]:
        return select(FORECAST_OUTCOMES).where(_ROWS.cluster == self._cluster).order_by(_ROWS.made_at, _ROWS.pool)

    def _read(self, query: Select[Any]) -> list[ForecastOutcomes]:
        def work(connection: Connection) -> list[ForecastOutcomes]:
            return list(self._sound(connection.execute(query)))

        return read(self._engine, work)

    def _sound(self, rows: Iterator[Row[Any]]) -> Iterator[ForecastOutcomes]:
        for row in rows:
            try:
                yield _unpacked(row)
            except (zlib.error, ValueError) as error:  # msgspec's are ValueErrors
                if (row.pool, row.period) not in self._skipped:
                    self._skipped.add((row.pool, row.period))
                    _log.warning(
                        "the outcomes of forecasts of pool %r, period %d, can't be read and are left out: %s",
                        *(row.pool, row.period, error),
                    )


def _key(outcomes: ForecastOutcomes) -> str:
    """The pool, after the resource where that isn't CPU."""
    return outcomes.pool if outcomes.resource == CPU else f"{outcomes.resource}{_BETWEEN}{outcomes.pool}"


def _packed(outcomes: ForecastOutcomes) -> bytes:
    columns = (outcomes.features.T, outcomes.capacity, outcomes.usage, outcomes.uppers.T, outcomes.actual)
    value = _Packed(
        version=_VERSION,
        layout=outcomes.layout,
        nodes=outcomes.nodes,
        features=outcomes.features.shape[1],
        uppers=outcomes.uppers.shape[1],
        figures=np.vstack(columns).astype("<f4").tobytes(),
    )
    return zlib.compress(msgspec.msgpack.encode(value))


def _unpacked(row: Row[Any]) -> ForecastOutcomes:
    """Raises zlib.error or ValueError for what is not one of this version."""
    value = msgpack_decoder(_Packed).decode(zlib.decompress(row.data))
    if value.version != _VERSION:
        raise ValueError(f"version {value.version}, expected {_VERSION}")
    figures = np.frombuffer(value.figures, dtype="<f4").astype(np.float64)
    columns = figures.reshape(value.features + value.uppers + 3, len(value.nodes))
    features, (capacity, usage), uppers, (actual,) = np.split(
        columns, (value.features, value.features + 2, len(columns) - 1)
    )
    resource, between, pool = row.pool.rpartition(_BETWEEN)
    return ForecastOutcomes(
        pool=pool,
        resource=resource if between else CPU,
        made_at=row.made_at,
        layout=value.layout,
        nodes=tuple(map(sys.intern, value.nodes)),  # the same in hundreds of periods
        features=features.T,
        capacity=capacity,
        usage=usage,
        uppers=uppers.T,
        actual=actual,
    )
