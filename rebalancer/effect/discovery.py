"""Attributes a hot episode to the cycles that discovered it, or to a miss reason.

An episode is discovered when a cycle had a finding for the node while it was hot or shortly before: a pool's high may
be lower than the hot-node SLO's, and within the settling time the node is hot from the load that was acted on. A
forecast's finding counts for a day, since it is for a later peak; which peak is not recorded.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from rebalancer.effect.blocked import by_count, why_blocked
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.figures import age, counted, percent
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import MissReason
from rebalancer.model.records.effect import Assessment, HotEpisode, NodeObservation, Outcome, Step
from rebalancer.policy.schema.types import format_duration

LOOKAHEAD_SECONDS: Final = DAY_SECONDS
"""The longest forecast horizon."""

EARLY_SECONDS: Final = 900.0
"""Other findings count so long before the episode's start, or for the strategy's interval: the default settling
time."""

JITTER: Final = 1.1
"""Cycles run at their interval, give or take a tenth."""

IGNORED_OBSERVATIONS: Final = 3
"""No cycle for so many intervals: the daemon was down."""

BLIND: Final = (MissReason.NO_METRICS, MissReason.NOT_READY, MissReason.NODE_LEAVING, MissReason.DAEMON_DOWN)
"""Miss reasons of cycles that could not evaluate the node."""

MISSES_BY_CODE: Final = (
    MissReason.NOT_READY,
    MissReason.NODE_LEAVING,
    MissReason.NOT_COVERED,
    MissReason.NO_METRICS,
    MissReason.COOLS_BY_ITSELF,
    MissReason.STABILIZATION_WINDOW,
)
"""Miss reasons that a code of a node or cycle can have; the first decides where a cycle gave several."""


def attribute_episode(
    episode: HotEpisode,
    node_observations: Sequence[NodeObservation],
    *,
    covered: bool,
    every_seconds: float,
    paused: bool,
    settled: Sequence[Assessment],
    after: float = -math.inf,
) -> HotEpisode:
    """The episode with discovery, evictions and reasons set again from the records.

    `node_observations`: of its node, oldest first, from a day before its start to its end, or to now. `covered`: a
    strategy evaluates its pool, every `every_seconds`, infinite for none that is periodic. `paused`: evictions from
    it were paused for the whole episode. `settled`: assessments of its node. `after`: end of the node's previous
    episode; findings until then belong to that one. An episode that is still open and that no cycle has evaluated
    yet is neither discovered nor missed.
    """
    ended_at = math.inf if episode.ended_at is None else episode.ended_at
    hot = [each for each in node_observations if episode.started_at <= each.at <= ended_at]
    measured = [episode.measured_peak_share, *(each.share for each in hot)]
    bare = replace(
        episode,
        discovered_at=None,
        discovery_trigger="",
        strategy="",
        evictions=0,
        measured_peak_share=max((share for share in measured if share is not None), default=None),
        miss_reason=None,
        blocked_reason=None,
        codes=None,
        detail="",
        cooled=None,
    )
    early = max(every_seconds, EARLY_SECONDS) if math.isfinite(every_seconds) else EARLY_SECONDS
    found = [
        each
        for each in node_observations
        if each.finding is not None and max(episode.started_at - _ahead(each, early), after) <= each.at <= ended_at
    ]
    if found:
        return _found(bare, found, paused=paused, settled=settled)
    if not covered:
        return replace(
            bare, miss_reason=MissReason.NOT_COVERED, detail=f"{MissReason.NOT_COVERED.sentence}; {_seen(bare)}"
        )
    missed = _missed(bare, hot, every_seconds)
    if missed is None:
        return bare
    miss, detail = missed
    return replace(bare, miss_reason=miss, detail=f"{detail}; {_seen(bare)}")


def _ahead(observation: NodeObservation, early: float) -> float:
    return LOOKAHEAD_SECONDS if observation.trigger == Trigger.FORECAST else early


# ---- found


def _found(
    bare: HotEpisode, found: Sequence[NodeObservation], *, paused: bool, settled: Sequence[Assessment]
) -> HotEpisode:
    first = found[0]
    acting = [each for each in found if each.evictions and not each.dry_run]
    evictions = sum(each.evictions for each in acting)
    delay = first.at - bare.started_at
    when = f"discovered {age(abs(delay))} {'after' if delay >= 0 else 'before'} it became hot"
    attributed = replace(
        bare, discovered_at=first.at, discovery_trigger=first.trigger, strategy=first.finding or "", evictions=evictions
    )
    if acting:
        cooled = _cooled(bare.node, {each.cycle for each in acting}, settled)
        return replace(attributed, detail=f"{when}, {counted(evictions, 'eviction')}", cooled=cooled)
    stuck, codes, why = why_blocked(found, paused=paused)
    return replace(attributed, blocked_reason=stuck, codes=codes, detail=f"{when}, nothing evicted: {why}")


def _cooled(node: str, cycles: set[str], settled: Sequence[Assessment]) -> bool | None:
    """Whether the node cooled after the last cycle with evictions from it; earlier ones were not enough."""
    of_it = [
        each
        for each in settled
        # the SLO is one of CPU
        if each.step is Step.SETTLED and each.node == node and each.cycle in cycles and each.resource == CPU
    ]
    if not of_it:
        return None
    last = max(of_it, key=lambda each: each.last_eviction_at)
    outcome = last.outcome
    # made after an outage it shows what has happened since
    return None if last.late or outcome in (None, Outcome.UNKNOWN) else outcome is Outcome.COOLED


# ---- missed


def _missed(episode: HotEpisode, hot: Sequence[NodeObservation], every_seconds: float) -> tuple[MissReason, str] | None:
    """(reason, sentence); None: not decided yet."""
    if not hot:
        if episode.ended_at is None:
            return None
        span = episode.ended_at - episode.started_at
        if math.isinf(every_seconds):
            return MissReason.NOT_EVALUATED, f"hot for {age(span)}, and no periodic strategy evaluates it"
        if span <= every_seconds * JITTER:
            every = format_duration(every_seconds)
            return MissReason.NOT_EVALUATED, f"hot for {age(span)}, and it is evaluated every {every}"
        return MissReason.DAEMON_DOWN, f"no cycle ran in the {age(span)} that it was hot"
    ended_at = hot[-1].at if episode.ended_at is None else episode.ended_at
    moments = [episode.started_at, *(each.at for each in hot), ended_at]
    gap = max(later - earlier for earlier, later in pairwise(moments))
    span = ended_at - episode.started_at
    if gap > IGNORED_OBSERVATIONS * every_seconds and gap * 2 >= span:
        return (
            MissReason.DAEMON_DOWN,
            f"no cycle ran for {age(gap)} of the {age(span)} it was hot",
        )
    miss = _most(Counter(_said(each) for each in hot))
    return miss, _miss_text(miss, hot)


def _said(observation: NodeObservation) -> MissReason:
    """The miss reason of one cycle."""
    codes = {*observation.refusals, observation.stopped}
    groups = {code.group for code in codes if code is not None}
    for miss in MISSES_BY_CODE:
        if miss in groups:
            return miss
    if observation.stopped is not None:
        return MissReason.DAEMON_DOWN
    if observation.high is None:
        return MissReason.NOT_EVALUATED
    if observation.share is None:
        return MissReason.NO_METRICS
    # measured over its high and not found: relief of a recent eviction is still in the measurement
    return MissReason.STABILIZATION_WINDOW if observation.share > observation.high else MissReason.BELOW_THRESHOLD


def _most(said: Counter[MissReason]) -> MissReason:
    """The most frequent blind reason where most cycles were blind, else hot but not long enough, else below high."""
    looks = said.total() - said[MissReason.NOT_EVALUATED]
    blind = [miss for miss in BLIND if said[miss]]
    worst = max(blind, key=lambda miss: said[miss], default=None)
    if worst is not None and sum(said[miss] for miss in blind) * 2 > looks:
        return worst
    for miss in (MissReason.COOLS_BY_ITSELF, MissReason.STABILIZATION_WINDOW, MissReason.BELOW_THRESHOLD):
        if said[miss]:
            return miss
    return MissReason.NOT_EVALUATED


def _miss_text(miss: MissReason, hot: Sequence[NodeObservation]) -> str:
    looked = [each for each in hot if _said(each) is not MissReason.NOT_EVALUATED]
    if miss is MissReason.NOT_EVALUATED:
        return f"{counted(len(hot), 'cycle')} ran, none evaluated it"
    known = [each for each in looked if each.share is not None and each.high is not None]
    if miss is MissReason.BELOW_THRESHOLD:
        return _measured(known)
    codes = Counter(
        code
        for each in looked
        for code in {*each.refusals, each.stopped}
        if code is not None and (isinstance(code.group, MissReason) or code is each.stopped)
    )
    text = f"{miss.sentence}: {by_count(codes)} in {counted(len(looked), 'cycle')}" if codes else miss.sentence
    return f"{text}; {_measured(known)}" if miss is MissReason.STABILIZATION_WINDOW and known else text


def _measured(known: Sequence[NodeObservation]) -> str:
    most = max(known, key=lambda each: each.share or 0.0)
    return f"measured at most {percent(most.share)}, high is {percent(most.high)}"


def _seen(episode: HotEpisode) -> str:
    return f"by the hot-node SLO {percent(episode.peak_share)} over {percent(episode.threshold)}"
