"""What a cluster did over some days: the input of a replay.

Read from Prometheus or from the daemon's journal, and completed by the cluster's objects of today. Pods are columns;
their usage is in steps of five minutes. Times are seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.columns import Columns, Empty
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import LabelSelector
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.measured.history import STEP_SECONDS, DayBlock, Grid
from rebalancer.model.notation.arrays import Bools, Floats, Ints

Offsets = NDArray[np.int64]

PASSING_TAINTS = (
    SOFT_TAINT,
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "karpenter.sh/unregistered",
    "node.cilium.io/agent-not-ready",
)
"""Beginnings of the keys of taints that come and go: our own, and those of conditions, start and removal. The nodes of
a recording have none of them."""


def is_passing(key: str) -> bool:
    """Whether a taint with this key comes and goes."""
    return key.startswith(PASSING_TAINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPods(Columns):
    """Every pod that was there at some time of the recording."""

    names: Annotated[list[str], Empty("")]
    uids: Annotated[list[str], Empty("")]
    namespace: Annotated[Ints, Empty(-1)]
    """Index into `Recording.namespaces`."""
    owner: Annotated[Ints, Empty(-1)]
    """Index into `Recording.owners` of the controlling owner, -1 for a bare pod."""
    template: Annotated[Ints, Empty(-1)]
    """Index into `Recording.pod_templates`."""
    node: Annotated[Ints, Empty(-1)]
    """Index into `Recording.nodes` of the node that it was bound to, -1 if it never was."""
    created: Annotated[Floats, Empty(0.0)]
    bound: Annotated[Floats, Empty(np.inf)]
    """When it was bound to its node; inf if it never was."""
    ready: Annotated[Floats, Empty(np.inf)]
    """When it was Ready first; inf if it never was."""
    ended: Annotated[Floats, Empty(np.inf)]
    """When it was gone or had finished; inf while it was still there at the end of the recording."""
    priority: Annotated[NDArray[np.int64], Empty(0)]
    replaced: Annotated[Ints, Empty(-1)]
    """Index of the pod that it replaced after an eviction by rebalancer, -1 for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedUsage:
    """Usage of one resource in steps of STEP_SECONDS from the start of the recording on; units are those of `Usage`.

    NaN = not known.
    """

    pod_values: NDArray[np.float32]
    """(values,) of all pods, one pod after the other: means over each step."""
    pod_start: Offsets
    """(pods + 1,) index of each pod's first value; the last element is the number of values."""
    pod_first: Ints
    """(pods,) step of each pod's first value."""
    node: Grid
    """(nodes, steps) of the whole machine, what isn't in any pod included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReadings:
    """CPU as the cycles of that time read it: means over their rate window, where `RecordedUsage` has means of steps.

    Columns of length `readings`, in the order of their times. A cycle has a reading of now, and readings of some nodes
    over its stabilization window. All millicores are known.
    """

    at: Floats
    """End of the rate window. Two readings may have the same."""
    window_seconds: Floats
    """Length of the rate window."""
    cycle: Bools
    """Whether a cycle began then."""
    node_start: Offsets
    """(readings + 1,) index of each reading's first node."""
    node: Ints
    """Indices into `Recording.nodes`."""
    node_millicores: NDArray[np.float32]
    departed_millicores: NDArray[np.float32]
    """The part of it that is of pods that had left, where a cycle began; elsewhere 0."""
    pod_start: Offsets
    """(readings + 1,) index of each reading's first pod. Not all pods are kept."""
    pod: Ints
    """Indices into `RecordedPods`."""
    pod_millicores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.at)

    def only(self, nodes: Ints, pods: Ints) -> "RecordedReadings":
        """Of some nodes and pods. `nodes`, `pods`: their new indices, -1 for those that are left out."""
        of_node, of_pod = nodes[self.node] >= 0, pods[self.pod] >= 0
        return replace(
            self,
            node_start=_starts(of_node, self.node_start),
            node=nodes[self.node[of_node]],
            node_millicores=self.node_millicores[of_node],
            departed_millicores=self.departed_millicores[of_node],
            pod_start=_starts(of_pod, self.pod_start),
            pod=pods[self.pod[of_pod]],
            pod_millicores=self.pod_millicores[of_pod],
        )


def _starts(chosen: Bools, starts: Offsets) -> Offsets:
    """Of the chosen values. A sum over all values would take several times as much memory as they do."""
    counts = [np.count_nonzero(chosen[first:end]) for first, end in pairwise(starts.tolist())]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBudget:
    """A PodDisruptionBudget over the recording."""

    namespace: str
    name: str
    selector: LabelSelector | None
    desired_healthy: Ints
    """(steps,)"""
    since: float = -np.inf
    until: float = np.inf
    evicts_unhealthy: bool = False


class RecordedAlert(NamedTuple):
    """An alert that fired."""

    at: float
    until: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class RecordedTaint(NamedTuple):
    """A node with our soft taint. The evictions of the recording were made while nodes had it."""

    node: int
    """Index into `Recording.nodes`."""
    since: float
    until: float


class Gap(NamedTuple):
    """Something that history doesn't say, and what is taken instead."""

    text: str
    """A sentence without its full stop."""
    pods: int
    """Pods that it touches; 0 where it is not about pods."""


CAME_BACK = "{} left and came back under the same name: not Ready, cordoned and without usage meanwhile"
"""Text of a gap, for a number of nodes."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """See the module. A step is [start + i * STEP_SECONDS, start + (i + 1) * STEP_SECONDS)."""

    source: str
    """`Prometheus at URL`, `the journal`, or what else it is from."""
    cluster: str
    start: float
    """Midnight UTC or any other multiple of STEP_SECONDS."""
    steps: int
    nodes: Nodes
    """Every node that was there at some time, as it was last; from the journal with the labels and taints that it had
    for the longest time. Without taints that pass."""
    node_joined: Floats
    """(nodes,) -inf where it was there before the recording."""
    node_left: Floats
    """(nodes,) inf where it was there at the end."""
    node_ready: Bools
    """(nodes, steps)"""
    node_unschedulable: Bools
    """(nodes, steps)"""
    namespaces: tuple[str, ...]
    owners: tuple[Owner, ...]
    """Owners of pods and their parents; `desired`, `ready` and `rolling_out` mean nothing."""
    pod_templates: PodTemplateTable
    pods: RecordedPods
    usage: Mapping[str, RecordedUsage]
    """Resource -> its usage; CPU is among them."""
    readings: RecordedReadings | None = None
    """None where no cycles are recorded."""
    budgets: tuple[RecordedBudget, ...] = ()
    today: ClusterSnapshot
    """What a snapshot has besides nodes, pods, owners and budgets: namespaces' labels, quotas, claims, autoscalers. It
    is taken as it is today."""
    before: Mapping[str, Sequence[DayBlock]] = field(default_factory=dict)
    """Resource -> days before the recording, oldest first, for the forecasts of its first days."""
    alerts: tuple[RecordedAlert, ...] = ()
    soft_taints: tuple[RecordedTaint, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def end(self) -> float:
        """End of its last step."""
        return self.start + self.steps * STEP_SECONDS
