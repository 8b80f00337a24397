"""What sets off a cycle: one queue for timer, alerts, forecast and people.

One cycle at a time runs for a cluster. What comes meanwhile is merged into one next request, never lost: two reasons to
look at a node are one look.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rebalancer.model.alerts import NodeMarks
from rebalancer.model.plan import Trigger

# what a cycle with several triggers is recorded as: the most urgent
_URGENCY = (Trigger.PERIODIC, Trigger.FORECAST, Trigger.ALERT, Trigger.MANUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which part of the cluster one reason asks to be looked at."""

    strategy: str | None = None
    """Name of the strategy; None = all."""
    pools: frozenset[str] | None = None
    """None = all that the strategy looks at."""
    nodes: frozenset[str] | None = None
    """None = all."""


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a cycle is to do."""

    trigger: Trigger = Trigger.MANUAL
    scopes: frozenset[Scope] = frozenset({EVERYTHING})
    """Looked at is what any of them asks for."""
    marks: Mapping[str, NodeMarks] = field(default_factory=dict)
    """Node -> what an alert calls hot there."""
    due: Mapping[str, float] = field(default_factory=dict)
    """Nodes that are to be relieved now, ahead of their peak -> when it is too late for that (they are hot by then)."""

    def merged(self, other: "Request") -> "Request":
        """Both in one."""
        return Request(
            trigger=max(self.trigger, other.trigger, key=_URGENCY.index),
            scopes=self.scopes | other.scopes,
            marks={**self.marks, **other.marks},
            due={**self.due, **other.due},
        )

    def nodes_for(self, strategy: str, pool_of_node: Mapping[str, str]) -> frozenset[str] | None:
        """The nodes that a strategy is to look at; None = all, empty = it isn't asked for."""
        mine = [scope for scope in self.scopes if scope.strategy in (None, strategy)]
        if any(scope.pools is None and scope.nodes is None for scope in mine):
            return None
        return frozenset(
            node
            for node, pool in pool_of_node.items()
            if any(
                (scope.pools is None or pool in scope.pools) and (scope.nodes is None or node in scope.nodes)
                for scope in mine
            )
        )


class TriggerQueue:
    """Holds at most one request: the merger of all that came since the last was taken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: Request | None = None
        self._woken = False

    def put(self, request: Request) -> None:
        """Ask for a cycle."""
        with self._changed:
            self._pending = request if self._pending is None else self._pending.merged(request)
            self._changed.notify_all()

    def wake(self) -> None:
        """End a `take` without a request: alerts have come, or it is time to stop."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def take(self, timeout_seconds: float, *, monotonic: Callable[[], float]) -> Request | None:
        """The next request; None when woken, or when there is none for so long."""
        end = monotonic() + timeout_seconds
        with self._changed:
            while self._pending is None and not self._woken and (left := end - monotonic()) > 0:
                self._changed.wait(left)
            request, self._pending, self._woken = self._pending, None, False
            return request
