"""The `strategies` section of the policy file: the strategies in use and their arguments.

Names and arguments are those of kubernetes-sigs/descheduler where they mean the same.
"""

import re
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from rebalancer.model.measured.usage import CPU
from rebalancer.policy.schema.types import AsTuple, Duration, FieldError, NonEmpty, Percent, Section, Selector, at_least

Globs = Annotated[tuple[str, ...], AsTuple]
Names = Annotated[tuple[NonEmpty, ...], AsTuple]
SpreadMode = Literal["DoNotSchedule", "ScheduleAnyway"]
AffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]


STUCK_SECONDS = 3600.0
"""A draining node that no pod could be evicted from for this long is uncordoned; longer if `cordonAfterDrain` is."""


class NamespaceFilter(Section):
    """Globs; `exclude` wins."""

    include: Globs = ("*",)
    """Namespaces whose pods may be evicted."""
    exclude: Globs = ("kube-system",)
    """Namespaces whose pods are never evicted."""


class Namespaces(Section):
    """Globs; `exclude` wins. `guards.namespaces` applies as well."""

    include: Globs = ("*",)
    """Namespaces that the strategy selects pods from."""
    exclude: Globs = ()
    """Namespaces that it ignores."""


class PodArgs(Section):
    """Which pods a strategy may select. Counts, such as a topology spread, still include all pods."""

    namespaces: Namespaces = Namespaces()
    """Filter by namespace."""
    label_selector: Selector = Selector()
    """Filter by pod labels."""


class UtilizationArgs(Section):
    """Arguments of LowNodeUtilization."""

    source: Literal["CPU", "Requests"] = "CPU"
    """Real CPU, or the requests of pods."""
    best_effort: bool = False
    """Whether pods are evicted from a node that even all of them together would not bring under `high`."""


class HighNodeUtilizationArgs(Section):
    """Arguments of HighNodeUtilization."""

    source: Literal["CPU", "Requests"] = "CPU"
    """What makes a node low: real CPU below the pool's `thresholds.low`, or requests below all of
    `requestThresholds.low`."""
    mode: Literal["Drain", "Release"] = "Drain"
    """Drain drains low nodes. Release evicts pods from nodes that are full by requests and idle by usage."""
    whole_nodes: bool = True
    """Drain: whether a node is left alone unless all its pods fit elsewhere. false: pods that fit are evicted."""
    drain_when_all_low: bool = True
    """Drain: whether nodes are drained while all nodes of their pool are low; then fuller low nodes take the pods.
    false: no node is, as in the community's descheduler."""
    max_concurrent_nodes: Annotated[int, Field(ge=1)] = 1
    """Drain: maximum number of nodes of the cluster at a time. Each is cordoned until it is drained, or uncordoned if
    that fails."""
    cordon_after_drain: Annotated[Duration, at_least(0)] = 1800.0
    """Drain: how long a drained node stays cordoned, for an autoscaler to remove it."""
    headroom: Annotated[float, Field(ge=0, le=50)] = 5.0
    """Percentage points below `target` that target nodes keep free: now, at their predicted peak and at the highest of
    the coming week."""
    resource: NonEmpty = CPU
    """Release: `cpu`, `memory`, or a name of `usage.prometheus.resources` that pods request too."""
    full: Percent = 85.0
    """Release: a node is full if at least this percentage of its allocatable `resource` is requested."""
    idle: Percent = 30.0
    """Release: a full node is idle if at most this percentage of its `resource` is in use."""
    release_target: Percent = 70.0
    """Release: requested percentage to which the node is relieved."""
    min_age: Annotated[Duration, at_least(0)] = 30 * 86_400.0
    """Release: minimum age of the pods evicted."""

    @model_validator(mode="after")
    def _release_in_order(self) -> "HighNodeUtilizationArgs":
        if self.release_target >= self.full:
            raise FieldError(
                "releaseTarget",
                f"expected releaseTarget < full, got releaseTarget {self.release_target:g} and full {self.full:g}",
            )
        return self


