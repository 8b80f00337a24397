"""Scheduled events of a practice cluster: `steps` of a scenario. `Cluster` applies them."""

from typing import Literal

import msgspec

from rebalancer.lab.loads.cpu import Breaks
from rebalancer.lab.scenarios.specs import NodeSpec, WorkloadSpec


class _Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Base: `at_seconds` after the lab's start."""

    at_seconds: float


class Cordon(_Step, frozen=True, kw_only=True, tag="cordon"):
    node: str


class Uncordon(_Step, frozen=True, kw_only=True, tag="uncordon"):
    node: str


class Taint(_Step, frozen=True, kw_only=True, tag="taint"):
    """Running pods stay; only NoExecute evicts those that don't tolerate it."""

    node: str
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Untaint(_Step, frozen=True, kw_only=True, tag="untaint"):
    node: str
    key: str


class LabelNode(_Step, frozen=True, kw_only=True, tag="label-node"):
    """A label that is null is removed."""

    node: str
    labels: dict[str, str | None]


class LabelPods(_Step, frozen=True, kw_only=True, tag="label-pods"):
    """All pods of the workload at that time."""

    workload: str
    namespace: str = "default"
    labels: dict[str, str | None]


class EndContainers(_Step, frozen=True, kw_only=True, tag="end-containers"):
    """Of the workload's running pods; of those on `node` where one is named."""

    workload: str
    namespace: str = "default"
    node: str = ""
    how: Breaks = Breaks(after_seconds=0.0)


class AddNode(_Step, frozen=True, kw_only=True, tag="add-node"):
    node: NodeSpec


class RemoveNode(_Step, frozen=True, kw_only=True, tag="remove-node"):
    node: str


class DrainNode(_Step, frozen=True, kw_only=True, tag="drain-node"):
    """Its pods are evicted as their PDBs allow, then it is removed; see `node_drains.py`."""

    node: str
    within_seconds: float = 900.0
    """It is removed then, whatever is left."""


class FailZone(_Step, frozen=True, kw_only=True, tag="fail-zone"):
    """See `zones.py`."""

    zone: str


class RestoreZone(_Step, frozen=True, kw_only=True, tag="restore-zone"):
    zone: str


class RollOut(_Step, frozen=True, kw_only=True, tag="roll-out"):
    """A changed pod template, as by `kubectl rollout restart`."""

    workload: str
    namespace: str = "default"
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    image: str = ""


class Resize(_Step, frozen=True, kw_only=True, tag="resize"):
    """Other requests for a Deployment's pods, in place and for new ones; see `resizing.py`."""

    workload: str
    namespace: str = "default"
    requests: dict[str, str]


class AddWorkload(_Step, frozen=True, kw_only=True, tag="add-workload"):
    workload: WorkloadSpec


NodeStep = (
    Cordon | Uncordon | Taint | Untaint | LabelNode | AddNode | RemoveNode | DrainNode | FailZone | RestoreZone
)  # fmt: skip
WorkloadStep = LabelPods | EndContainers | RollOut | Resize | AddWorkload
Step = NodeStep | WorkloadStep
