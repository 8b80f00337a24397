"""Hot nodes by the standard, held against what our cycles said of them, and counted by days.

Told again for as long as more may become known: while a node is hot, shortly after, and until it is known whether our
evictions helped. The result depends on nothing but the records, so telling it twice is telling it once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.effect.discovery import EARLY_SECONDS, LOOKAHEAD_SECONDS, attribute_episode
from rebalancer.effect.rates import day_of, day_rows
from rebalancer.model.effect import Assessment, EffectRecords, HotEpisode, NodeObservation, Outcome, Step
from rebalancer.model.forecasts import VerifiedForecast
from rebalancer.model.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.limits import Pause, Scope
from rebalancer.model.reason import Reason
from rebalancer.policy import RebalancerPolicy

JUST_OVER_SECONDS = 1800.0
"""An episode that ended so lately is told again: a cycle may have been at work."""
OFTEN_SECONDS = 6 * HOUR_SECONDS
SELDOM_SECONDS = 2 * DAY_SECONDS
"""A node that is hot for longer than the first is told once an hour, for longer than the second when it has cooled:
all that was said of it is read each time. So long an episode waits for its assessment, too."""
COUNT_AGAIN_DAYS = 2
"""A forecast is judged, and an assessment made, up to so many days after the day that it counts for."""
KEPT_SECONDS = 3 * DAY_SECONDS
"""Details are kept for at least so long, whatever the policy says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloWindow:
    """What was read of the standard now; seconds since the epoch."""

    began: float
    until: float | None
    """None: nothing was read."""
    behind: bool
    """There is more that can be read."""
    now: float

    @property
    def new_hour(self) -> bool:
        """Whether an hour has ended in it."""
        return self.until is not None and self.began // HOUR_SECONDS < self.until // HOUR_SECONDS


def attribute_episodes(
    records: EffectRecords, policy: RebalancerPolicy, span: SloWindow, pauses: Callable[[], Sequence[Pause]]
) -> list[HotEpisode]:
    """Those of which more may be known by now, as they are told now. Raises ConnectError."""
    over = span.began - JUST_OVER_SECONDS
    stored = records.episodes(min(over, span.now - SELDOM_SECONDS), span.now + 1.0)
    settled: list[Assessment] = []
    if any(each.evictions or each.ended_at is None or each.ended_at >= over for each in stored):
        earliest = min(each.started_at for each in stored) - LOOKAHEAD_SECONDS
        settled = [each for each in records.assessments(earliest, span.now + 1.0) if each.step is Step.SETTLED]
    asked = [each for each in stored if _may_have_more(each, settled, span, over)]
    if not asked:
        return []
    every = _looked_at(policy)
    slowest = max(every.values(), default=0.0)
    since_of = {each.id: _said_since(each, policy, max(slowest, EARLY_SECONDS)) for each in asked}
    node_observations = _node_observations(records, asked, since_of, span)
    in_force = pauses()
    out = []
    for each in asked:
        until = math.inf if each.ended_at is None else each.ended_at
        said = [one for one in node_observations[each.id] if since_of[each.id] <= one.at <= until]
        told = attribute_episode(
            each,
            said,
            covered=each.pool in every,
            every_seconds=every.get(each.pool, slowest),
            paused=_paused(each, said, in_force, policy.cluster),
            settled=[one for one in settled if one.node == each.node],
            after=_end_of_the_one_before(each, stored),
        )
        out.append(told)
    records.put_episodes([told for told, before in zip(out, asked, strict=True) if told != before])
    return out


def _may_have_more(episode: HotEpisode, settled: Sequence[Assessment], span: SloWindow, over: float) -> bool:
    if episode.discovered_at is None and episode.miss_reason is None:
        return True
    if episode.ended_at is None:
        lasted = span.now - episode.started_at
        return lasted < OFTEN_SECONDS or (lasted < SELDOM_SECONDS and span.new_hour)
    if episode.ended_at >= over:
        return True
    # evicted from, and not known yet whether that helped
    return (
        bool(episode.evictions)
        and episode.cooled is None
        and any(
            each.node == episode.node
            and each.outcome not in (None, Outcome.UNKNOWN)
            and episode.discovered_at is not None
            and each.last_eviction_at >= episode.discovered_at
            for each in settled
        )
    )


def _said_since(episode: HotEpisode, policy: RebalancerPolicy, early: float) -> float:
    """From when on cycles may have said something of it: a day before where forecasts act, and nobody has asked yet."""
    if episode.discovered_at is None and episode.miss_reason is None and policy.forecast.mode == "Act":
        return episode.started_at - LOOKAHEAD_SECONDS
    return min(episode.started_at - early, math.inf if episode.discovered_at is None else episode.discovered_at)


def _node_observations(
    records: EffectRecords, asked: Sequence[HotEpisode], since_of: Mapping[int, float], span: SloWindow
) -> dict[int, Sequence[NodeObservation]]:
    """By the episode's row. Those that are asked for the first time are read by themselves: they look far back."""
    # what a cycle said after that time may be of an episode that wasn't read yet
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
    """Pool -> how often a strategy looks for hot nodes in it, in seconds; not one where none does."""
    out: dict[str, float] = {}
    for strategy in policy.strategies:
        if strategy.BALANCE != "Spread":
            continue
        for pool in strategy.pools or tuple(each.name for each in policy.pools):
            out[pool] = min(out.get(pool, math.inf), strategy.interval)
    return out


def _end_of_the_one_before(episode: HotEpisode, stored: Sequence[HotEpisode]) -> float:
    ends = [
        each.ended_at
        for each in stored
        if each.node == episode.node and each.started_at < episode.started_at and each.ended_at is not None
    ]
    return max(ends, default=-math.inf)


def _paused(episode: HotEpisode, said: Sequence[NodeObservation], pauses: Sequence[Pause], cluster: str) -> bool:
    """Whether a pause that is in force kept all its pods there. When it began isn't known: the refusals tell."""
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
    told: Sequence[HotEpisode],
    judged: Callable[[float], Sequence[VerifiedForecast]],
) -> None:
    """Roll up today, the days of episodes that are told anew, and once an hour those before: what is counted late.

    Raises ConnectError.
    """
    today = day_of(span.now)
    first = min([today, day_of(span.began), *(day_of(each.started_at) for each in told)])
    if span.new_hour:
        first = min(first, today - COUNT_AGAIN_DAYS)
    # a day whose details are dropped in part must not be counted again
    first = max(first, day_of(span.now - max(policy.effect.detail_retention, KEPT_SECONDS)) + 1)
    since, until = first * float(DAY_SECONDS), span.now + 1.0
    rows = day_rows(
        cluster=policy.cluster,
        days=range(first, today + 1),
        now=span.now,
        episodes=records.episodes(since, until),
        assessments=records.assessments(since, until),
        judged=judged(since - LOOKAHEAD_SECONDS),
        replaces=records.days(first, today + 1),
    )
    records.roll_up(rows)
