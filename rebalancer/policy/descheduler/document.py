"""The DeschedulerPolicy of kubernetes-sigs/descheduler, descheduler/v1alpha2: its fields and their types.

Sources: its README and pkg/api/v1alpha2/types.go and pkg/framework/plugins/*/types.go at 0.36. It reads leniently (an
unknown or misplaced key is ignored there); a file that is to be taken over is read strictly.
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
    """Names to look at, or not to look at; they allow one of the two."""

    include: list[str] = []
    exclude: list[str] = []


class DeschedulerArgs(Section):
    """Arguments may say which type they are."""

    api_version: str | None = None
    kind: str | None = None


class PodArgs(DeschedulerArgs):
    """What strategies that look at pods have."""

    namespaces: DeschedulerNamespaces = DeschedulerNamespaces()


class SelectedPodArgs(PodArgs):
    """The same with a selector of pods."""

    label_selector: Selector = Selector()


class PriorityThreshold(Section):
    """Pods of this priority or more stay: a value, or the name of a class."""

    value: int | None = None
    name: str = ""


class StorageClass(Section):
    """One storage class."""

    name: str


class ProtectedClaims(Section):
    """Which claims protect a pod; all when empty."""

    protected_storage_classes: list[StorageClass] = []


class ProtectionConfig(Section):
    """More about single protections."""

    pods_with_pvc: ProtectedClaims = Field(default=ProtectedClaims(), alias="PodsWithPVC")


class PodProtections(Section):
    """Protections that are off, and those that are on besides."""

    default_disabled: list[
        Literal["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"]
    ] = []
    extra_enabled: list[Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]] = []
    config: ProtectionConfig = ProtectionConfig()


class EvictorArgs(DeschedulerArgs):
    """Of DefaultEvictor."""

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
    """A query that answers each node's usage, 0 to 1."""

    query: str = ""


class MetricsUtilization(Section):
    """Usage instead of requests."""

    metrics_server: bool = False
    source: Literal["", "KubernetesMetrics", "Prometheus"] = ""
    prometheus: UsageQuery = UsageQuery()


class EvictionLimits(Section):
    """Of one strategy in one run."""

    node: Natural | None = None


class LowNodeUtilizationArgs(DeschedulerArgs):
    """Of LowNodeUtilization."""

    use_deviation_thresholds: bool = False
    thresholds: Shares
    target_thresholds: Shares
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization = MetricsUtilization()
    evictable_namespaces: DeschedulerNamespaces = DeschedulerNamespaces()
    eviction_limits: EvictionLimits = EvictionLimits()


class HighNodeUtilizationArgs(DeschedulerArgs):
    """Of HighNodeUtilization."""

    thresholds: Shares
    number_of_nodes: int = 0
    eviction_modes: list[Literal["OnlyThresholdingResources"]] = []
    evictable_namespaces: DeschedulerNamespaces = DeschedulerNamespaces()


class DuplicatesArgs(PodArgs):
    """Of RemoveDuplicates."""

    exclude_owner_kinds: list[str] = []


class NodeAffinityArgs(SelectedPodArgs):
    """Of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[list[NodeAffinityType], Field(min_length=1)]


class NodeTaintsArgs(SelectedPodArgs):
    """Of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = []
    included_taints: list[str] = []


class TopologySpreadArgs(SelectedPodArgs):
    """Of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: list[Literal["DoNotSchedule", "ScheduleAnyway"]] = []
    topology_balance_node_fit: bool = True


class RestartsArgs(SelectedPodArgs):
    """Of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: Annotated[int, Field(ge=1)]
    including_init_containers: bool = False
    states: list[str] = []


class Condition(Section):
    """A condition of a pod; what is given must hold."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Natural | None = None


class PodLifeTimeArgs(SelectedPodArgs):
    """Of PodLifeTime."""

    owner_kinds: DeschedulerNamespaces = DeschedulerNamespaces()
    max_pod_life_time_seconds: Natural | None = None
    states: list[str] = []
    conditions: list[Condition] = []
    exit_codes: list[int] = []
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False


class FailedPodsArgs(SelectedPodArgs):
    """Of RemoveFailedPods."""

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
    """Which plugins are on."""

    presort: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    preevictionfilter: PluginSet = PluginSet()
    pre_eviction_filter: PluginSet = PluginSet()
    """So its documentation writes it; it reads the other."""


class Profile(Section):
    """Strategies and the evictor that they use."""

    name: str = ""
    plugin_config: list[PluginConfig] = []
    plugins: Plugins = Plugins()


class SecretReference(Section):
    """Where a token is."""

    namespace: str = ""
    name: str = ""


class AuthToken(Section):
    """How to reach Prometheus."""

    secret_reference: SecretReference = SecretReference()


class DeschedulerPrometheus(Section):
    """Which Prometheus."""

    url: str = ""
    auth_token: AuthToken | None = None


class MetricsProvider(Section):
    """One source of usage."""

    source: Literal["KubernetesMetrics", "Prometheus"]
    prometheus: DeschedulerPrometheus = DeschedulerPrometheus()


class MetricsCollector(Section):
    """The older way to switch the metrics server on."""

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
