"""Strategies that end pods and empty nodes by their age or state."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rebalancer.policy.schema.strategies.base import ARGS, NAME, PodArgs, StrategyBase
from rebalancer.policy.schema.types import (
    AsTuple,
    Duration,
    FieldError,
    Names,
    NonEmpty,
    Section,
    Selector,
    at_least,
    at_most,
)


class RestartsArgs(PodArgs):
    """Arguments of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[int, Field(ge=1)] = 100
    """A pod is evicted if its containers restarted at least this often in total."""
    including_init_containers: bool = False
    """Whether restarts of init containers count."""
    states: Names = ()
    """If set, only pods in one of these states: a phase, or a container's waiting reason such as CrashLoopBackOff."""
    other_node: bool = False
    """Whether a pod is evicted only where its replacement lands on another node."""


class LifeTimeArgs(PodArgs):
    """Arguments of PodLifeTime."""

    max_pod_life_time: Annotated[Duration, at_least(60)] = 7 * 86_400.0
    """Older pods are evicted, oldest first."""
    states: Names = ()
    """If set, only pods in one of these states: a phase, the pod's status reason, or a container's waiting or
    termination reason."""
    including_init_containers: bool = False
    """Whether the states of init containers count."""
    other_node: bool = False
    """Whether a pod is evicted only where its replacement lands on another node."""


class FailedPodsArgs(PodArgs):
    """Arguments of RemoveFailedPods."""

    reasons: Names = ()
    """If set, only pods with one of these reasons, of the pod or of a container."""
    exit_codes: Annotated[tuple[int, ...], AsTuple] = ()
    """If set, only pods with a container that exited with one of these codes."""
    including_init_containers: bool = False
    """Whether reasons and exit codes of init containers count."""
    exclude_owner_kinds: Names = ()
    """Kinds of direct owners whose pods are not evicted."""
    min_pod_lifetime: Duration = 3600.0
    """Younger pods are kept for inspection."""


class MaintenanceArgs(Section):
    """Arguments of NodeMaintenance. `nodeSelector`, `annotation` and `nodes` each select nodes; at least one is
    required."""

    node_selector: Selector | None = None
    """Nodes with these labels."""
    annotation: NonEmpty | None = None
    """Nodes with this annotation, as `key` or `key=value`."""
    nodes: Names = ()
    """Nodes by name."""
    wave_label: NonEmpty | None = "topology.kubernetes.io/zone"
    """Node label whose values form waves: the next wave begins when all nodes of the current one are drained. null:
    one wave of all nodes."""
    max_concurrent_nodes: Annotated[int, Field(ge=1)] = 2
    """Maximum number of nodes of a wave drained at a time."""

    @model_validator(mode="after")
    def _something_is_chosen(self) -> "MaintenanceArgs":
        if self.node_selector is None and self.annotation is None and not self.nodes:
            raise FieldError("nodeSelector", "expected nodeSelector, annotation or nodes")
        if self.node_selector is not None and self.node_selector.is_empty:
            raise FieldError("nodeSelector", "expected labels: an empty selector would drain every node")
        return self


class MakeRoomArgs(PodArgs):
    """Arguments of MakeRoom. Namespaces and labels are those of the pending pods, not of the pods that are moved."""

    pending_for: Annotated[Duration, at_least(30)] = 120.0
    """Time that a pod has been pending, before others are moved for it. Longer than an autoscaler takes to add a
    node, where there is one."""
    max_moves: Annotated[int, Field(ge=1, le=20)] = 5
    """Maximum number of pods moved for one pending pod."""
    hold_for: Annotated[Duration, at_least(60)] = 600.0
    """Time that the room is held with a soft taint while the pod is pending, up to `softTaint.maxAge`."""


class PoolPreferenceArgs(PodArgs):
    """Arguments of PoolPreference."""

    order: Names
    """Names of pools, the best first."""
    after_room_for: Annotated[Duration, at_least(60), at_most(21_600)] = 600.0
    """How long a node of a better pool has had room for a pod, before the pod goes there."""

    @model_validator(mode="after")
    def _in_order(self) -> "PoolPreferenceArgs":
        if len(set(self.order)) < max(len(self.order), 2):
            raise FieldError("order", f"expected two pools or more, each once, got {', '.join(self.order) or 'none'}")
        return self


class RemovePodsHavingTooManyRestarts(StrategyBase):
    """Evicts pods whose containers restart too often."""

    MODULE = "lifecycle.too_many_restarts"

    name: Annotated[Literal["RemovePodsHavingTooManyRestarts"], NAME]
    args: Annotated[RestartsArgs, ARGS] = RestartsArgs()


class PodLifeTime(StrategyBase):
    """Evicts pods that exceed a maximum age."""

    MODULE = "lifecycle.pod_life_time"

    name: Annotated[Literal["PodLifeTime"], NAME]
    args: Annotated[LifeTimeArgs, ARGS] = LifeTimeArgs()


class RemoveFailedPods(StrategyBase):
    """Evicts failed pods."""

    MODULE = "lifecycle.failed_pods"

    name: Annotated[Literal["RemoveFailedPods"], NAME]
    args: Annotated[FailedPodsArgs, ARGS] = FailedPodsArgs()


class NodeMaintenance(StrategyBase):
    """Drains selected nodes in waves and keeps them cordoned until they are no longer selected."""

    MODULE = "lifecycle.node_maintenance"
    CORDONS = True

    name: Annotated[Literal["NodeMaintenance"], NAME]
    args: Annotated[MaintenanceArgs, ARGS]


class MakeRoom(StrategyBase):
    """Moves the fewest pods that let a pending pod be scheduled."""

    MODULE = "lifecycle.make_room"

    name: Annotated[Literal["MakeRoom"], NAME]
    args: Annotated[MakeRoomArgs, ARGS] = MakeRoomArgs()


class PoolPreference(StrategyBase):
    """Moves pods back to a better pool that has had room for them for long enough."""

    MODULE = "lifecycle.pool_preference"

    name: Annotated[Literal["PoolPreference"], NAME]
    args: Annotated[PoolPreferenceArgs, ARGS]

    @property
    def ordered_pools(self) -> tuple[str, ...]:
        return self.args.order

    @property
    def past_seconds(self) -> float:
        """So far back that a look at most `look_gap` before `afterRoomFor` is among the samples."""
        return self.args.after_room_for + self.look_gap

    @property
    def look_gap(self) -> float:
        """Longest time between two cycles for which a room that both see has been there between them."""
        return max(self.args.after_room_for / 10, 5 * self.interval)


LIFECYCLE = (
    RemovePodsHavingTooManyRestarts,
    PodLifeTime,
    RemoveFailedPods,
    NodeMaintenance,
    MakeRoom,
    PoolPreference,
)
