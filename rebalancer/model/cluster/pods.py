"""Pods as columns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.columns import Columns, Empty
from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.notation.arrays import Bools, Floats, Ints

# Pod phases, as small numbers in the column.
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = range(5)


class PodStatus(NamedTuple):
    """A pod's status besides its phase. Most pods have the empty one."""

    reason: str = ""
    """The pod's own, such as Evicted or NodeLost."""
    containers: tuple[str, ...] = ()
    """Reasons why its containers wait or have ended: CrashLoopBackOff, ImagePullBackOff, OOMKilled."""
    init_containers: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    """Of its containers that have ended."""
    init_exit_codes: tuple[int, ...] = ()
    resizing: bool = False
    """The kubelet is changing its resources in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods(Columns):
    """Pods."""

    names: Annotated[list[str], Empty("")]
    uids: Annotated[list[str], Empty("")]
    namespace: Annotated[Ints, Empty(-1)]
    """Index into `ClusterSnapshot.namespaces`."""
    node: Annotated[Ints, Empty(-1)]
    """Index into `Nodes`, -1 while not bound (or bound to a node that is not listed)."""
    owner: Annotated[Ints, Empty(-1)]
    """Index into `ClusterSnapshot.owners` of the controlling owner, -1 for a bare pod."""
    template: Annotated[Ints, Empty(-1)]
    phase: Annotated[NDArray[np.int8], Empty(PENDING)]
    ready: Annotated[Bools, Empty(False)]
    terminating: Annotated[Bools, Empty(False)]
    created: Annotated[Floats, Empty(0.0)]
    started: Annotated[Floats, Empty(np.nan)]
    """Seconds since the epoch, NaN while not started."""
    unready_since: Annotated[Floats, Empty(np.nan)]
    """Seconds since the epoch when the condition Ready turned False: of a finished pod when it finished. NaN for a
    Ready pod, and where it isn't known."""
    ends: Annotated[Floats, Empty(np.nan)]
    """Seconds since the epoch when it ends at the latest, by its grace period or its activeDeadlineSeconds; NaN
    without."""
    priority: Annotated[NDArray[np.int64], Empty(0)]
    cpu_request_millicores: Annotated[Floats, Empty(0.0)]
    memory_request_bytes: Annotated[Floats, Empty(0.0)]
    cpu_scored_millicores: Annotated[Floats, Empty(0.0)]
    memory_scored_bytes: Annotated[Floats, Empty(0.0)]
    gated: Annotated[Bools, Empty(False)]
    """No scheduler places it now: it has scheduling gates, a claim that must be bound first, or it is bound to a node
    that isn't listed."""
    unschedulable: Annotated[Bools, Empty(False)]
    """The condition PodScheduled is False: its scheduler found no node for it. Set only while it is not bound."""
    nominated: Annotated[Ints, Empty(-1)]
    """Index of the node that it was nominated to (room is reserved there), -1 for none."""
    restarts: Annotated[Ints, Empty(0)]
    """Of its containers, summed."""
    init_restarts: Annotated[Ints, Empty(0)]
    """The same of its init containers, sidecars included."""
    status: Annotated[Ints, Empty(0)]
    """Index into `ClusterSnapshot.statuses`."""
    unreadable: Annotated[Bools, Empty(False)]
    """It can't be read in full, so what it needs isn't known. It stays, and where it is nothing else fits. Its requests
    are 0 in these columns: no sum of others' depends on it."""


REQUESTED = ("cpu_request_millicores", "memory_request_bytes", "cpu_scored_millicores", "memory_scored_bytes")
"""The columns of `Pods` that are those of their templates."""


def requested(templates: Iterable[PodTemplate]) -> dict[str, Any]:
    """(templates,) each column of REQUESTED."""
    rows = list(templates)
    return {name: np.array([getattr(each, name) for each in rows], dtype=np.float64) for name in REQUESTED}
