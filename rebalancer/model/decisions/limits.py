"""Limits as the ledger counts them: scopes, checks, and why a check denies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeKind:
    """What the scopes of one kind have in common."""

    in_cluster: bool = True
    """Each cluster has its own; else all clusters that share the database have one."""
    argument: str | None = None
    """The name as `pause` takes it after the kind and a slash; "" = the kind alone, None = cannot be paused."""
    shown: str = ""
    """The kind in texts, where that is not its name."""


SCOPE_KINDS: Mapping[str, ScopeKind] = {
    "global": ScopeKind(in_cluster=False, argument=""),
    "cluster": ScopeKind(argument=""),
    "pool": ScopeKind(argument="NAME"),
    "node": ScopeKind(argument="NAME"),
    "namespace": ScopeKind(argument="NAME"),
    "level": ScopeKind(argument="NAME"),
    "service": ScopeKind(in_cluster=False, argument="NAMESPACE/NAME"),
    "serviceNode": ScopeKind(),
    "landing": ScopeKind(),
    "pulls": ScopeKind(shown="pool"),
}
"""Every kind of scope, with its name as the ledger keeps it. `landing` is the target node; `pulls` the target pool,
for image pulls; `serviceNode` a service on a node."""


class Scope(NamedTuple):
    """What a limit counts over. Sorting gives the order in which rows are locked."""

    kind: str
    """A key of SCOPE_KINDS."""
    key: str
    """As the ledger keeps it; made by `of` only."""

    @classmethod
    def of(cls, kind: str, cluster: str = "", name: str = "") -> "Scope":
        """The scope of `name`; a kind that all clusters share ignores `cluster`."""
        if not SCOPE_KINDS[kind].in_cluster:
            return cls(kind, name)
        return cls(kind, f"{cluster}/{name}" if name else cluster)

    @classmethod
    def parse(cls, text: str, cluster: str) -> "Scope | None":
        """A scope as `pause` takes it, such as `pool/general`; None for any other text. See SCOPE_SYNTAX."""
        kind, _, name = text.partition("/")
        argument = SCOPE_KINDS[kind].argument if kind in SCOPE_KINDS else None
        if argument is None:
            return None
        if not argument:
            return cls.of(kind, cluster) if not name or (kind, name) == ("cluster", cluster) else None
        return cls.of(kind, cluster, name) if name and name.count("/") <= argument.count("/") else None

    @property
    def name(self) -> str:
        """The key without the cluster."""
        return self.key.partition("/")[2] if SCOPE_KINDS[self.kind].in_cluster else self.key

    def __str__(self) -> str:
        kind, name = SCOPE_KINDS[self.kind].shown or self.kind, self.name or self.key
        return f"{kind} {name}" if name else kind


def _syntax() -> str:
    alone = [kind for kind, facts in SCOPE_KINDS.items() if facts.argument == ""]
    named = [f"{kind}/{facts.argument}" for kind, facts in SCOPE_KINDS.items() if facts.argument]
    return f"{', '.join(alone)}, or one of {', '.join(named)}"


SCOPE_SYNTAX = _syntax()
"""What `Scope.parse` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition on one scope.

    `rate`: at most `at_most` reservations in any `per_seconds`. `spacing`: none within `per_seconds` of another.
    `separation`: none by another cluster within `per_seconds` (a service's scope).
    `inFlight`: at most `at_most` whose replacement is not Ready yet. `bytes`: these have at most `at_most` bytes of
    images to pull, with the `amount` of this one counted in. `pause`: the scope is not paused.
    """

    scope: Scope
    kind: Literal["rate", "spacing", "separation", "inFlight", "bytes", "pause"]
    at_most: int
    per_seconds: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """An operator's stop of evictions in a scope."""

    scope: Scope
    reason: str
    created_by: str
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
        """Denied by a pause."""
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


EVERY_NODE = ""
"""Node of a backoff that an admission webhook caused: it refuses a service's pods wherever they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionBackoff:
    """A service that stays on a node after ineffective evictions, or on every node after a webhook's refusal."""

    service_identity: str
    node: str
    """EVERY_NODE where it holds on every node."""
    until: float
    """Seconds since the epoch."""
    count: int
    """Number of ineffective or refused evictions."""
    reason: str
    resource: str = ""
    """The resource whose evictions are held back; empty = all."""

    def bars(self, resource: str) -> bool:
        """Whether it holds an eviction for a resource back; empty = for another goal, which any backoff does."""
        return not self.resource or not resource or self.resource == resource


class ReplacementLineage(NamedTuple):
    """Evicted predecessors of a replacement: a set, as concurrent replacements of a service are alike."""

    uids: frozenset[str]
    """UIDs of the evicted pods."""
    moved: Mapping[str, float]
    """Strategy -> when it evicted one of them, seconds since the epoch; of several the last."""


class RemoteReadiness(NamedTuple):
    """A service's replicas in the other clusters, as they reported them."""

    ready: int
    """Expired reports count as none."""
    desired: int
    clusters: int
    """How many of the other clusters run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLine:
    """Usage of one limit of one scope."""

    scope: Scope
    what: str
    in_bytes: bool
    """Unit of `used` and `left`: bytes, else evictions."""
    used: int
    left: int
    next_at: float | None
    """Seconds since the epoch when one more eviction fits; None where it fits now or after a replacement
    is Ready."""

    @property
    def unused(self) -> bool:
        """Whether nothing of it is used, and it holds nothing back."""
        return self.used == 0 and self.left > 0 and self.next_at is None
