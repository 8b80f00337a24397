"""The strategies section of a policy: which strategies are switched on, and their arguments.

Names and arguments are those that users of kubernetes-sigs/descheduler know, as far as they mean the same.
"""

import re
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from rebalancer.policy.schema.types import AsTuple, Duration, FieldError, NonEmpty, Percent, Section, Selector, at_least

Globs = Annotated[tuple[str, ...], AsTuple]
Names = Annotated[tuple[NonEmpty, ...], AsTuple]
SpreadMode = Literal["DoNotSchedule", "ScheduleAnyway"]
AffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]


STUCK_SECONDS = 3600.0
"""A node that is being drained, and that no pod could leave for so long, is uncordoned: its obstacle may never go.
Longer where drained nodes stay cordoned for longer."""


class NamespaceFilter(Section):
    """Globs; `exclude` wins."""

    include: Globs = ("*",)
    """Namespaces whose pods may move."""
    exclude: Globs = ("kube-system",)
    """Namespaces whose pods stay."""


class Namespaces(Section):
    """Globs; `exclude` wins. `guards.namespaces` holds besides."""

    include: Globs = ("*",)
    """Namespaces that the strategy looks at."""
    exclude: Globs = ()
    """Namespaces that it doesn't look at."""


class PodArgs(Section):
    """Which pods a strategy looks at. What it counts (a spread, say) is all pods all the same."""

    namespaces: Namespaces = Namespaces()
    """By namespace."""
    label_selector: Selector = Selector()
    """By the pods' labels."""


class UtilizationArgs(Section):
    """Arguments of LowNodeUtilization."""

    source: Literal["CPU", "Requests"] = "CPU"
    """Real CPU, or what pods request (cpu, memory, pods)."""


class HighNodeUtilizationArgs(Section):
    """Arguments of HighNodeUtilization."""

    source: Literal["CPU", "Requests"] = "CPU"
    """What says that a node is low: real CPU under the pool's `thresholds.low`, or requests under all of
    `requestThresholds.low`."""
    mode: Literal["Drain", "Release"] = "Drain"
    """Drain empties low nodes. Release moves pods off nodes that are full by requests and idle in fact."""
    whole_nodes: bool = True
    """Drain: a node whose pods can't all land elsewhere keeps all of them. Without it, what can move is moved."""
    max_concurrent_nodes: Annotated[int, Field(ge=1)] = 1
    """Drain: so many nodes of the cluster at a time; each is cordoned until it is empty, or let go."""
    cordon_after_drain: Annotated[Duration, at_least(0)] = 1800.0
    """Drain: an emptied node stays cordoned for so long, for an autoscaler to remove it."""
    headroom: Annotated[float, Field(ge=0, le=50)] = 5.0
    """Percentage points under `target` that the landings keep free, now and at their predicted peak."""
    full: Percent = 85.0
    """Release: a node with at least this share of its allocatable CPU requested is full."""
    idle: Percent = 30.0
    """Release: a full node with at most this share of its CPU in use is idle."""
    release_target: Percent = 70.0
    """Release: so far the requested share is brought down."""
    min_age: Annotated[Duration, at_least(0)] = 30 * 86_400.0
    """Release: only pods that run for so long."""

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
    """Which kinds of rules count. A preferred one evicts only when a node that is better would surely take the pod."""


class NodeTaintsArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    """Whether PreferNoSchedule taints count besides NoSchedule."""
    excluded_taints: Names = ()
    """Taints that don't count, as `key` or `key=value`."""
    included_taints: Names = ()
    """When given, only these count."""


class TopologySpreadArgs(PodArgs):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: Annotated[tuple[SpreadMode, ...], AsTuple, Field(min_length=1)] = ("DoNotSchedule",)
    """Which constraints count."""


