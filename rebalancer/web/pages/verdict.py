"""The verdict on a cluster, the first line of the overview: is it working, is it safe, what is it waiting for.

It is made from the records that all replicas read, so a follower shows the leader's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rebalancer.model.decisions.limits import Pause
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.notation.figures import age, clock_time, counted
from rebalancer.model.records.cycles import CycleSummary, EvictionTotals

TOTALS_SECONDS = 86_400.0
"""Evictions are counted over so long: readers of several time zones have no common day."""
LATEST_CYCLES = 5
"""Cycles that are enough for a verdict: a few of users may have run since the daemon's last."""


class Tone(StrEnum):
    """How urgent a verdict is."""

    GOOD = "good"
    WATCH = "watch"
    WARN = "warn"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a verdict is made from. Times are seconds since the epoch."""

    now: float
    nodes: int
    hot: int
    """Nodes that are hot now."""
    unknown: int = 0
    """Nodes whose CPU is not known."""
    cycles: Sequence[CycleSummary] = ()
    """The newest ones, newest first."""
    cycle_seconds: float
    """A cycle is due so often; infinite where none is."""
    overdue_seconds: float
    """No cycle for longer means that none comes."""
    overdue: str = ""
    """Why the cycles of this replica are late, where it leads."""
    totals: EvictionTotals = field(default_factory=EvictionTotals)
    """Of the last TOTALS_SECONDS."""
    pauses: Sequence[Pause] = ()
    stopped_scopes: Sequence[str] = ()
    """Scopes whose circuit breaker is open: `the cluster`, `pool NAME`."""
    refusals: int = 0
    """Refused pods of nodes that are hot now."""
    database_problem: str = ""
    cluster_problem: str = ""
    """Why the nodes are not up to date."""

    @property
    def ended(self) -> CycleSummary | None:
        """The newest cycle that has ended; those that users ran themselves only where there is no other."""
        ended = [each for each in self.cycles if each.finished_at is not None]
        return next(
            (each for each in ended if each.trigger not in (Trigger.MANUAL, Trigger.APPROVAL)),
            ended[0] if ended else None,
        )

    @property
    def last_sign(self) -> float | None:
        """When a cycle last ended, or one that has not ended began."""
        return max((each.finished_at or each.started_at for each in self.cycles), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One line: a title in bold, with its punctuation, and the rest of the sentence."""

    tone: Tone
    title: str
    text: str


def verdict(facts: Facts) -> Verdict:
    """The verdict; of several the most severe."""
    problem = _failure(facts)
    if problem:
        return Verdict(tone=Tone.ALARM, title="Not working:", text=problem)
    if facts.ended is None:
        return Verdict(tone=Tone.WATCH, title="Starting:", text="no cycle has ended yet")
    rest = _joined(_evictions(facts.totals), _hot(facts), _paused_parts(facts.pauses))
    if facts.ended.dry_run:
        would = f"{counted(facts.totals.dry, 'pod')} would have been evicted in 24 h"
        return Verdict(tone=Tone.WARN, title="Dry run:", text=_joined(would, _hot(facts), _paused_parts(facts.pauses)))
    if facts.stopped_scopes:
        title = f"Not evicting in {', '.join(facts.stopped_scopes)}:"
        return Verdict(tone=Tone.ALARM, title=title, text=_joined("the circuit breaker is open", rest))
    whole = next((each for each in facts.pauses if _is_whole(each)), None)
    if whole is not None:
        return Verdict(tone=Tone.WARN, title="Paused:", text=_joined(_pause(whole), rest))
    if facts.hot:
        title = f"{facts.hot} of {counted(facts.nodes, 'node')} hot:"
        text = _joined(_next_step(facts), _evictions(facts.totals), _paused_parts(facts.pauses))
        return Verdict(tone=Tone.WARN if facts.totals.late else Tone.WATCH, title=title, text=text)
    if facts.totals.late or facts.totals.closed:
        return Verdict(tone=Tone.WARN, title="Working.", text=_sentence(rest))
    return Verdict(tone=Tone.GOOD, title="Working and safe.", text=_sentence(rest))


def _failure(facts: Facts) -> str:
    """Why nothing is evicted, where neither policy nor users want that; empty where it works."""
    if facts.database_problem:
        return "the database is not available, so nothing is evicted"
    if facts.cluster_problem and not facts.nodes:
        return f"the nodes are not known: {facts.cluster_problem}"
    silent = 0.0 if facts.last_sign is None else facts.now - facts.last_sign
    if silent > facts.overdue_seconds:
        return f"no cycle for {age(silent)}, and one is due every {age(facts.cycle_seconds)}"
    if facts.overdue:
        return f"no cycle in time: {facts.overdue}"
    if facts.ended is not None and facts.ended.stopped:
        return f"the last cycle decided nothing: {facts.ended.stopped}"
    if facts.nodes and facts.unknown == facts.nodes:
        return _joined("the CPU of no node is known", facts.cluster_problem)
    return ""


def _evictions(totals: EvictionTotals) -> str:
    if not totals.happened:
        return "no evictions in 24 h"
    if totals.replaced == totals.happened:
        return f"{counted(totals.happened, 'eviction')} in 24 h, {'all ' if totals.happened > 1 else ''}replaced"
    parts = {
        "replaced": totals.replaced,
        "in flight": totals.in_flight - totals.late,
        "late": totals.late,
        "closed without a Ready replacement": totals.closed,
    }
    shown = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    return f"{counted(totals.happened, 'eviction')} in 24 h, {shown}"


def _hot(facts: Facts) -> str:
    unknown = f", {facts.unknown} unknown" if facts.unknown else ""
    return f"{facts.hot} of {counted(facts.nodes, 'node')} hot{unknown}"


def _next_step(facts: Facts) -> str:
    """What a hot node waits for."""
    totals = facts.totals
    if totals.in_flight:
        oldest = "" if totals.oldest_at is None else f", {age(facts.now - totals.oldest_at)}"
        return f"waiting for {counted(totals.in_flight, 'replacement')}{oldest}"
    if facts.refusals:
        return f"{counted(facts.refusals, 'pod')} stay for the reasons below"
    if math.isinf(facts.cycle_seconds):
        return "cycles start by alerts alone"
    return f"a cycle is due every {age(facts.cycle_seconds)}"


def _is_whole(pause: Pause) -> bool:
    return pause.scope.kind in ("global", "cluster")


def _pause(pause: Pause) -> str:
    until = "until resumed" if pause.until is None else f"until {clock_time(pause.until)}"
    return f"by {pause.created_by} {until}: {pause.reason}"


def _paused_parts(pauses: Sequence[Pause]) -> str:
    parts = [str(each.scope) for each in pauses if not _is_whole(each)]
    return f"paused: {', '.join(parts)}" if parts else ""


def _joined(*parts: str) -> str:
    return "; ".join(each for each in parts if each)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