class DuplicatesArgs(PodArgs):
    """Arguments of RemoveDuplicates."""

    exclude_owner_kinds: Names = ()
    """Kinds of direct owners whose pods may share a node."""


class AntiAffinityArgs(PodArgs):
    """Arguments of RemovePodsViolatingInterPodAntiAffinity."""


class NodeAffinityArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[tuple[AffinityType, ...], AsTuple, Field(min_length=1)] = (
        "requiredDuringSchedulingIgnoredDuringExecution",
    )
    """Kinds of rules. For a preferred one a pod is evicted only if a better node is certain to take it."""


class NodeTaintsArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    """Whether PreferNoSchedule taints count, in addition to NoSchedule."""
    excluded_taints: Names = ()
    """Taints that do not count, as `key` or `key=value`."""
    included_taints: Names = ()
    """If set, only these taints count."""


class TopologySpreadArgs(PodArgs):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: Annotated[tuple[SpreadMode, ...], AsTuple, Field(min_length=1)] = ("DoNotSchedule",)
    """Kinds of constraints that count."""


class RestartsArgs(PodArgs):
    """Arguments of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[int, Field(ge=1)] = 100
    """A pod is evicted if its containers restarted at least this often in total."""
    including_init_containers: bool = False
    """Whether restarts of init containers count."""
    states: Names = ()
    """If set, only pods in one of these states: a phase, or a container's waiting reason such as CrashLoopBackOff."""


class LifeTimeArgs(PodArgs):
    """Arguments of PodLifeTime."""

    max_pod_life_time: Annotated[Duration, at_least(60)] = 7 * 86_400.0
    """Older pods are evicted, oldest first."""
    states: Names = ()
    """If set, only pods in one of these states: a phase, the pod's status reason, or a container's waiting or
    termination reason."""
    including_init_containers: bool = False
    """Whether the states of init containers count."""


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


class InterferenceArgs(PodArgs):
    """Arguments of Interference. Pressure comes from PSI, throttling from the CFS quota; both are shares of time."""

    node_pressure: Percent = 30.0
    """A node is affected if its tasks waited for CPU for at least this percentage of time."""
    pod_pressure: Percent = 30.0
    """A pod is affected if its tasks waited for at least this percentage of time while it used no more than it
    requests."""
    excess: Percent = 20.0
    """A pod is a noisy neighbour if it uses more than it requests by at least this percentage of the node's CPU."""


class ServiceSpreadArgs(PodArgs):
    """Arguments of ServiceSpread."""

    min_correlation: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Minimum correlation of the load profiles of two services that peak together."""
    min_days: Annotated[int, Field(ge=1)] = 3
    """Minimum days of history of a service."""
    min_share: Percent = 5.0
    """Minimum percentage of a node's CPU that one pod of the service uses at its peak."""
    feature: NonEmpty | None = None
    """Pod label: services with the same value should not share a node, whatever their load profiles."""


class Need(StrEnum):
    """Data that a strategy receives only if it declares the need."""

    DAYS = "days"
    """`StrategyView.days`: services' usual days, from the forecasts."""
    CONTENTION = "contention"
    """`Usage.contention`: how long tasks wait for CPU; Prometheus only."""


class StrategyBase(Section):
    """Base of all strategies. Upper-case class attributes declare what a strategy needs and does."""

    MODULE: ClassVar[str] = ""
    """The module in `rebalancer.strategies` with its `find`."""
    NEEDS: ClassVar[frozenset[Need]] = frozenset()
    CORDONS: ClassVar[bool] = False
    """Whether it may cordon nodes, which requires the permission to patch them."""
    BALANCE: ClassVar[Literal["Spread", "Pack"] | None] = None
    """Whether it spreads load over nodes or packs it onto fewer."""

    pools: Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] | None = None
    """Names of its pools. Default: all."""
    interval: Annotated[Duration, at_least(10)] = 120.0
    """Interval of its cycles for each pool, with a jitter of a tenth."""

    if TYPE_CHECKING:  # every strategy declares both, with types of its own
        name: str
        args: Any

    @property
    def by_cpu(self) -> bool:
        """Whether it finds nodes that are hot by real CPU."""
        return False

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"] | None:
        """The thresholds its pools must have."""
        return None

    @property
    def memory_seconds(self) -> float:
        """How far back it needs recent evictions."""
        return 0.0

    def repeats(self, other: "StrategyBase") -> bool:
        """Whether both do the same in a common pool. Pods can be selected in several ways, nodes cooled or drained
        in one only."""
        if self.by_cpu or self.pool_thresholds is not None:
            return (type(self), self.pool_thresholds) == (type(other), other.pool_thresholds)
        return self.model_dump(exclude={"pools", "interval"}) == other.model_dump(exclude={"pools", "interval"})