class RestartsArgs(PodArgs):
    """Arguments of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[int, Field(ge=1)] = 100
    """A pod whose containers restarted so often, added up, is evicted."""
    including_init_containers: bool = False
    """Whether restarts of init containers count."""
    states: Names = ()
    """When given, only pods in one of these states: a phase, or the reason why a container waits, such as
    CrashLoopBackOff."""


class LifeTimeArgs(PodArgs):
    """Arguments of PodLifeTime."""

    max_pod_life_time: Annotated[Duration, at_least(60)] = 7 * 86_400.0
    """Older pods are evicted, oldest first."""
    states: Names = ()
    """When given, only pods in one of these states: a phase, a pod's status reason, or the reason why a container
    waits or ended."""
    including_init_containers: bool = False
    """Whether the states of init containers count."""


class FailedPodsArgs(PodArgs):
    """Arguments of RemoveFailedPods."""

    reasons: Names = ()
    """When given, only pods with one of these reasons: the pod's own, or a container's."""
    exit_codes: Annotated[tuple[int, ...], AsTuple] = ()
    """When given, only pods of which a container ended with one of these."""
    including_init_containers: bool = False
    """Whether reasons and exit codes of init containers count."""
    exclude_owner_kinds: Names = ()
    """Kinds of direct owners whose pods stay."""
    min_pod_lifetime: Duration = 3600.0
    """Younger ones stay, so that somebody can look at them."""


class MaintenanceArgs(Section):
    """Arguments of NodeMaintenance. A node is chosen by any of the three; at least one must be given."""

    node_selector: Selector | None = None
    """Nodes with these labels."""
    annotation: NonEmpty | None = None
    """Nodes with this annotation, as `key` or `key=value`."""
    nodes: Names = ()
    """Nodes by name."""
    wave_label: NonEmpty | None = "topology.kubernetes.io/zone"
    """A label: one wave is what shares its value; the next begins when every node of it is empty. Without a label all
    nodes are one wave."""
    max_concurrent_nodes: Annotated[int, Field(ge=1)] = 2
    """So many nodes of a wave are emptied at a time."""

    @model_validator(mode="after")
    def _something_is_chosen(self) -> "MaintenanceArgs":
        if self.node_selector is None and self.annotation is None and not self.nodes:
            raise FieldError("nodeSelector", "expected nodeSelector, annotation or nodes")
        if self.node_selector is not None and self.node_selector.is_empty:
            raise FieldError("nodeSelector", "expected labels: an empty selector would empty every node")
        return self


class InterferenceArgs(PodArgs):
    """Arguments of Interference. Pressure comes from PSI, throttling from the CFS quota; both are shares of time."""

    node_pressure: Percent = 30.0
    """A node on which tasks waited for CPU for at least this share of time suffers."""
    pod_pressure: Percent = 30.0
    """The same for a pod: its tasks waited for so long, though it uses no more than it requests."""
    excess: Percent = 20.0
    """A pod that uses more than it requests, by at least this share of its node's CPU, is noisy."""


class ServiceSpreadArgs(PodArgs):
    """Arguments of ServiceSpread."""

    min_correlation: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Two services whose usual days correlate by at least this peak together."""
    min_days: Annotated[int, Field(ge=1)] = 3
    """So many days of history before anything is said of a service."""
    min_share: Percent = 5.0
    """Only services of which one pod takes at least this share of its node's CPU at its peak."""
    feature: NonEmpty | None = None
    """A label of pods: services with the same value should not share a node, whatever their days look like."""


class Need(StrEnum):
    """Data that a strategy is given only when it declares it."""

    DAYS = "days"
    """`StrategyView.days`: services' usual days, from the forecasts."""
    CONTENTION = "contention"
    """`Usage.contention`: how long tasks wait for CPU; Prometheus only."""


class StrategyBase(Section):
    """What is the same for all strategies. Upper-case attributes of the class say what a strategy needs and does."""

    MODULE: ClassVar[str] = ""
    """The module in `rebalancer.strategies` with its `find`."""
    NEEDS: ClassVar[frozenset[Need]] = frozenset()
    CORDONS: ClassVar[bool] = False
    """Whether it may cordon nodes: it needs the permission to patch them."""
    BALANCE: ClassVar[Literal["Spread", "Pack"] | None] = None
    """Whether it evens nodes out or fills some and empties others."""

    pools: Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] | None = None
    """Names of the pools it looks at; all when absent."""
    interval: Annotated[Duration, at_least(10)] = 120.0
    """How often the daemon looks at each of its pools, give or take a tenth."""

    if TYPE_CHECKING:  # every strategy declares both, with types of its own
        name: str
        args: Any

    @property
    def by_cpu(self) -> bool:
        """Whether it finds nodes that are hot by real CPU, which can be measured again afterwards."""
        return False

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"] | None:
        """Which thresholds its pools must have."""
        return None

    @property
    def memory_seconds(self) -> float:
        """How far back it needs recent evictions."""
        return 0.0

    def repeats(self, other: "StrategyBase") -> bool:
        """Whether the two would do the same where they look at the same pool. Pods can be chosen in several ways, a
        node is cooled or drained in one."""
        if self.by_cpu or self.pool_thresholds is not None:
            return (type(self), self.pool_thresholds) == (type(other), other.pool_thresholds)
        return self.model_dump(exclude={"pools", "interval"}) == other.model_dump(exclude={"pools", "interval"})


class LowNodeUtilization(StrategyBase):
    """Cools hot nodes: those over `high`, down to `target`, while others are under `low`."""

    MODULE = "low_node_utilization"
    BALANCE = "Spread"

    name: Literal["LowNodeUtilization"]
    """Which strategy."""
    args: UtilizationArgs = UtilizationArgs()
    """Its arguments."""

    @property
    def by_cpu(self) -> bool:
        return self.args.source == "CPU"

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"]:
        return "thresholds" if self.by_cpu else "request_thresholds"


