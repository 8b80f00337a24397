"""Limits as the ledger counts them: scopes, checks, and what stood in the way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

ScopeKind = Literal[
    "global", "cluster", "pool", "node", "namespace", "level", "service", "serviceNode", "landing", "pulls"
]


# keys of these start with the cluster's name
_IN_CLUSTER = ("pool", "node", "namespace", "level", "serviceNode", "landing", "pulls")
_SHOWN = {"pulls": "pool"}
"""How a kind is told to people, where that isn't its name."""


class Scope(NamedTuple):
    """What a limit counts over. Sorting gives the order in which rows are locked."""

    kind: str
    """A ScopeKind."""
    key: str
    """Empty for global; the cluster's name; `cluster/pool` (also of `pulls`, the pool where replacements land),
    `cluster/node`, `cluster/namespace`, `cluster/level`; the service's identity, which is the same across clusters."""

    def __str__(self) -> str:
        shown = self.key.split("/", 1)[1] if self.kind in _IN_CLUSTER else self.key
        kind = _SHOWN.get(self.kind, self.kind)
        return f"{kind} {shown}" if shown else kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition on one scope.

    `rate`: at most `at_most` reservations in any `per_seconds`. `spacing`: none within `per_seconds` of another.
    `separation`: none by another cluster within `per_seconds` (a service's scope).
    `inFlight`: at most `at_most` whose replacement is not Ready yet. `bytes`: these have at most `at_most` bytes of
    images to pull, with the `amount` of this one counted in. `pause`: nobody has paused the scope.
    """

    scope: Scope
    kind: Literal["rate", "spacing", "separation", "inFlight", "bytes", "pause"]
    at_most: int
    per_seconds: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Somebody stopped evictions in a scope."""

    scope: Scope
    reason: str
    who: str
    until: float | None
    """Seconds since the epoch; None = until resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """A check that is used up."""

    check: Check
    used: int
    next_at: float | None
    """Seconds since the epoch when it may be tried again; None where only an event (a replacement Ready) helps."""
    pause: Pause | None = None
    """Of a check of kind `pause`."""

    @classmethod
    def by(cls, pause: Pause) -> "Denied":
        """A pause that was made meanwhile."""
        check = Check(scope=pause.scope, kind="pause", at_most=0)
        return cls(check=check, used=0, next_at=pause.until, pause=pause)


class LedgerEntry(NamedTuple):
    """One reservation as one scope counts it."""

    scope: Scope
    at: float
    """Seconds since the epoch, by the ledger's clock."""
    in_flight: bool
    pull_bytes: float = 0.0
    """Of a `pulls` scope while it is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionBackoff:
    """A service whose move off a node did not help."""

    service_identity: str
    node: str
    until: float
    """Seconds since the epoch."""
    count: int
    """How many times."""
    reason: str


class ReplacementLineage(NamedTuple):
    """Whose place a pod took: of several pods of a service that were on their way at once, nobody knows which."""

    uids: frozenset[str]
    """Of the pods that we evicted."""
    moved: Mapping[str, float]
    """Strategy that wanted one of them gone -> when, seconds since the epoch; of several the last."""


class RemoteReadiness(NamedTuple):
    """A service's replicas in the other clusters, as they reported them."""

    ready: int
    """A report that is too old counts as none."""
    desired: int
    clusters: int
    """How many of the others run it."""