class LowNodeUtilization(StrategyBase):
    """Cools nodes above `high` to `target`, while other nodes are below `low`."""

    MODULE = "utilization.low_node_utilization"
    BALANCE = "Spread"

    name: Literal["LowNodeUtilization"]
    """Name of the strategy."""
    args: UtilizationArgs = UtilizationArgs()
    """Arguments of the strategy."""

    @property
    def by_cpu(self) -> bool:
        return self.args.source == "CPU"

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"]:
        return "thresholds" if self.by_cpu else "request_thresholds"


class HighNodeUtilization(StrategyBase):
    """Drains low nodes so that an autoscaler can remove them, or releases requests on nodes that are full but idle."""

    MODULE = "utilization.high_node_utilization"
    CORDONS = True
    BALANCE = "Pack"

    name: Literal["HighNodeUtilization"]
    """Name of the strategy."""
    args: HighNodeUtilizationArgs = HighNodeUtilizationArgs()
    """Arguments of the strategy."""

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"] | None:
        if self.args.mode == "Release":
            return None
        return "thresholds" if self.args.source == "CPU" else "request_thresholds"

    @property
    def memory_seconds(self) -> float:
        """For as long as it keeps drained nodes cordoned, or waits until more pods can leave."""
        return max(self.args.cordon_after_drain, STUCK_SECONDS)


class RemoveDuplicates(StrategyBase):
    """Evicts pods of one owner that share a node while other nodes have fewer of them."""

    MODULE = "constraints.remove_duplicates"

    name: Literal["RemoveDuplicates"]
    """Name of the strategy."""
    args: DuplicatesArgs = DuplicatesArgs()
    """Arguments of the strategy."""


class RemovePodsViolatingInterPodAntiAffinity(StrategyBase):
    """Evicts pods that share a topology domain against the required anti-affinity of one of them."""

    MODULE = "constraints.inter_pod_anti_affinity"

    name: Literal["RemovePodsViolatingInterPodAntiAffinity"]
    """Name of the strategy."""
    args: AntiAffinityArgs = AntiAffinityArgs()
    """Arguments of the strategy."""


class RemovePodsViolatingNodeAffinity(StrategyBase):
    """Evicts pods from nodes that no longer match their node affinity or node selector."""

    MODULE = "constraints.node_affinity"

    name: Literal["RemovePodsViolatingNodeAffinity"]
    """Name of the strategy."""
    args: NodeAffinityArgs = NodeAffinityArgs()
    """Arguments of the strategy."""


class RemovePodsViolatingNodeTaints(StrategyBase):
    """Evicts pods from nodes with a taint that they do not tolerate."""

    MODULE = "constraints.node_taints"

    name: Literal["RemovePodsViolatingNodeTaints"]
    """Name of the strategy."""
    args: NodeTaintsArgs = NodeTaintsArgs()
    """Arguments of the strategy."""


class RemovePodsViolatingTopologySpreadConstraint(StrategyBase):
    """Evicts pods from topology domains that exceed the maximum skew of their spread constraint."""

    MODULE = "constraints.topology_spread"

    name: Literal["RemovePodsViolatingTopologySpreadConstraint"]
    """Name of the strategy."""
    args: TopologySpreadArgs = TopologySpreadArgs()
    """Arguments of the strategy."""


