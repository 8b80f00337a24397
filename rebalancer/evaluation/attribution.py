"""Attributes hot episodes to the cycles that discovered or missed them, and rolls them up by days.

An episode is attributed again while its result can still change: while the node is hot, shortly after, and until its
assessment is made. The result depends on the records only, so repeating it changes nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.effect.discovery import EARLY_SECONDS, LOOKAHEAD_SECONDS, attribute_episode
from rebalancer.effect.rates import day_of, day_rows
from rebalancer.effect.savings import saved_core_hours
from rebalancer.model.decisions.limits import Pause, Scope
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.reason import Reason
from rebalancer.model.records.effect import Assessment, EffectRecords, HotEpisode, NodeObservation, Outcome, Step
from rebalancer.model.records.forecasts import VerifiedForecast
from rebalancer.policy import RebalancerPolicy

JUST_OVER_SECONDS = 1800.0
"""For how long after its end an episode is attributed again: a cycle may have been running."""
OFTEN_SECONDS = 6 * HOUR_SECONDS
SELDOM_SECONDS = 2 * DAY_SECONDS
"""An episode longer than the first is attributed once an hour, one longer than the second after its end: all its
observations are read each time. The second is also how long an episode waits for its assessment."""
COUNT_AGAIN_DAYS = 2
"""Forecasts are verified, and assessments made, up to so many days after the day that they count for."""
SAVING_SECONDS = 30 * DAY_SECONDS
"""A node that was emptied longer ago saves nothing any more."""
KEPT_SECONDS = 3 * DAY_SECONDS
"""Least retention of details, whatever the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloWindow:
    """The time of the hot-node SLO that one call read; seconds since the epoch."""

    began: float
    until: float | None
    """None: nothing was read."""
    behind: bool
    """More can be read at once."""
    now: float

    @property
    def new_hour(self) -> bool:
        """Whether an hour ended in it."""
        return self.until is not None and self.began // HOUR_SECONDS < self.until // HOUR_SECONDS


def attribute_episodes(
    records: EffectRecords, policy: RebalancerPolicy, span: SloWindow, pauses: Callable[[], Sequence[Pause]]
) -> list[HotEpisode]:
    """Attribute the episodes whose result can still change. Raises ConnectError."""
    over = span.began - JUST_OVER_SECONDS
    stored = records.episodes(min(over, span.now - SELDOM_SECONDS), span.now + 1.0)
    settled: list[Assessment] = []
    if any(each.evictions or each.ended_at is None or each.ended_at >= over for each in stored):
        earliest = min(each.started_at for each in stored) - LOOKAHEAD_SECONDS
        settled = list(records.assessments(earliest, span.now + 1.0, step=Step.SETTLED))
    asked = [each for each in stored if _may_have_more(each, settled, span, over)]
    if not asked:
        return []
    every = _looked_at(policy)
    slowest = max(filter(math.isfinite, every.values()), default=0.0)
    since_of = {each.id: _said_since(each, policy, max(slowest, EARLY_SECONDS)) for each in asked}
    node_observations = _node_observations(records, asked, since_of, span)
    in_force = pauses()
    out = []
    for each in asked:
        until = math.inf if each.ended_at is None else each.ended_at
        said = [one for one in node_observations[each.id] if since_of[each.id] <= one.at <= until]
        attributed = attribute_episode(
            each,
            said,
            covered=each.pool in every,
            every_seconds=every.get(each.pool, slowest),
            paused=_paused(each, said, in_force, policy.cluster),
            settled=[one for one in settled if one.node == each.node],
            after=_end_of_the_one_before(each, stored),
        )
        out.append(attributed)
    records.put_episodes([attributed for attributed, before in zip(out, asked, strict=True) if attributed != before])
    return out


def _may_have_more(episode: HotEpisode, settled: Sequence[Assessment], span: SloWindow, over: float) -> bool:
    if episode.discovered_at is None and episode.miss_reason is None:
        return True
    if episode.ended_at is None:
        lasted = span.now - episode.started_at
        return lasted < OFTEN_SECONDS or (lasted < SELDOM_SECONDS and span.new_hour)
    if episode.ended_at >= over:
        return True
    # evicted from, without an assessment yet
    return (
        bool(episode.evictions)
        and episode.cooled is None
        and any(
            each.node == episode.node
            and each.outcome not in (None, Outcome.UNKNOWN)
            and not each.late
            and episode.discovered_at is not None
            and each.last_eviction_at >= episode.discovered_at
            for each in settled
        )
    )