class HighNodeUtilization(StrategyBase):
    """Empties low nodes so that an autoscaler may remove them, or frees room on nodes full of idle requests."""

    MODULE = "high_node_utilization"
    CORDONS = True
    BALANCE = "Pack"

    name: Literal["HighNodeUtilization"]
    """Which strategy."""
    args: HighNodeUtilizationArgs = HighNodeUtilizationArgs()
    """Its arguments."""

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
    """Pods of one owner that share a node while other nodes have fewer of them."""

    MODULE = "remove_duplicates"

    name: Literal["RemoveDuplicates"]
    """Which strategy."""
    args: DuplicatesArgs = DuplicatesArgs()
    """Its arguments."""


class RemovePodsViolatingInterPodAntiAffinity(StrategyBase):
    """Pods that share a domain although the required anti-affinity of one of them forbids it."""

    MODULE = "inter_pod_anti_affinity"

    name: Literal["RemovePodsViolatingInterPodAntiAffinity"]
    """Which strategy."""
    args: AntiAffinityArgs = AntiAffinityArgs()
    """Its arguments."""


class RemovePodsViolatingNodeAffinity(StrategyBase):
    """Pods on a node that their node affinity or node selector doesn't want any more."""

    MODULE = "node_affinity"

    name: Literal["RemovePodsViolatingNodeAffinity"]
    """Which strategy."""
    args: NodeAffinityArgs = NodeAffinityArgs()
    """Its arguments."""


class RemovePodsViolatingNodeTaints(StrategyBase):
    """Pods on a node with a taint that they don't tolerate."""

    MODULE = "node_taints"

    name: Literal["RemovePodsViolatingNodeTaints"]
    """Which strategy."""
    args: NodeTaintsArgs = NodeTaintsArgs()
    """Its arguments."""


class RemovePodsViolatingTopologySpreadConstraint(StrategyBase):
    """Pods in a domain that has more of them than their spread constraint allows."""

    MODULE = "topology_spread"

    name: Literal["RemovePodsViolatingTopologySpreadConstraint"]
    """Which strategy."""
    args: TopologySpreadArgs = TopologySpreadArgs()
    """Its arguments."""


class RemovePodsHavingTooManyRestarts(StrategyBase):
    """Pods whose containers keep restarting."""

    MODULE = "too_many_restarts"

    name: Literal["RemovePodsHavingTooManyRestarts"]
    """Which strategy."""
    args: RestartsArgs = RestartsArgs()
    """Its arguments."""


class PodLifeTime(StrategyBase):
    """Pods that run for too long."""

    MODULE = "pod_life_time"

    name: Literal["PodLifeTime"]
    """Which strategy."""
    args: LifeTimeArgs = LifeTimeArgs()
    """Its arguments."""


class RemoveFailedPods(StrategyBase):
    """Pods that have failed, and lie around."""

    MODULE = "failed_pods"

    name: Literal["RemoveFailedPods"]
    """Which strategy."""
    args: FailedPodsArgs = FailedPodsArgs()
    """Its arguments."""


class NodeMaintenance(StrategyBase):
    """Empties chosen nodes, in waves, and keeps them cordoned until they are no longer chosen."""

    MODULE = "node_maintenance"
    CORDONS = True

    name: Literal["NodeMaintenance"]
    """Which strategy."""
    args: MaintenanceArgs
    """Its arguments."""


class Interference(StrategyBase):
    """Moves the pod that makes its neighbours wait for CPU although the node isn't hot."""

    MODULE = "interference"
    NEEDS = frozenset({Need.CONTENTION})

    name: Literal["Interference"]
    """Which strategy."""
    args: InterferenceArgs = InterferenceArgs()
    """Its arguments."""


class ServiceSpread(StrategyBase):
    """Services that peak together, or share a stated feature, on one node."""

    MODULE = "service_spread"
    NEEDS = frozenset({Need.DAYS})

    name: Literal["ServiceSpread"]
    """Which strategy."""
    args: ServiceSpreadArgs = ServiceSpreadArgs()
    """Its arguments."""


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
    """A strategy from another package, found by its entry point. What it needs and does stands on its module."""

    name: Annotated[str, AfterValidator(_plugin_name), WithJsonSchema({"type": "string", "pattern": _PLUGIN_NAME})]
    """Its domain and name, such as example.com/QuietNodes."""
    args: Annotated[dict[str, Any], AfterValidator(_plain), WithJsonSchema({"type": "object"})] = {}
    """Its arguments; it checks them itself."""


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
