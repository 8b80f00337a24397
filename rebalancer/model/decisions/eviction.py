"""The eviction record: one type from the plan to the assessment, in the ledger and in everything that is shown."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.notation.document import Count
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Refusal


class Outcome(StrEnum):
    """State of an eviction call."""

    PLANNED = "planned"
    """Recorded; the call has not been made, or a dry run."""
    EVICTED = "evicted"
    REFUSED = "refused"
    """The API server denied it."""
    FAILED = "failed"
    """The API server answered with an error, or the pod was gone."""
    UNKNOWN = "unknown"
    """The call timed out or was cut off: it may have happened. It stays counted until it is reconciled."""


MAY_HAVE_HAPPENED = (Outcome.PLANNED, Outcome.EVICTED, Outcome.UNKNOWN)
DID_NOT_HAPPEN = (Outcome.REFUSED, Outcome.FAILED)
"""Final outcomes of pods that were not disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The API server's answer to one eviction call."""

    outcome: Outcome
    refusal: Refusal | None = None
    retry_after_seconds: float | None = None
    in_background: bool = False
    """EVICTED: another component carries the eviction out, and the pod runs until then."""


class PodAmount(NamedTuple):
    """What a pod used of a resource on the node that it leaves."""

    amount: float
    """In the resource's own unit, such as bytes."""
    share: float
    """What its node is relieved of, as a share of its capacity, 0..1; NaN = not known."""


class TargetNode(NamedTuple):
    """A node on which the replacement may land, with its probability (those of one eviction sum to 1)."""

    node: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlan:
    """What a move is in the plan of its cycle. It is stored nowhere."""

    pod_index: int = -1
    """Index of the pod in the cycle's snapshot; -1 = read from the ledger."""
    node_index: int = -1
    """The same of the node."""
    cools: bool = False
    """The goal is to cool its node."""
    room_for: str = ""
    """The pending pod that room is made for, as `namespace/name`; empty = another goal."""
    once: bool = False
    """An eviction of a predecessor by the same strategy counts against it."""
    despite_progress: bool = False
    """The pod's annotation that its eviction is in progress doesn't count."""
    replacement_first: bool = False
    """The replacement is Ready before the pod goes."""


@dataclass(slots=True, kw_only=True)
class Planned:
    """What the planner decides of an eviction."""

    namespace: str
    pod: str
    """Name of the pod."""
    uid: str
    node: str
    """Name of the node that the pod leaves."""
    pool: str
    service: Service
    strategy: str
    reason: str
    cpu_millicores: float = math.nan
    """Real CPU."""
    resource: str = ""
    """The measured resource that its node is to be relieved of; empty = requests, another goal, or not known."""
    amounts: Mapping[str, PodAmount] = field(default_factory=dict)
    """Resource besides CPU -> what the pod used of it; those that are measured."""
    service_identity: str = ""
    """The service's identity, the same in every cluster."""
    level: str = ""
    """The service level; empty where the policy has none."""
    owner_uid: str = ""
    """UID of the service's top owner."""
    target_nodes: Sequence[TargetNode] = ()
    """Likeliest first; empty for a finished pod, which has no replacement."""
    target_pool: str = ""
    """Pool of the likeliest target node."""
    pull_bytes: float = 0.0
    """Image bytes to pull; of several likely target nodes, the most."""
    scopes: tuple[Scope, ...] = ()
    """Scopes of limits that count it, in locking order."""
    waits_for: str = ""
    """What the move waits for, as a phrase; empty = nothing."""
    in_plan: InPlan = InPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What the reservation in the ledger adds, before the call."""

    record: int | None = None
    """Row in the database."""
    cycle: str = ""
    trigger: str = ""
    """What started the cycle; a column of the cycle."""
    dry_run: bool = False
    planned_at: float = math.nan
    """When it was recorded, before the call."""
    not_before: float | None = None
    """Dry run: when spacing limits allow the call; None = at once."""
    lease_term: int | None = None
    ready_before: int = 0
    """Ready replicas of the service."""
    desired_before: int = 0
    """Desired replicas of the service."""
    grace_seconds: float = math.nan
    """The pod's termination grace period."""
    deadline_at: float = math.nan
    """The replacement is late after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the answer to the call adds."""

    outcome: Outcome = Outcome.PLANNED
    code: str | None = None
    """`Reason` of a refusal or failure."""
    detail: str = ""
    answered_at: float | None = None
    """The call was answered, or timed out."""
    reconciled_at: float | None = None
    """The unknown outcome was reconciled with the API server's state."""
    in_background: bool = False
    """The eviction is carried out by another component, as KubeVirt does by a live migration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The replacement's arrival, or what ended the wait for it."""

    late: bool = False
    replaced_at: float | None = None
    """The replacement was Ready."""
    replacement_pod: str = ""
    replacement_uid: str = ""
    replacement_node: str = ""
    closed_at: float | None = None
    """It is no longer in flight although no replacement was seen Ready."""
    closed_by: str = ""
    """Who closed it: a user, or `rebalancer` itself."""
    closed_reason: str = ""


