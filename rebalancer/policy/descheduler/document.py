"""The DeschedulerPolicy of kubernetes-sigs/descheduler, descheduler/v1alpha2: its fields and their types.

Sources: its README and pkg/api/v1alpha2/types.go and pkg/framework/plugins/*/types.go at 0.36. The
descheduler ignores unknown and misplaced keys; the import rejects them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from rebalancer.policy.schema.types import Section, Selector

API_VERSION = "descheduler/v1alpha2"
KIND = "DeschedulerPolicy"

Share = Annotated[float, Field(ge=0, le=100)]
Natural = Annotated[int, Field(ge=0)]
Shares = dict[str, Share]
NodeAffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]


class DeschedulerNamespaces(Section):
    """Namespaces to include or to exclude; the descheduler allows one of the two."""

    include: list[str] = []
    exclude: list[str] = []


class DeschedulerArgs(Section):
    """Arguments, optionally with their type."""

    api_version: str | None = None
    kind: str | None = None


class PodArgs(DeschedulerArgs):
    """Arguments of strategies that select pods."""

    namespaces: DeschedulerNamespaces = DeschedulerNamespaces()


class SelectedPodArgs(PodArgs):
    """The same with a pod selector."""

    label_selector: Selector = Selector()


class PriorityThreshold(Section):
    """Pods with this priority or a higher one are protected: a value, or the name of a class."""

    value: int | None = None
    name: str = ""


class StorageClass(Section):
    """One storage class."""

    name: str


class ProtectedClaims(Section):
    """Storage classes whose claims protect a pod; empty: all."""

    protected_storage_classes: list[StorageClass] = []


class ProtectionConfig(Section):
    """Configuration of protections."""

    pods_with_pvc: ProtectedClaims = Field(default=ProtectedClaims(), alias="PodsWithPVC")


class PodProtections(Section):
    """Default protections to disable, and extra ones to enable."""

    default_disabled: list[
        Literal["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"]
    ] = []
    extra_enabled: list[Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]] = []
    config: ProtectionConfig = ProtectionConfig()


class EvictorArgs(DeschedulerArgs):
    """Arguments of DefaultEvictor."""

    node_selector: str = ""
    label_selector: Selector = Selector()
    namespace_label_selector: Selector = Selector()
    priority_threshold: PriorityThreshold = PriorityThreshold()
    node_fit: bool = False
    min_replicas: Natural = 0
    min_pod_age: str | None = None
    no_eviction_policy: Literal["", "Preferred", "Mandatory"] = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = Field(default=False, alias="ignorePodsWithoutPDB")
    evict_failed_bare_pods: bool = False


class UsageQuery(Section):
    """A query of each node's usage (0..1)."""

    query: str = ""


class MetricsUtilization(Section):
    """Usage instead of requests."""

    metrics_server: bool = False
    source: Literal["", "KubernetesMetrics", "Prometheus"] = ""
    prometheus: UsageQuery = UsageQuery()


class EvictionLimits(Section):
    """Limits of one strategy per run."""

    node: Natural | None = None


class LowNodeUtilizationArgs(DeschedulerArgs):
    """Arguments of LowNodeUtilization."""

    use_deviation_thresholds: bool = False
    thresholds: Shares
    target_thresholds: Shares
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization = MetricsUtilization()
    evictable_namespaces: DeschedulerNamespaces = DeschedulerNamespaces()
    eviction_limits: EvictionLimits = EvictionLimits()


class HighNodeUtilizationArgs(DeschedulerArgs):
    """Arguments of HighNodeUtilization."""

    thresholds: Shares
    number_of_nodes: int = 0
    eviction_modes: list[Literal["OnlyThresholdingResources"]] = []
    evictable_namespaces: DeschedulerNamespaces = DeschedulerNamespaces()


class DuplicatesArgs(PodArgs):
    """Arguments of RemoveDuplicates."""

    exclude_owner_kinds: list[str] = []


