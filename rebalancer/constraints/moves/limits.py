"""Usage of limits, as a plan sees it: the ledger's entries, with this plan's own moves counted in.

The ledger has the last word, in one transaction for each eviction; this view lets a plan avoid denied reservations and
puts the numbers into the refusal.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from math import isfinite

from rebalancer.constraints.moves.scopes import RULE_OF
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import Check, Denied, LedgerEntry, Pause, Scope
from rebalancer.model.notation.figures import clock_time, size
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.types import format_duration


class LimitUsage:
    """The ledger's entries at one moment, and this plan's moves."""

    def __init__(self, entries: Sequence[LedgerEntry], *, now: float, max_wait: float) -> None:
        """`max_wait` (seconds): the longest delay of a move by spacing."""
        self._now = now
        self._max_wait = max_wait
        self._at: dict[Scope, list[float]] = {}
        self._in_flight: dict[Scope, int] = {}
        self._pull_bytes: dict[Scope, float] = {}
        for entry in sorted(entries, key=lambda each: each.at):
            self._at.setdefault(entry.scope, []).append(entry.at)
            self._in_flight[entry.scope] = self._in_flight.get(entry.scope, 0) + entry.in_flight
            self._pull_bytes[entry.scope] = self._pull_bytes.get(entry.scope, 0.0) + entry.pull_bytes * entry.in_flight

    def used(self, check: Check) -> int:
        """The current usage of a check's limit."""
        if check.kind == "inFlight":
            return self._in_flight.get(check.scope, 0)
        if check.kind == "bytes":
            return round(self._pull_bytes.get(check.scope, 0.0))
        return self._within(check.scope, self._now - check.per_seconds)

    def _within(self, scope: Scope, since: float) -> int:
        times = self._at.get(scope, [])
        return len(times) - bisect_right(times, since)

    def last(self, scope: Scope, *, before: float) -> float | None:
        """Time of the scope's newest entry before `before`."""
        times = self._at.get(scope, [])
        at = bisect_left(times, before)
        return times[at - 1] if at else None

    def due(self, checks: Sequence[Check]) -> float | Denied:
        """When a move may be made (spacing may delay it), or the check that denies it."""
        not_before = self._now
        for check in (each for each in checks if each.kind == "spacing"):
            times = self._at.get(check.scope)
            if times:
                not_before = max(not_before, times[-1] + check.per_seconds)
        if not_before - self._now > self._max_wait:
            worst = max(
                (each for each in checks if each.kind == "spacing" and each.scope in self._at),
                key=lambda each: self._at[each.scope][-1] + each.per_seconds,
            )
            return Denied(check=worst, used=1, next_at=not_before)
        denied = [found for check in checks if (found := self._denied(check)) is not None]
        if not denied:
            return not_before
        # the one that denies longest: an earlier retry is in vain
        return max(denied, key=lambda each: float("inf") if each.next_at is None else each.next_at)

    def passes(self, checks: Sequence[Check], *, within: float) -> bool:
        """Whether nothing denies the move once all replacements in flight are Ready and `within` seconds have gone."""
        until = self._now + within
        for check in checks:
            if check.kind == "spacing" and (times := self._at.get(check.scope)):
                if times[-1] + check.per_seconds > until:
                    return False
                continue
            denied = self._denied(check)
            if denied is None:
                continue
            landing = check.kind in ("inFlight", "bytes") and check.at_most >= max(check.amount, 1)
            if not landing and (denied.next_at is None or denied.next_at > until):
                return False
        return True

    def advance(self, now: float) -> None:
        """See the windows as they are at a later time."""
        self._now = max(self._now, now)

    def _denied(self, check: Check) -> Denied | None:
        # spacing has its due time above, separation the ledger: entries don't tell clusters apart
        if check.kind in ("spacing", "separation", "pause"):
            return None
        used = self.used(check)
        if check.kind == "bytes":
            fits = used + check.amount <= check.at_most
            return None if fits else Denied(check=check, used=used, next_at=None)
        if used < check.at_most:
            return None
        if check.kind == "inFlight" or check.at_most == 0:
            return Denied(check=check, used=used, next_at=None)
        times = self._at[check.scope]
        # when enough of them have left the window
        return Denied(check=check, used=used, next_at=times[-check.at_most] + check.per_seconds)

    def count(self, eviction: Eviction, *, at: float) -> None:
        """Count a move of this plan."""
        for scope in eviction.scopes:
            insort(self._at.setdefault(scope, []), at)
            self._in_flight[scope] = self._in_flight.get(scope, 0) + 1
            self._pull(scope, eviction.pull_bytes)

    def release(self, eviction: Eviction) -> None:
        """Count an earlier eviction as landed: no longer in flight, but still in its windows."""
        for scope in eviction.scopes:
            if self._in_flight.get(scope, 0) > 0:
                self._in_flight[scope] -= 1
                self._pull(scope, -eviction.pull_bytes)

    def uncount(self, eviction: Eviction, *, at: float) -> None:
        """Refund a move of this plan that did not happen."""
        for scope in eviction.scopes:
            self._at[scope].remove(at)
            self._in_flight[scope] -= 1
            self._pull(scope, -eviction.pull_bytes)

    def _pull(self, scope: Scope, amount: float) -> None:
        # an unknown amount is not summed; a limit denies it
        if scope.kind == "pulls" and isfinite(amount):
            self._pull_bytes[scope] = max(self._pull_bytes.get(scope, 0.0) + amount, 0.0)


