"""Pauses, eviction backoff and cooldowns."""

from collections.abc import Mapping, Sequence

from rebalancer.constraints.moves.limits import LimitUsage, paused
from rebalancer.constraints.pauses.scale_up import ScaleUp
from rebalancer.model.decisions.drains import DrainedNode, InVain, in_vain_in_a_row
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import EVERY_NODE, EvictionBackoff, Pause, ReplacementLineage
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation import figures
from rebalancer.model.notation.figures import clock_time
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.safety import BackoffPolicy, Cooldowns


def backoff_seconds(policy: BackoffPolicy, count: int) -> float:
    """Backoff after the `count`-th ineffective or refused eviction (1 = the first), in seconds."""
    # bounded, for 2.0 ** 5000 overflows
    steps = min(count - 1, 64)
    return min(policy.initial * policy.factor**steps, policy.max)


REMEMBERED_SECONDS = 30 * DAY_SECONDS
"""A node that was last emptied in vain longer ago starts over."""


def emptied_in_vain(drains: Sequence[DrainedNode], policy: BackoffPolicy) -> dict[str, InVain]:
    """Node -> how often it was emptied in vain in a row, and until when it is not drained again. `drains`: of the last
    REMEMBERED_SECONDS."""
    return {
        node: InVain(count=len(times), until=times[-1] + backoff_seconds(policy, len(times)))
        for node, times in in_vain_in_a_row(drains).items()
    }


class EvictionCooldowns:
    """Refuses moves for pauses, backoff, repeated evictions and cooldowns."""

    def __init__(
        self,
        *,
        cooldowns: Cooldowns,
        view: LimitUsage,
        backoffs: Sequence[EvictionBackoff],
        lineages: Mapping[str, ReplacementLineage],
        pauses: Sequence[Pause],
        scale_ups: Mapping[str, ScaleUp],
        now: float,
    ) -> None:
        """`view` holds the ledger's entries of the longest cooldown. `scale_ups`: by pool. `now` is the cycle's start:
        later entries are this cycle's own."""
        self._cooldowns = cooldowns
        self._view = view
        self._backoffs = {(each.node, each.service_identity): each for each in backoffs if each.until > now}
        self._lineages = lineages
        self._pauses = {each.scope: each for each in pauses if each.until is None or each.until > now}
        self._scale_ups = scale_ups
        self._now, self._clock = now, now

    def advance(self, now: float) -> None:
        """See the cooldowns as they are at a later time of the same cycle."""
        self._clock = max(self._clock, now)

    def add(self, backoff: EvictionBackoff) -> None:
        """Count a backoff that began in this cycle."""
        self._backoffs[backoff.node, backoff.service_identity] = backoff

    def refuses(self, move: Eviction) -> Refusal | None:
        """Why the move may not be made now."""
        for scope in move.scopes:
            if (pause := self._pauses.get(scope)) is not None:
                return paused(pause)
        for node, code in ((EVERY_NODE, Reason.WEBHOOK_BACKOFF), (move.node, Reason.EVICTION_BACKOFF)):
            found = self._backoffs.get((node, move.service_identity))
            if found is not None and found.bars(move.resource):
                times = f"{found.count} times" if found.count > 1 else "once"
                detail = f"{found.reason} ({times}), next at {clock_time(found.until)}"
                return Refusal.of(code, detail, next_at=found.until)
        if (refusal := self._again(move)) is not None:
            return refusal
        scale_up = self._scale_ups.get(move.pool)
        if move.in_plan.cools and scale_up is not None and self._clock < scale_up.until:
            detail = f"{move.pool}: {scale_up.detail}, next at {clock_time(scale_up.until)}"
            return Refusal.of(Reason.COOLDOWN_POOL, detail, next_at=scale_up.until)
        return self._cooldown(move)

    def _again(self, move: Eviction) -> Refusal | None:
        """A strategy's repeated eviction of the same lineage: the cause has come back. The backoff grows each time."""
        if not move.in_plan.once:
            return None
        moves = [at[move.strategy] for at in self._lineage(move.uid) if move.strategy in at]
        if not moves:
            return None
        times, due = len(moves), max(moves) + backoff_seconds(self._cooldowns.backoff, len(moves))
        if due <= self._clock:
            return None
        often = f"{times} times" if times > 1 else "once"
        detail = f"{move.strategy} moved its predecessors {often} already, next at {clock_time(due)}"
        return Refusal.of(Reason.REPEATED_EVICTION, detail, next_at=due)

    def predecessors(self, uid: str) -> int:
        """How often predecessors of the pod were evicted, one after the other."""
        return len(self._lineage(uid))

    def _lineage(self, uid: str) -> list[Mapping[str, float]]:
        """Of each eviction of the pod's predecessors: strategy -> its time."""
        out: list[Mapping[str, float]] = []
        waiting, seen = [uid], {uid}
        while waiting:
            found = self._lineages.get(waiting.pop())
            if found is None or found.uids <= seen:
                continue
            out.append(found.moved)
            waiting += found.uids - seen
            seen |= found.uids
        return out

    def _cooldown(self, move: Eviction) -> Refusal | None:
        counted, cooldowns = {scope.kind: scope for scope in move.scopes}, self._cooldowns
        for kind, code, seconds in (
            ("node", Reason.COOLDOWN_NODE, cooldowns.node),
            ("service", Reason.COOLDOWN_SERVICE, cooldowns.service),
            ("serviceNode", Reason.COOLDOWN_SERVICE_NODE, cooldowns.service_node),
        ):
            scope = counted[kind]
            last = self._view.last(scope, before=self._now)
            if last is not None and self._clock - last < seconds:
                ago = figures.age(self._clock - last)
                due = last + seconds
                return Refusal.of(code, f"{scope}: {ago} ago, next at {clock_time(due)}", next_at=due)
        return None
