"""Replacement first: a Deployment runs one pod more until that one is Ready, then the pod that is to move goes.

A surge is written before the first call, and every step is decided from what is there: another process goes on with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from rebalancer.model.decisions.eviction import Answer, Eviction
from rebalancer.model.reason import Refusal


class SurgeState(StrEnum):
    """How far a surge is."""

    STARTED = "Started"
    """Written; the Deployment may have been scaled up."""
    GROWN = "Grown"
    """The Deployment was scaled up; the additional pod is waited for."""
    SHRINKING = "Shrinking"
    """The additional pod was Ready; the Deployment is scaled back."""
    UNDOING = "Undoing"
    """The Deployment gets its replicas back, and the pod stays."""
    LEAVING = "Leaving"
    """The replicas were changed by others, and are left as they are."""
    MOVED = "Moved"
    """Over: the pod has left its node."""
    UNDONE = "Undone"
    """Over: everything is as before."""
    LEFT = "Left"
    """Over: the replicas are as others have set them."""


OVER = (SurgeState.MOVED, SurgeState.UNDONE, SurgeState.LEFT)
FAILED = (SurgeState.UNDONE, SurgeState.LEFT)
"""Over, and the pod was not moved."""
FORWARD = (SurgeState.STARTED, SurgeState.GROWN, SurgeState.SHRINKING)

SWITCHED_OFF = "replacement first was switched off"
STOPPED = "rebalancer was stopped"
PAUSED = "evictions are paused"
NO_FAULT = frozenset({SWITCHED_OFF, STOPPED, PAUSED})
"""Reasons of an undone surge that say nothing about its service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """One surge. Times are seconds since the epoch, by the ledger's clock."""

    id: int
    eviction: int
    """Row of its eviction."""
    namespace: str
    deployment: str
    deployment_uid: str
    pod: str
    """Name of the pod that is to move."""
    pod_uid: str
    replicas: int
    """Of the Deployment, before."""
    state: SurgeState
    reason: str
    """Why it did not move the pod; empty while it may."""
    deadline_at: float
    """The additional pod is waited for until then."""
    quiet_at: float
    """No call without an answer can be under way from then on."""

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def service(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.deployment}"


class DeploymentSeen(NamedTuple):
    """A Deployment as it is now."""

    uid: str
    version: str
    """Its resourceVersion."""
    replicas: int
    recreates: bool
    """Its strategy is Recreate."""
    paused: bool
    up_to_date: bool
    """Its controller has seen the newest spec."""
    pods: int
    """Of all its ReplicaSets."""
    updated: int
    """Of the newest one."""
    available: int
    """Ready for as long as its minReadySeconds ask for."""
    managers: tuple[str, ...]
    """Who set the replicas, by managedFields; empty where that isn't known."""


class PodSeen(NamedTuple):
    """A pod as it is now."""

    name: str
    version: str
    """Its resourceVersion."""
    node: str
    """Empty while it is not bound."""
    ready: bool
    terminating: bool
    cost: str | None
    """Its deletion cost; None without the annotation."""
    in_progress: bool = False
    """Another component carries out an eviction of it."""


class SurgeView(NamedTuple):
    """What a step is decided by."""

    deployment: DeploymentSeen | None
    """None where there is none, or another one of its name."""
    pod: PodSeen | None
    """The pod that is to move; None where it is gone."""
    others: Sequence[PodSeen]
    """The other pods of its ReplicaSet that have not finished."""


class SurgeCall(StrEnum):
    """A call that changes something."""

    MARK = "mark"
    """The pod gets the lowest deletion cost."""
    UNMARK = "unmark"
    GROW = "scale up"
    SHRINK = "scale back"


class SurgeCalls(Protocol):
    """The API server, as far as surges need it."""

    manager: str
    """Our own name in managedFields."""

    def look(self, surge: Surge) -> SurgeView:
        """Raises ConnectError, UnsafeDataError."""
        ...

    def send(
        self,
        call: SurgeCall,
        surge: Surge,
        view: SurgeView,
        *,
        may: Callable[[], bool] = lambda: True,
        dry_run: bool = False,
    ) -> Refusal | None:
        """One call, on the condition that nothing has changed since the view; `may` is asked right before it leaves.
        None: it was carried out; a refusal: it was not. Raises ConnectError where that isn't known."""
        ...


class SurgeRecords(Protocol):
    """The rows of one cluster's surges."""

    def now(self) -> float: ...

    def begin(self, surge: Surge) -> Surge | None:
        """Write it, before its first call; `id` is given here. None where the Deployment has one that isn't over."""
        ...

    def open(self) -> Sequence[Surge]:
        """Those that are not over, oldest first."""
        ...

    def get(self, id_: int) -> Surge: ...

    def change(self, surge: Surge, to: Surge) -> bool:
        """Write state, reason and `quiet_at`; False where the row is not as `surge` any more."""
        ...

    def paused(self, surge: Surge) -> bool:
        """Whether an operator has paused a scope of its eviction."""
        ...


class Surges(Protocol):
    """Starts and advances surges."""

    def begin(self, eviction: Eviction, *, server_dry_run: bool) -> Answer:
        """Start the surge of a reserved eviction. Never raises for an API error."""
        ...

    def turn(self) -> int:
        """Advance every surge as far as it goes without waiting; how many are not over."""
        ...

    def undo(self, *, seconds: float) -> None:
        """Undo what is open, and begin no other, before the process ends. What takes longer is left to the next
        leader."""
        ...
