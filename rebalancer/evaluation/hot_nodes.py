"""Evaluates the hot-node SLO: reads its samples, records hot episodes, pool hours and daily counts.

Samples are read in pieces, a few minutes behind now. Each reading overlaps the previous one enough to continue open
episodes. Reading a piece twice writes the same rows, so an interrupted reading is repeated. No cycle depends on it: an
error becomes a note, and the next call continues.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.effect.episodes import HotSpan, hot_spans, overlap_seconds
from rebalancer.evaluation.attribution import SloWindow, attribute_episodes, count_days
from rebalancer.evaluation.pool_hours import pool_hours, thresholds_of
from rebalancer.evaluation.removed_nodes import with_removed
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.limits import Pause
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.measured.slo import SloReader, SloSamples
from rebalancer.model.records.effect import EffectRecords, HotEpisode
from rebalancer.model.records.forecasts import VerifiedForecast
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, NodeThresholds

LAG_SECONDS = 300.0
"""Delay behind now: samples come late, and cycles have to be recorded first."""
FIRST_LOOK_BACK_SECONDS = DAY_SECONDS
HOURS_AT_ONCE = 6
"""Pieces of one call."""
MAX_RETRY_SECONDS = DAY_SECONDS
"""Older samples that can't be read are skipped."""
STEP_SECONDS, LONG_STEP_SECONDS = 60.0, 300.0
LONG_FOR_SECONDS = 1800.0
"""Step of the samples for a short and a long `for`. Both divide an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloReading:
    """The result of one call."""

    read_until: float | None = None
    """None: nothing read yet."""
    episodes: tuple[HotEpisode, ...] = ()
    """Episodes attributed now: open, recently ended, or waiting for an assessment."""
    behind: bool = False
    """More can be read at once."""
    notes: tuple[str, ...] = ()
    """Errors and doubts, in sentences."""


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
    """Read the hot-node SLO from where the last call ended, and update episodes, hours and days.

    `reader` None: no Prometheus. `pauses`: those in force now. `judged`: verified forecasts made at or after a time.
    To be called every few minutes, by the leader.
    """
    if reader is None:
        return SloReading(notes=("the hot-node SLO is not evaluated: it needs Prometheus",))
    run = _SloRun(reader, records, snapshot, node_pools, policy, now, stopping)
    try:
        run.read_on()
    except RebalancerError as error:
        run.notes.append(f"the hot-node SLO is not evaluated: {error}")
    attributed: list[HotEpisode] = []
    span = SloWindow(began=now if run.began is None else run.began, until=run.until, behind=run.behind, now=now)
    try:
        attributed = attribute_episodes(records, policy, span, pauses)
        count_days(records, policy, span, attributed, judged)
    except RebalancerError as error:
        run.notes.append(f"hot episodes are not attributed: {error}")
    notes = tuple(dict.fromkeys(run.notes))
    return SloReading(read_until=run.until, episodes=tuple(attributed), behind=run.behind, notes=notes)


class _SloRun:
    """One call."""

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
        """Start of this call's reading."""
        self.until: float | None = None
        self.behind = False
        self.notes: list[str] = []
        self._reader = reader
        self._snapshot = snapshot
        self._node_pools = node_pools
        self._stopping = stopping
        self._for = policy.effect.hot_node_slo.for_
        self._is_first = False
        self._step = STEP_SECONDS if self._for <= LONG_FOR_SECONDS else LONG_STEP_SECONDS

    # ---- reading

    def read_on(self) -> None:
        """Hour by hour, as far as samples can be complete. Raises ConnectError, ConfigError."""
        last = self._at_step(self.now - LAG_SECONDS)
        known = self.records.slo_evaluated_until()
        self._is_first = known is None
        if known is None:
            known = math.ceil((last - FIRST_LOOK_BACK_SECONDS) / HOUR_SECONDS) * HOUR_SECONDS
        self.began = self.until = max(known, self._at_step(self.now - self.policy.effect.detail_retention))
        for _ in range(HOURS_AT_ONCE):
            if self.until >= last or self._stopping():
                break
            end = min((math.floor(self.until / HOUR_SECONDS) + 1) * HOUR_SECONDS, last)
            if not self._read(self.until, end):
                return
            self.until, self._is_first = end, False
        self.behind = self.until < last

    def _read(self, until: float, end: float) -> bool:
        """One piece of at most an hour, from `until` to `end`; False: retry in the next call."""
        hour = math.floor(until / HOUR_SECONDS)
        # what is before the first reading is evaluated neither as episodes nor as hours
        overlap = 0.0 if self._is_first else overlap_seconds(self._for, self._step)
        begin = self._at_step(min(until - overlap, hour * HOUR_SECONDS))
        nodes, node_pools = with_removed(self._snapshot.nodes, self._node_pools, self.records.nodes_before(begin))
        try:
            samples = self._reader.read(nodes, start=begin, end=end, step=self._step)
        except RebalancerError:
            if self.now - end < MAX_RETRY_SECONDS:
                raise
            self.notes.append("samples of the hot-node SLO from more than a day ago can't be read and are skipped")
            self.records.put_hours([], read_until=end)
            return True
        self.notes += [f"the hot-node SLO query returned a partial result: {each}" for each in samples.partial]
        if not np.isfinite(samples.shares[samples.times > until]).any() and self.now - end < HOUR_SECONDS:
            # the source may be late
            self.notes.append("the hot-node SLO query returned no recent samples of this cluster's nodes")
            return False
        thresholds = thresholds_of(samples, node_pools, self.policy)
        self.records.put_episodes(self._episodes(samples, thresholds, node_pools, until=until, end=end))
        # hours are of the nodes that are there
        count = len(self._snapshot.nodes)
        samples = replace(samples, nodes=samples.nodes[:count], shares=samples.shares[:, :count])
        thresholds = NodeThresholds(*(each[:, :count] for each in thresholds))
        before = {each.pool: each for each in self.records.hours(hour * HOUR_SECONDS, (hour + 1) * HOUR_SECONDS)}
        hours = pool_hours(samples, thresholds, self._snapshot, self._node_pools, hour=hour, before=before)
        self.records.put_hours(hours, read_until=end)
        return True

    def _at_step(self, at: float) -> float:
        return math.floor(at / self._step) * self._step

    # ---- episodes

    def _episodes(
        self, samples: SloSamples, thresholds: NodeThresholds, node_pools: NodePools, *, until: float, end: float
    ) -> list[HotEpisode]:
        """New, continued and ended episodes."""
        column = {name: index for index, name in enumerate(samples.nodes)}
        stored: dict[str, list[HotEpisode]] = {}
        for each in self.records.episodes(float(samples.times[0]), end + 1.0):
            stored.setdefault(each.node, []).append(each)
        opened = [each for of_node in stored.values() for each in of_node if each.ended_at is None]
        spans = hot_spans(
            samples.times,
            # over zero instead of over a threshold: in deviation mode each moment has its own
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
            out.append(_episode(span, samples, thresholds, node_pools.names[span.node], before))
        return out


def _episode(
    span: HotSpan, samples: SloSamples, thresholds: NodeThresholds, pool: str, before: HotEpisode | None
) -> HotEpisode:
    times, last = samples.times, math.inf if span.ended_at is None else span.ended_at
    inside = samples.shares[(times >= span.started_at) & (times <= last), span.node]
    peak = float(np.max(inside, where=np.isfinite(inside), initial=-math.inf))
    if before is not None:
        return replace(before, ended_at=span.ended_at, peak_share=max(before.peak_share, peak))
    return HotEpisode(
        node=samples.nodes[span.node],
        pool=pool,
        started_at=span.started_at,
        ended_at=span.ended_at,
        peak_share=peak,
        threshold=float(thresholds.high[int(np.searchsorted(times, span.started_at)), span.node]),
    )


def _same(span: HotSpan, stored: Sequence[HotEpisode]) -> HotEpisode | None:
    """The stored episode of a span or of its end: a reading begins within earlier ones."""
    ended_at = math.inf if span.ended_at is None else span.ended_at
    for each in reversed(stored):
        # a continued open episode keeps its start
        overlaps = each.ended_at is not None and each.ended_at > span.started_at and each.started_at <= ended_at
        if overlaps or each.started_at == span.started_at:
            return each
    return None