class RemovePodsHavingTooManyRestarts(StrategyBase):
    """Evicts pods whose containers restart too often."""

    MODULE = "lifecycle.too_many_restarts"

    name: Literal["RemovePodsHavingTooManyRestarts"]
    """Name of the strategy."""
    args: RestartsArgs = RestartsArgs()
    """Arguments of the strategy."""


class PodLifeTime(StrategyBase):
    """Evicts pods that exceed a maximum age."""

    MODULE = "lifecycle.pod_life_time"

    name: Literal["PodLifeTime"]
    """Name of the strategy."""
    args: LifeTimeArgs = LifeTimeArgs()
    """Arguments of the strategy."""


class RemoveFailedPods(StrategyBase):
    """Evicts failed pods."""

    MODULE = "lifecycle.failed_pods"

    name: Literal["RemoveFailedPods"]
    """Name of the strategy."""
    args: FailedPodsArgs = FailedPodsArgs()
    """Arguments of the strategy."""


class NodeMaintenance(StrategyBase):
    """Drains selected nodes in waves and keeps them cordoned until they are no longer selected."""

    MODULE = "lifecycle.node_maintenance"
    CORDONS = True

    name: Literal["NodeMaintenance"]
    """Name of the strategy."""
    args: MaintenanceArgs
    """Arguments of the strategy."""


class Interference(StrategyBase):
    """Evicts a noisy neighbour: a pod that makes others wait for CPU although the node is not hot."""

    MODULE = "utilization.interference"
    NEEDS = frozenset({Need.CONTENTION})

    name: Literal["Interference"]
    """Name of the strategy."""
    args: InterferenceArgs = InterferenceArgs()
    """Arguments of the strategy."""


class ServiceSpread(StrategyBase):
    """Evicts pods of services that share a node and peak together, or share a value of `feature`."""

    MODULE = "utilization.service_spread"
    NEEDS = frozenset({Need.DAYS})

    name: Literal["ServiceSpread"]
    """Name of the strategy."""
    args: ServiceSpreadArgs = ServiceSpreadArgs()
    """Arguments of the strategy."""


_PLUGIN_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z][A-Za-z0-9]*$"


def _plugin_name(value: str) -> str:
    if re.fullmatch(_PLUGIN_NAME, value) is None:
        # who writes no domain means one of ours
        raise PydanticCustomError("unknown_name", "expected the name of a strategy", {"known": STRATEGY_NAMES})
    return value


def _plain(value: Any, way: tuple[str | int, ...] = ()) -> Any:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        _plain(each, (*way, key))
    if value is not None and not isinstance(value, str | int | float | dict | list):  # YAML knows dates, sets and bytes
        raise FieldError(way, f"expected what JSON can carry, got {type(value).__name__} (quotes would make it text)")
    return value


class PluginStrategy(StrategyBase):
    """A strategy from another package, found by its entry point. Its module declares what it needs and does."""

    name: Annotated[str, AfterValidator(_plugin_name), WithJsonSchema({"type": "string", "pattern": _PLUGIN_NAME})]
    """Domain and name, such as example.com/QuietNodes."""
    args: Annotated[dict[str, Any], AfterValidator(_plain), WithJsonSchema({"type": "object"})] = {}
    """Arguments, validated by the strategy."""


BUILT_IN = (
    LowNodeUtilization,
    HighNodeUtilization,
    RemoveDuplicates,
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
    RemovePodsViolatingTopologySpreadConstraint,
    RemovePodsHavingTooManyRestarts,
    PodLifeTime,
    RemoveFailedPods,
    NodeMaintenance,
    Interference,
    ServiceSpread,
)
STRATEGY_NAMES = tuple(each.__name__ for each in BUILT_IN)
PLUGIN = "plugin"


def _which(value: Any) -> str:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name if name in STRATEGY_NAMES else PLUGIN


if TYPE_CHECKING:
    Strategy = StrategyBase
else:
    _TAGGED = [Annotated[each, Tag(each.__name__)] for each in BUILT_IN]
    Strategy = Annotated[reduce(or_, [*_TAGGED, Annotated[PluginStrategy, Tag(PLUGIN)]]), Discriminator(_which)]
"""One entry of `strategies`."""
