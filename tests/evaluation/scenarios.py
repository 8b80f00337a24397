"""A daemon that reads the standard into a real database, from samples that a test makes up."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rebalancer.evaluation.hot_nodes import LAG_SECONDS, SloReading, evaluate_slo
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.limits import Pause
from rebalancer.model.errors import ConnectError, RebalancerError
from rebalancer.model.measured.slo import SloSamples
from rebalancer.model.records.effect import (
    DayRow,
    EffectRecords,
    HotEpisode,
    PoolHour,
)
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.store import SqlRecords
from tests.builders import NOW

HOUR, DAY, MINUTE = 3600.0, 86_400.0, 60.0
assert NOW % HOUR == 0

Shares = Callable[[str, float], float]
"""(node, time) -> share."""


def hot_between(*spans: tuple[str, float, float], hot: float = 0.9, cool: float = 0.4) -> Shares:
    """Nodes that are hot from a time up to, not including, another."""
    return lambda node, at: hot if any(node == name and start <= at < end for name, start, end in spans) else cool


@dataclass
class Samples:
    """A source that knows everything, or fails."""

    shares: Shares
    fails: RebalancerError | None = None
    partial: tuple[str, ...] = ()
    asked: list[tuple[float, float, float]] = field(default_factory=list)
    unknown_after: float = math.inf

    def read(self, nodes: Nodes, *, start: float, end: float, step: float) -> SloSamples:
        self.asked.append((start, end, step))
        if self.fails is not None:
            raise self.fails
        times = start + step * np.arange(int((end - start) / step) + 1)
        shares = np.array([[self.shares(name, at) for name in nodes.names] for at in times.tolist()])
        shares[times > self.unknown_after] = np.nan
        return SloSamples(nodes=nodes.names, times=times, shares=shares, partial=self.partial)


@dataclass(kw_only=True)
class Reads:
    """A daemon that reads the standard now and then."""

    samples: Samples
    records: SqlRecords
    snapshot: ClusterSnapshot
    policy: RebalancerPolicy
    effect: EffectRecords
    pauses: Sequence[Pause] = ()

    def at(self, now: float, **fields: Any) -> SloReading:
        """One reading."""
        return evaluate_slo(
            self.samples,
            self.effect,
            replace(self.snapshot, taken=now),
            NodePools.of(self.policy.pools, self.snapshot.nodes),
            self.policy,
            now=now,
            pauses=lambda: self.pauses,
            **fields,
        )

    def every(self, seconds: float, *, since: float, until: float) -> None:
        """Readings without a fault."""
        now = since
        while now <= until:
            reading = self.at(now)
            assert reading.notes == ()
            now += 0.0 if reading.behind else seconds

    def episodes(self) -> list[HotEpisode]:
        return [replace(each, id=0) for each in self.effect.episodes(0.0, NOW + 30 * DAY)]

    def spans(self) -> list[tuple[str, float, float | None]]:
        """(node, start, end) after NOW in minutes."""
        return [
            (each.node, (each.started_at - NOW) / 60, None if each.ended_at is None else (each.ended_at - NOW) / 60)
            for each in self.episodes()
        ]

    def everything(self) -> tuple[list[HotEpisode], list[PoolHour], list[DayRow], float | None]:
        """All that was written; what pods requested depends on when somebody looked."""
        day = int(NOW // DAY)
        return (
            self.episodes(),
            [replace(each, requested_share=0.0) for each in self.effect.hours(0.0, NOW + 30 * DAY)],
            self.effect.days(day - 30, day + 30),
            self.effect.slo_evaluated_until(),
        )


def reads_on(reads: Reads, at: float) -> Reads:
    """Has read up to `at` less the lag before."""
    reads.effect.put_hours([], read_until=at - LAG_SECONDS)
    return reads


class FailsNow:
    """A database that goes away after some calls."""

    def __init__(self, inner: EffectRecords, after: int) -> None:
        self._inner = inner
        self._left = after

    def __getattr__(self, name: str) -> Any:
        if self._left <= 0:
            raise ConnectError("the database is away")
        self._left -= 1
        return getattr(self._inner, name)
