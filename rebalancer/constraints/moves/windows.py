"""Change windows of every scope that a move touches. All must be open.

A service has its own windows in the annotation `rebalancer.dev/change-window` of its pods, set in the workload's pod
template: a snapshot keeps no annotations of workloads or namespaces.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.notation.figures import clock_time
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.schedule import DAY_SECONDS
from rebalancer.policy.schema.windows import (
    SEARCH_DAYS,
    Spans,
    Window,
    WindowState,
    common_spans,
    decided_by,
    is_open,
    open_spans,
    parse_change_window,
    state_of_annotation,
)

CHANGE_WINDOW = "rebalancer.dev/change-window"

Key = tuple[Window, ...] | str


def annotation_of(pod: Pod) -> str | None:
    """The change windows of the pod's service, unparsed."""
    return pod.template.annotations.get(CHANGE_WINDOW)


class Windowed(NamedTuple):
    """What determines a pod's windows: pods with the same key are open at the same times."""

    pool: str | None
    """Name of the pool."""
    level: str
    """Name of the service level."""
    annotation: str | None
    """The service's own windows, unparsed."""


@dataclass(frozen=True, kw_only=True)
class ChangeWindows:
    """The windows of every scope, for one cycle. States are cached for each set of windows and `now`."""

    cluster: str
    windows: Mapping[Scope, tuple[Window, ...]]
    """Of scopes that have any, widest first."""
    _memo: dict[Key, tuple[float, WindowState]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        *,
        cluster: str,
        global_windows: tuple[Window, ...] = (),
        cluster_windows: tuple[Window, ...] = (),
        pools: Mapping[str, tuple[Window, ...]] | None = None,
        levels: Mapping[str, tuple[Window, ...]] | None = None,
    ) -> "ChangeWindows":
        """Windows of all clusters, of this cluster, and by name of its pools and service levels."""
        named = {
            Scope.of("global"): global_windows,
            Scope.of("cluster", cluster): cluster_windows,
            **{Scope.of("pool", cluster, name): windows for name, windows in (pools or {}).items()},
            **{Scope.of("level", cluster, name): windows for name, windows in (levels or {}).items()},
        }
        return cls(cluster=cluster, windows={scope: windows for scope, windows in named.items() if windows})

    @classmethod
    def of_policy(cls, policy: RebalancerPolicy) -> "ChangeWindows":
        """Every window of a policy."""
        return cls.of(
            cluster=policy.cluster,
            global_windows=policy.windows.global_,
            cluster_windows=policy.windows.cluster,
            pools={pool.name: pool.windows for pool in policy.pools},
            levels={level.name: level.windows for level in policy.service_levels.levels},
        )

    def state(self, scope: Scope, *, now: float) -> WindowState:
        """State of a scope's own windows at `now` (seconds since the epoch). A scope without windows is open."""
        return self._remembered(self.windows.get(scope, ()), now)

    def state_of_service(self, annotation: str, *, now: float) -> WindowState:
        """State of the windows in a service's annotation. An invalid annotation is closed."""
        return self._remembered(annotation, now)

    def refuses(
        self, *, pool: str | None, level: str, annotation: str | None, now: float, service: str = ""
    ) -> Refusal | None:
        """Why nothing may move at `now` (seconds since the epoch), or None when all windows are open.

        `pool` and `level` are names, `annotation` is the text of the service's own windows, `service` is for the
        message. Of several closed scopes the message names the one that opens last, an invalid one first.
        """
        states = [(str(scope), self.state(scope, now=now)) for scope in self._scopes(pool, level)]
        if annotation is not None:
            states.append((f"service {service}".rstrip(), self.state_of_service(annotation, now=now)))
        closed = [(name, state) for name, state in states if not state.open]
        if not closed:
            return None
        name, state = max(closed, key=lambda each: (each[1].broken, each[1].next_open or math.inf))
        code = Reason.WINDOW_INVALID if state.broken else Reason.WINDOW_CLOSED
        return Refusal.of(code, f"{name}: {describe(state)}", next_at=state.next_open)

    def sets(self, of: Windowed) -> list[Key]:
        """The sets of windows that must all be open; the service's is its annotation, unparsed."""
        out: list[Key] = [self.windows.get(scope, ()) for scope in self._scopes(of.pool, of.level)]
        return out if of.annotation is None else [*out, of.annotation]

    def _scopes(self, pool: str | None, level: str) -> tuple[Scope, ...]:
        return (
            Scope.of("global"),
            Scope.of("cluster", self.cluster),
            Scope.of("pool", self.cluster, pool or ""),
            Scope.of("level", self.cluster, level),
        )

    def _remembered(self, key: Key, now: float) -> WindowState:
        found = self._memo.get(key)
        if found is None or found[0] != now:
            state = state_of_annotation(key, now) if isinstance(key, str) else is_open(key, now)
            found = self._memo[key] = (now, state)
        return found[1]


class Outlook:
    """When windows are open in [now, end). Each set of windows is computed once."""

    def __init__(self, book: ChangeWindows, *, now: float, end: float) -> None:
        """`now` and `end` are in seconds since the epoch."""
        self._book, self._now, self._end = book, now, end
        self._own: dict[Key, Spans] = {}
        self._common: dict[Windowed, Spans] = {}

    def open_spans(self, of: Windowed) -> Spans:
        """When all of them are open, cut at `now` and `end`. An invalid annotation never is."""
        found = self._common.get(of)
        if found is None:
            each = [self._spans(key) for key in self._book.sets(of)]
            found = self._common[of] = common_spans(each, now=self._now, end=self._end)
        return found

    def decided_by(self, of: Windowed, at: float, *, opens: bool) -> Window:
        """The window that opens (or closes) them at `at`: a begin (or an end) of their spans that isn't cut."""
        key = next(key for key in self._book.sets(of) if at in self._spans(key)[0 if opens else 1])
        return decided_by(_read(key), at, opens=opens)

    def _spans(self, key: Key) -> Spans:
        found = self._own.get(key)
        if found is None:
            try:
                found = open_spans(_read(key), now=self._now, end=self._end)
            except ValueError:
                found = np.empty(0), np.empty(0)
            self._own[key] = found
        return found


def next_opening(book: ChangeWindows, of: Windowed, *, now: float) -> tuple[float, Window] | None:
    """When windows that are closed at `now` are all open next, and the window that opens last; None where they aren't
    within 400 days."""
    for days in SEARCH_DAYS:
        outlook = Outlook(book, now=now, end=now + days * DAY_SECONDS)
        if len(begins := outlook.open_spans(of)[0]):
            at = float(begins[0])
            return at, outlook.decided_by(of, at, opens=True)
    return None


def _read(key: Key) -> tuple[Window, ...]:
    return parse_change_window(key) if isinstance(key, str) else key


def describe(state: WindowState) -> str:
    """A state as text: "closed until 2026-01-19 21:00 UTC"."""
    if state.broken:
        return state.because
    word = "open" if state.open else "closed"
    if state.until is None:
        return f"{word}, no change within 400 days"
    return f"{word} until {clock_time(state.until)}"