@dataclass(slots=True, kw_only=True)
class Eviction(Planned):
    """One eviction, by the stages of its life.

    The planner makes it; reservation, answer and the replacement's arrival each add a record. A field that is a column
    of the table `evictions` has its name. Times are seconds since the epoch; None, NaN or empty = not known (yet).
    """

    reserved: Reserved = Reserved()
    answered: Answered = Answered()
    replaced: Replaced = Replaced()
    effect: str = ""
    """Outcome of the node's assessment after the settling time; a column of the assessment."""

    @property
    def target_node(self) -> str:
        """Name of the likeliest target node; empty where there is none."""
        return self.target_nodes[0].node if self.target_nodes else ""

    def share_of_node(self, resource: str, cpu_capacity_millicores: float) -> float:
        """What the pod used of a resource, as a share of the node that it leaves; NaN = not known."""
        if resource != CPU:
            return self.amounts[resource].share if resource in self.amounts else math.nan
        return self.cpu_millicores / cpu_capacity_millicores if cpu_capacity_millicores > 0 else math.nan

    @property
    def happened(self) -> bool:
        """Whether the pod was evicted, or may have been: no dry run."""
        return self.answered.outcome in MAY_HAVE_HAPPENED and not self.reserved.dry_run

    @property
    def full_name(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def replacement(self) -> str:
        """`namespace/pod` of the replacement; empty while it is not known."""
        return f"{self.namespace}/{self.replaced.replacement_pod}" if self.replaced.replacement_pod else ""

    @property
    def at(self) -> float:
        """When the pod was evicted: the answer's time (the later bound of the call), else the record's. In the
        background: when it had left."""
        answered_at, replaced_at = self.answered.answered_at, self.replaced.replaced_at
        if self.answered.in_background and replaced_at is not None:
            return replaced_at
        return self.reserved.planned_at if answered_at is None else answered_at


STAGES: Mapping[str, type] = {"in_plan": InPlan, "reserved": Reserved, "answered": Answered, "replaced": Replaced}
STAGE_OF: Mapping[str, str] = {each.name: stage for stage, kind in STAGES.items() for each in fields(kind)}
"""Field of a stage's record -> the stage. Other fields are the eviction's own."""
FIELDS: Mapping[str, Field[Any]] = {
    each.name: each for kind in (Eviction, *STAGES.values()) for each in fields(kind) if each.name not in STAGES
}
"""Every field by its name, whatever its stage."""


def value_of(eviction: Eviction, name: str) -> Any:
    """The value of a field, whatever its stage."""
    return getattr(getattr(eviction, STAGE_OF[name]) if name in STAGE_OF else eviction, name)


def eviction_of(**values: Any) -> Eviction:
    """The eviction with these fields, each of any stage; what is not given has its default."""
    stages = {
        stage: kind(**{name: values.pop(name) for name in [*values] if STAGE_OF.get(name) == stage})
        for stage, kind in STAGES.items()
    }
    return Eviction(**stages, **values)


# -- how evictions are shown: in documents, in tables of the terminal and the dashboard, and in reports

DOCUMENT_FIELDS = (
    *("namespace", "pod", "uid", "node", "pool", "service", "cpu_millicores", "target_node", "target_nodes"),
    *("outcome", "detail", "strategy", "reason"),
)
"""Fields of an eviction in JSON documents."""


class Column(NamedTuple):
    """A column of text."""

    title: str
    text: Callable[[Eviction], str]


COLUMNS = (
    Column("Reason", lambda each: f"{each.reason}; {each.answered.detail}" if each.answered.detail else each.reason),
)
"""Columns of every table of evictions, after those that have a form of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionCounts:
    """Evictions of a service in a report, counted by the value of a field."""

    triggers: Mapping[str, Count] = field(metadata={"of": "trigger"})
    """Trigger -> evictions."""

    @classmethod
    def count(cls, evictions: Sequence[Eviction]) -> "EvictionCounts":
        """Counts of `evictions`, by value."""
        values = {name: Counter(str(value_of(each, of)) for each in evictions) for name, of in COUNTED.items()}
        return cls(**{name: dict(sorted(counts.items())) for name, counts in values.items()})


COUNTED: Mapping[str, str] = {each.name: each.metadata["of"] for each in fields(EvictionCounts)}
"""Field of EvictionCounts -> field of the record."""