def _said_since(episode: HotEpisode, policy: RebalancerPolicy, early: float) -> float:
    """Start of the earliest cycle that may have discovered it; a day earlier on first attribution if forecasts act."""
    if episode.discovered_at is None and episode.miss_reason is None and policy.forecast.mode == "Act":
        return episode.started_at - LOOKAHEAD_SECONDS
    return min(episode.started_at - early, math.inf if episode.discovered_at is None else episode.discovered_at)


def _node_observations(
    records: EffectRecords, asked: Sequence[HotEpisode], since_of: Mapping[int, float], span: SloWindow
) -> dict[int, Sequence[NodeObservation]]:
    """By the episode's row. Episodes attributed for the first time are read apart: they look further back."""
    # later observations may be of an episode that wasn't read yet
    until = span.until if span.behind and span.until is not None else span.now
    out: dict[int, Sequence[NodeObservation]] = {}
    for first in (True, False):
        some = [each for each in asked if (each.discovered_at is None and each.miss_reason is None) is first]
        if some:
            nodes, since = sorted({each.node for each in some}), min(since_of[each.id] for each in some)
            said = records.node_observations(nodes, since, until)
            out |= {each.id: said[each.node] for each in some}
    return out


def _looked_at(policy: RebalancerPolicy) -> dict[str, float]:
    """Pool -> interval in seconds of the strategy for hot nodes, infinite where none is periodic; pools without one are
    left out."""
    out: dict[str, float] = {}
    for strategy in policy.strategies:
        if strategy.BALANCE != "Spread":
            continue
        for pool in strategy.pools or tuple(each.name for each in policy.pools):
            out[pool] = min(out.get(pool, math.inf), strategy.period)
    return out


def _end_of_the_one_before(episode: HotEpisode, stored: Sequence[HotEpisode]) -> float:
    ends = [
        each.ended_at
        for each in stored
        if each.node == episode.node and each.started_at < episode.started_at and each.ended_at is not None
    ]
    return max(ends, default=-math.inf)


def _paused(episode: HotEpisode, said: Sequence[NodeObservation], pauses: Sequence[Pause], cluster: str) -> bool:
    """Whether a pause covers the whole episode. Its start isn't recorded, so the refusals decide."""
    names = {"global": "", "cluster": "", "pool": episode.pool, "node": episode.node}
    scopes = {Scope.of(kind, cluster, name) for kind, name in names.items()}
    found = [each for each in said if each.finding is not None and not each.dry_run]
    return (
        any(each.scope in scopes for each in pauses)
        and bool(found)
        and all(Reason.PAUSED in each.refusals and not each.evictions for each in found)
    )


def count_days(
    records: EffectRecords,
    policy: RebalancerPolicy,
    span: SloWindow,
    attributed: Sequence[HotEpisode],
    judged: Callable[[float], Sequence[VerifiedForecast]],
) -> None:
    """Roll up today, the days of newly attributed episodes, and once an hour the days before, for late counts.

    Raises ConnectError.
    """
    today = day_of(span.now)
    first = min([today, day_of(span.began), *(day_of(each.started_at) for each in attributed)])
    if span.new_hour:
        first = min(first, today - COUNT_AGAIN_DAYS)
    # a day with pruned details must not be counted again
    first = max(first, day_of(span.now - max(policy.effect.detail_retention, KEPT_SECONDS)) + 1)
    since, until = first * float(DAY_SECONDS), span.now + 1.0
    drains = records.drains(since - SAVING_SECONDS)
    removed = [each.removed_at for each in drains if each.removed_at is not None]
    hours = records.hours(min(removed), until) if removed else ()
    rows = day_rows(
        cluster=policy.cluster,
        days=range(first, today + 1),
        until=span.now if span.until is None else span.until,
        episodes=records.episodes(since, until),
        assessments=records.assessments(since, until, step=Step.SETTLED),
        judged=judged(since - LOOKAHEAD_SECONDS),
        drains=drains,
        saved=saved_core_hours(drains, hours),
        replaces=records.days(first, today + 1),
    )
    records.roll_up(rows)
