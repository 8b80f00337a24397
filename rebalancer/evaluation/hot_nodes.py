"""Which nodes were hot by the organisation's own standard, and what we had said of them.

Read piece by piece, a few minutes behind now, for as long as it takes: every reading begins so far before the end of
the last one that what was hot then goes on. What is read or told twice is the same row, so a reading that breaks off is
simply done again. Nothing here decides a cycle: whatever fails is a note, and the next call goes on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.effect.episodes import HotSpan, hot_spans, overlap_seconds
from rebalancer.evaluation.attribution import SloWindow, attribute_episodes, count_days
from rebalancer.evaluation.pool_hours import pool_hours, thresholds_of
from rebalancer.model.effect import EffectRecords, HotEpisode
from rebalancer.model.errors import RebalancerError
from rebalancer.model.forecasts import VerifiedForecast
from rebalancer.model.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.limits import Pause
from rebalancer.model.slo import SloReader, SloSamples
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import CpuThresholds, NodePools

LAG_SECONDS = 300.0
"""Samples come late, and a cycle that looked at a node has to be written down."""
FIRST_LOOK_BACK_SECONDS = DAY_SECONDS
HOURS_AT_ONCE = 6
"""More are read by the next call."""
MAX_RETRY_SECONDS = DAY_SECONDS
"""What can't be read for so long never will be."""
STEP_SECONDS, LONG_STEP_SECONDS = 60.0, 300.0
LONG_FOR_SECONDS = 1800.0
"""A node that has to be hot for longer is looked at in long steps. Both divide an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloReading:
    """What one call did."""

    read_until: float | None = None
    """None: nothing was read yet."""
    episodes: tuple[HotEpisode, ...] = ()
    """Those of which something new may be known: they go on, were over lately, or wait for an assessment."""
    behind: bool = False
    """More can be read at once: call again soon."""
    notes: tuple[str, ...] = ()
    """What went wrong or is doubtful, in sentences."""


def evaluate_slo(
    reader: SloReader | None,
    records: EffectRecords,
    snapshot: ClusterSnapshot,
    node_pools: NodePools,
    policy: RebalancerPolicy,
    *,
    now: float,
    pauses: Callable[[], Sequence[Pause]] = lambda: (),
    judged: Callable[[float], Sequence[VerifiedForecast]] = lambda _since: (),
    stopping: Callable[[], bool] = lambda: False,
) -> SloReading:
    """Read the standard from where the last call ended, and bring episodes, hours and days up to date.

    `reader` None: there is no Prometheus. `pauses` in force now, and the forecasts `judged` that were made at or after
    some time, are asked for when they are needed. To be called every few minutes, by the leader.
    """
    if reader is None:
        return SloReading(notes=("hot nodes by the standard are not known: they are read from Prometheus",))
    look = _Look(reader, records, snapshot, node_pools, policy, now, stopping)
    try:
        look.read_on()
    except RebalancerError as error:
        look.notes.append(f"hot nodes by the standard are not read: {error}")
    told: list[HotEpisode] = []
    span = SloWindow(began=now if look.began is None else look.began, until=look.until, behind=look.behind, now=now)
    try:
        told = attribute_episodes(records, policy, span, pauses)
        count_days(records, policy, span, told, judged)
    except RebalancerError as error:
        look.notes.append(f"hot nodes by the standard are not held against our cycles: {error}")
    notes = tuple(dict.fromkeys(look.notes))
    return SloReading(read_until=look.until, episodes=tuple(told), behind=look.behind, notes=notes)


class _Look:
    """One call's reading."""

    def __init__(
        self,
        reader: SloReader,
        records: EffectRecords,
        snapshot: ClusterSnapshot,
        node_pools: NodePools,
        policy: RebalancerPolicy,
        now: float,
        stopping: Callable[[], bool],
    ) -> None:
        self.records = records
        self.policy = policy
        self.now = now
        self.began: float | None = None
        """Where this call's reading began."""
        self.until: float | None = None
        self.behind = False
        self.notes: list[str] = []
        self._reader = reader
        self._snapshot = snapshot
        self._node_pools = node_pools
        self._stopping = stopping
        self._for = policy.effect.hot_node_slo.for_
        self._step = STEP_SECONDS if self._for <= LONG_FOR_SECONDS else LONG_STEP_SECONDS

    # ---- reading on

    def read_on(self) -> None:
        """Hour by hour, as far as there is something to be read. Raises ConnectError, ConfigError."""
        last = self._at_step(self.now - LAG_SECONDS)
        known = self.records.slo_evaluated_until()
        if known is None:
            known = math.ceil((last - FIRST_LOOK_BACK_SECONDS) / HOUR_SECONDS) * HOUR_SECONDS
        self.began = self.until = max(known, self._at_step(self.now - self.policy.effect.detail_retention))
        for _ in range(HOURS_AT_ONCE):
            if self.until >= last or self._stopping():
                break
            end = min((math.floor(self.until / HOUR_SECONDS) + 1) * HOUR_SECONDS, last)
            if not self._read(self.until, end):
                return
            self.until = end
        self.behind = self.until < last

    def _read(self, until: float, end: float) -> bool:
        """One piece of at most an hour, from `until` to `end`; False to try it again in the next call."""
        hour = math.floor(until / HOUR_SECONDS)
        overlap = overlap_seconds(self._for, self._step)
        begin = self._at_step(min(until - overlap, hour * HOUR_SECONDS))
        try:
            samples = self._reader.read(self._snapshot.nodes, start=begin, end=end, step=self._step)
        except RebalancerError:
            if self.now - end < MAX_RETRY_SECONDS:
                raise
            self.notes.append("what the standard says of a time more than a day ago can't be read, and is left out")
            self.records.put_hours([], read_until=end)
            return True
        self.notes += [f"the standard was answered in part: {each}" for each in samples.partial]
        if not np.isfinite(samples.shares[samples.times > until]).any() and self.now - end < HOUR_SECONDS:
            # its source may only be late
            self.notes.append("the standard has no samples of this cluster's nodes of late")
            return False
        thresholds = thresholds_of(samples, self._node_pools, self.policy)
        self.records.put_episodes(self._episodes(samples, thresholds, until=until, end=end))
        before = {each.pool: each for each in self.records.hours(hour * HOUR_SECONDS, (hour + 1) * HOUR_SECONDS)}
        hours = pool_hours(samples, thresholds, self._snapshot, self._node_pools, hour=hour, before=before)
        self.records.put_hours(hours, read_until=end)
        return True

    def _at_step(self, at: float) -> float:
        return math.floor(at / self._step) * self._step

    # ---- episodes

    def _episodes(
        self, samples: SloSamples, thresholds: CpuThresholds, *, until: float, end: float
    ) -> list[HotEpisode]:
        """What is new, and what goes on or ends."""
        column = {name: index for index, name in enumerate(samples.nodes)}
        stored: dict[str, list[HotEpisode]] = {}
        for each in self.records.episodes(float(samples.times[0]), end + 1.0):
            stored.setdefault(each.node, []).append(each)
        opened = [each for of_node in stored.values() for each in of_node if each.ended_at is None]
        spans = hot_spans(
            samples.times,
            # over nothing instead of over a mark: in deviation mode each moment has its own
            samples.shares - thresholds.high,
            threshold=0.0,
            for_seconds=self._for,
            end=end,
            still_open=[
                HotSpan(node=column[each.node], started_at=each.started_at, ended_at=None, peak_share=-math.inf)
                for each in opened
                if each.node in column
            ],
        )
        out = [replace(each, ended_at=max(until, each.started_at)) for each in opened if each.node not in column]
        for span in spans:
            before = _same(span, stored.get(samples.nodes[span.node], ()))
            out.append(self._episode(span, samples, thresholds, before))
        return out

    def _episode(
        self, span: HotSpan, samples: SloSamples, thresholds: CpuThresholds, before: HotEpisode | None
    ) -> HotEpisode:
        times, last = samples.times, math.inf if span.ended_at is None else span.ended_at
        inside = samples.shares[(times >= span.started_at) & (times <= last), span.node]
        peak = float(np.max(inside, where=np.isfinite(inside), initial=-math.inf))
        if before is not None:
            return replace(before, ended_at=span.ended_at, peak_share=max(before.peak_share, peak))
        return HotEpisode(
            node=samples.nodes[span.node],
            pool=self._node_pools.names[span.node],
            started_at=span.started_at,
            ended_at=span.ended_at,
            peak_share=peak,
            threshold=float(thresholds.high[int(np.searchsorted(times, span.started_at)), span.node]),
        )


def _same(span: HotSpan, stored: Sequence[HotEpisode]) -> HotEpisode | None:
    """The episode that the span is, or is the end of: a reading begins somewhere in the ones before."""
    ended_at = math.inf if span.ended_at is None else span.ended_at
    for each in reversed(stored):
        # an open one that goes on has kept its start
        overlaps = each.ended_at is not None and each.ended_at > span.started_at and each.started_at <= ended_at
        if overlaps or each.started_at == span.started_at:
            return each
    return None