def refusal_for(denied: Denied) -> Refusal:
    """The limit with its numbers: `service shop/cart: 2 of 2 in 1h, next at 14:05`."""
    if denied.pause is not None:
        return paused(denied.pause)
    check = denied.check
    span = format_duration(check.per_seconds)
    match check.kind:
        case "rate":
            text = f"{check.scope}: {denied.used} of {check.at_most} in {span}"
        case "spacing":
            text = f"{check.scope}: at least {span} between two"
        case "inFlight":
            text = f"{check.scope}: {denied.used} of {check.at_most} in flight"
        case "bytes":
            text = f"{check.scope}: {_pulled(denied)}"
        case "separation":
            detail = f"{check.scope}: at least {span} between two clusters"
            return Refusal.of(Reason.MOVED_IN_OTHER_CLUSTER, detail, next_at=denied.next_at)
    if denied.next_at is not None:
        text += f", next at {clock_time(denied.next_at)}"
    code = RULE_OF[check.scope.kind].reason
    assert code is not None
    return Refusal(code=code, message=text, next_at=denied.next_at)


def _pulled(denied: Denied) -> str:
    check, limit = denied.check, size(denied.check.at_most)
    if not isfinite(check.amount):
        return f"how much this one has to pull isn't known, {limit} may be pulled at once"
    if check.amount > check.at_most:
        return f"this one needs {size(check.amount)}, only {limit} may be pulled at once"
    return f"{size(denied.used)} of {limit} being pulled, this one needs {size(check.amount)}"


def paused(pause: Pause) -> Refusal:
    """The pause: scope, end, operator and reason."""
    until = "until resumed" if pause.until is None else f"until {clock_time(pause.until)}"
    return Refusal.of(
        Reason.PAUSED, f"{pause.scope} {until} by {pause.created_by}: {pause.reason}", next_at=pause.until
    )


def describe_check(check: Check) -> str:
    """`2 in 1h`, `30s apart`, `1 in flight`, `20Gi being pulled`."""
    span = format_duration(check.per_seconds)
    return {
        "rate": f"{check.at_most} in {span}",
        "spacing": f"{span} apart",
        "separation": f"{span} apart over clusters",
        "inFlight": f"{check.at_most} in flight",
        "bytes": f"{size(check.at_most)} being pulled",
    }[check.kind]