class NodeAffinityArgs(SelectedPodArgs):
    """Arguments of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[list[NodeAffinityType], Field(min_length=1)]


class NodeTaintsArgs(SelectedPodArgs):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = []
    included_taints: list[str] = []


class TopologySpreadArgs(SelectedPodArgs):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: list[Literal["DoNotSchedule", "ScheduleAnyway"]] = []
    topology_balance_node_fit: bool = True


class RestartsArgs(SelectedPodArgs):
    """Arguments of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[int, Field(ge=1)]
    including_init_containers: bool = False
    states: list[str] = []


class Condition(Section):
    """A condition of a pod; all given fields must match."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Natural | None = None


class PodLifeTimeArgs(SelectedPodArgs):
    """Arguments of PodLifeTime."""

    owner_kinds: DeschedulerNamespaces = DeschedulerNamespaces()
    max_pod_life_time_seconds: Natural | None = None
    states: list[str] = []
    conditions: list[Condition] = []
    exit_codes: list[int] = []
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False


class FailedPodsArgs(SelectedPodArgs):
    """Arguments of RemoveFailedPods."""

    exclude_owner_kinds: list[str] = []
    min_pod_lifetime_seconds: Natural = 3600
    reasons: list[str] = []
    exit_codes: list[int] = []
    including_init_containers: bool = False


ARGS: dict[str, type[DeschedulerArgs]] = {
    "DefaultEvictor": EvictorArgs,
    "LowNodeUtilization": LowNodeUtilizationArgs,
    "HighNodeUtilization": HighNodeUtilizationArgs,
    "RemoveDuplicates": DuplicatesArgs,
    "RemovePodsViolatingInterPodAntiAffinity": SelectedPodArgs,
    "RemovePodsViolatingNodeAffinity": NodeAffinityArgs,
    "RemovePodsViolatingNodeTaints": NodeTaintsArgs,
    "RemovePodsViolatingTopologySpreadConstraint": TopologySpreadArgs,
    "RemovePodsHavingTooManyRestarts": RestartsArgs,
    "PodLifeTime": PodLifeTimeArgs,
    "RemoveFailedPods": FailedPodsArgs,
}
"""Plugin -> its arguments."""


class PluginConfig(Section):
    """The arguments of one plugin."""

    name: str
    args: dict[str, Any] = {}


class PluginSet(Section):
    """Plugins of one extension point."""

    enabled: list[str] = []
    disabled: list[str] = []


class Plugins(Section):
    """Plugins by extension point."""

    presort: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    preevictionfilter: PluginSet = PluginSet()
    pre_eviction_filter: PluginSet = PluginSet()
    """The spelling of the descheduler's documentation; its code reads the other one."""


class Profile(Section):
    """Strategies and their evictor."""

    name: str = ""
    plugin_config: list[PluginConfig] = []
    plugins: Plugins = Plugins()


class SecretReference(Section):
    """Reference to a Secret."""

    namespace: str = ""
    name: str = ""


class AuthToken(Section):
    """Authentication at Prometheus."""

    secret_reference: SecretReference = SecretReference()


class DeschedulerPrometheus(Section):
    """A Prometheus server."""

    url: str = ""
    auth_token: AuthToken | None = None


class MetricsProvider(Section):
    """A source of usage."""

    source: Literal["KubernetesMetrics", "Prometheus"]
    prometheus: DeschedulerPrometheus = DeschedulerPrometheus()


class MetricsCollector(Section):
    """The deprecated setting for the metrics server."""

    enabled: bool = False


class DeschedulerPolicy(Section):
    """The whole file."""

    api_version: Literal["descheduler/v1alpha2"]
    kind: Literal["DeschedulerPolicy"]
    profiles: Annotated[list[Profile], Field(min_length=1)]
    node_selector: str = ""
    max_no_of_pods_to_evict_per_node: Natural | None = None
    max_no_of_pods_to_evict_per_namespace: Natural | None = None
    max_no_of_pods_to_evict_total: Natural | None = None
    eviction_failure_event_notification: bool = False
    metrics_collector: MetricsCollector = MetricsCollector()
    metrics_providers: list[MetricsProvider] = []
    grace_period_seconds: Natural | None = None
