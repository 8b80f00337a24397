"""What a policy file says. Every field is documented here; the reference and the JSON Schema are made from it."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from rebalancer.policy.schema.alerts import Alerts
from rebalancer.policy.schema.effect import Effect
from rebalancer.policy.schema.forecast import Forecast
from rebalancer.policy.schema.levels import ServiceLevels
from rebalancer.policy.schema.limits import Limits, ScopeLimits
from rebalancer.policy.schema.lists import Lists
from rebalancer.policy.schema.safety import Safety
from rebalancer.policy.schema.steering import Scheduler, SoftTaint
from rebalancer.policy.schema.strategies import NamespaceFilter, Strategy
from rebalancer.policy.schema.types import (
    AsTuple,
    Count,
    Duration,
    FieldError,
    NonEmpty,
    Percent,
    PercentagePoints,
    Section,
    Selector,
    at_least,
    format_duration,
)
from rebalancer.policy.schema.windows import Window, Windows

Resource = Literal["cpu", "memory", "pods"]

_URL = re.compile(
    r"https?://(?:[^/?#\[\]\s]*@)?(?:\[(?P<six>[^\[\]\s]+)\]|[^/?#\[\]\\:@\s]+)(?::(?P<port>\d{0,5}))?(?:[/?#]\S*)?"
)
_MAX_STABILIZATION_SECONDS = 3600.0
_CLOSEST_SAMPLES_SECONDS = 5.0
"""Prometheus is looked into no finer. With the longest debounce a range query stays at 720 points; it allows 11,000."""


class Thresholds(Section):
    """When a node is hot by real CPU, how far it is cooled, and where pods may go."""

    high: Percent
    """A node above it is hot. Percent of the node's CPU capacity; with `relativeToMean`, percentage points above the
    pool's mean."""
    target: Percent
    """A hot node is cooled to it, and no landing may go over it. Must be below `high`, or the node flaps."""
    low: PercentagePoints
    """A node under it is a landing of choice; while no node is, nothing moves. With `relativeToMean`,
    percentage points below the mean."""
    relative_to_mean: bool = False
    """Deviation mode: measure the three from the mean of the pool's nodes."""
    floor: Percent | None = None
    """Deviation mode: a node under this share of its capacity is never hot, however idle the others are."""

    @model_validator(mode="after")
    def _in_order(self) -> "Thresholds":
        if self.target >= self.high:
            raise FieldError("target", f"expected target < high, got target {self.target:g} and high {self.high:g}")
        if self.relative_to_mean and self.floor is None:
            raise FieldError("floor", "expected a floor with relativeToMean")
        if not self.relative_to_mean and self.floor is not None:
            raise FieldError("floor", "expected floor only with relativeToMean")
        if not self.relative_to_mean and not 1 <= self.low <= self.target:
            raise FieldError("low", f"expected 1 <= low <= target, got low {self.low:g} and target {self.target:g}")
        return self


class RequestThresholds(Section):
    """The same for strategies with `source: Requests`: shares of allocatable that pods request."""

    high: dict[Resource, Percent]
    """Resource -> percent of allocatable above which a node is hot."""
    target: dict[Resource, Percent]
    """Resource -> percent that a hot node is cooled to."""
    low: dict[Resource, Percent]
    """Resource -> percent under which a node is a landing of choice."""

    @model_validator(mode="after")
    def _in_order(self) -> "RequestThresholds":
        if not self.high or self.high.keys() != self.target.keys() or self.high.keys() != self.low.keys():
            raise ValueError("expected the same resources (cpu, memory, pods) under high, target and low")
        for name, high in self.high.items():
            if not self.low[name] <= self.target[name] < high:
                raise FieldError(
                    "target",
                    f"expected low <= target < high for {name}, "
                    f"got {self.low[name]:g}, {self.target[name]:g} and {high:g}",
                )
        return self


class Pool(Section):
    """A group of nodes that share thresholds. A node in two pools is an error; a node in none is not touched."""

    name: NonEmpty
    """Its name in records and limits."""
    selector: Selector
    """Labels of the nodes that belong to it."""
    thresholds: Thresholds | None = None
    """For strategies with `source: CPU`."""
    request_thresholds: RequestThresholds | None = None
    """For strategies with `source: Requests`."""
    limits: ScopeLimits | None = None
    """Instead of `limits.pool`."""
    windows: Annotated[tuple[Window, ...], AsTuple] = ()
    """When its nodes may be relieved."""


class BasicAuth(Section):
    """User name and the file that holds the password; the file is read anew for every cycle."""

    username: NonEmpty
    """The user."""
    password_file: NonEmpty
    """File that holds the password."""


class NodeQuery(Section):
    """Where node CPU comes from."""

    query: NonEmpty | None = None
    """PromQL with one series per node. Default: node_exporter's counters, a share of the node's CPUs."""
    unit: Literal["share", "cores"] = "share"
    """Whether a `query` of your own answers a share of capacity (0..1) or cores in use."""
    freshness: NonEmpty | None = None
    """PromQL for the time of the *raw* sample, with the same node label; needed with a `query` of your own.
    `timestamp()` of a recording rule is when the rule ran, not when the node was scraped."""
    label: NonEmpty = "instance"
    """The label that names the node."""
    node_by: Literal["Auto", "Name", "Address", "NodeInfo", "Uname"] = "Auto"
    """What that label holds: the node's name, one of its addresses (a port is cut off), or an instance to be looked
    up in `kube_node_info` or `node_uname_info`. Auto tries them in that order."""

    @model_validator(mode="after")
    def _freshness_with_own_query(self) -> "NodeQuery":
        if self.query is not None and self.freshness is None:
            raise FieldError(
                "freshness", "expected freshness (a query for the raw samples' time) with a query of your own"
            )
        return self


class PodQuery(Section):
    """Where pod CPU comes from."""

    query: NonEmpty | None = None
    """PromQL in cores with one series per pod. Default: cAdvisor's counters of named containers, without duplicates."""
    namespace_label: NonEmpty = "namespace"
    """Label that holds the pod's namespace."""
    pod_label: NonEmpty = "pod"
    """Label that holds the pod's name."""
    node_label: NonEmpty = "node"
    """May be missing from the series; then pods that left a node are known from our records only."""


class RangeQueries(Section):
    """How hard Prometheus may be asked for the last days' CPU. A day is read in queries of at most 2,000 series and
    288 points each, two at a time, and only once."""

    queries_per_hour: Annotated[int, Field(ge=1)] = 600
    """What can't be asked now is asked in the next hour. 150,000 pods on 5,000 nodes take about 200 queries a day of
    history."""


class Prometheus(Section):
    """How to reach Prometheus (or anything that answers its API) and what to ask."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
    """Base address, without /api."""
    timeout: Annotated[Duration, at_least(1)] = 15.0
    """For one query, connection included."""
    bearer_token_file: NonEmpty | None = None
    """Read anew for every cycle."""
    basic_auth: BasicAuth | None = None
    ca_file: NonEmpty | None = None
    """PEM file with the certificates to trust instead of the system's."""
    insecure_skip_verify: bool = False
    """Don't check the server's certificate. For tests only."""
    headers: dict[str, str] = {}
    """For example `X-Scope-OrgID` for a tenant. Not for secrets."""
    node_cpu: NodeQuery = Field(default=NodeQuery(), alias="nodeCPU")
    pod_cpu: PodQuery = Field(default=PodQuery(), alias="podCPU")
    history: RangeQueries = RangeQueries()

    @field_validator("url")
    @classmethod
    def _url_can_be_read(cls, url: str) -> str:
        match = _URL.fullmatch(url)
        if match is None or not _is_address(match["six"]):
            raise ValueError("expected a URL such as http://prometheus:9090 (other characters percent-encoded)")
        if int(match["port"] or 0) > 65535:
            raise ValueError("expected a port of at most 65535")
        return url

    @model_validator(mode="after")
    def _one_way_in(self) -> "Prometheus":
        if self.bearer_token_file and self.basic_auth:
            raise FieldError("basicAuth", "expected bearerTokenFile or basicAuth, not both")
        return self


def _is_address(six: str | None) -> bool:
    try:
        return six is None or bool(ipaddress.IPv6Address(six.replace("%25", "%", 1)))
    except ValueError:
        return False


class StabilizationWindow(Section):
    """A node must have been hot in this many distinct fresh samples, spread over this time, and in all between."""

    samples: Annotated[int, Field(ge=1)] = 3
    """How many distinct raw samples."""
    duration: Duration = 120.0
    """The time that they have to span; at most 1h."""

    @model_validator(mode="after")
    def _can_be_seen(self) -> "StabilizationWindow":
        if self.duration > _MAX_STABILIZATION_SECONDS:
            longest = format_duration(_MAX_STABILIZATION_SECONDS)
            raise FieldError("duration", f"expected at most {longest}, got {format_duration(self.duration)}")
        if (
            self.samples - 1 > self.duration / _CLOSEST_SAMPLES_SECONDS
        ):  # this way round, for an int that no float can hold
            most = int(self.duration // _CLOSEST_SAMPLES_SECONDS) + 1
            raise FieldError(
                "samples",
                f"expected at most {most} over {format_duration(self.duration)}: "
                f"we look every {format_duration(_CLOSEST_SAMPLES_SECONDS)} at most",
            )
        return self


class UsageSource(Section):
    """Where real CPU comes from, and when it can be trusted."""

    source: Literal["Prometheus", "MetricsServer"] = "Prometheus"
    """MetricsServer is for clusters without Prometheus."""
    prometheus: Prometheus | None = None
    """Needed with `source: Prometheus`."""
    rate_window: Annotated[Duration, at_least(30)] = 300.0
    """The window behind the rates. A pod that left is still measured for this long."""
    max_sample_age: Annotated[Duration, at_least(1)] = 180.0
    """A node whose raw sample is older is skipped."""
    min_coverage: Percent = 80.0
    """Below this share of nodes with fresh usage the cycle plans nothing."""
    stabilization_window: StabilizationWindow = StabilizationWindow()
    """How long a node must have been hot."""

    @model_validator(mode="after")
    def _source_is_configured(self) -> "UsageSource":
        if self.source == "Prometheus" and self.prometheus is None:
            raise FieldError("prometheus", "expected usage.prometheus with source Prometheus")
        return self


class LabelFilter(Section):
    """Label selectors on pods; `exclude` wins."""

    include: Selector = Selector()
    """Pods that may move."""
    exclude: Selector | None = None
    """Pods that stay."""


class Ours(Section):
    """Pods that we depend on and never evict."""

    rebalancer: Selector = Selector.model_validate({"matchLabels": {"app.kubernetes.io/name": "rebalancer"}})
    """Ourselves."""
    prometheus: Selector = Selector.model_validate({"matchLabels": {"app.kubernetes.io/name": "prometheus"}})
    """The Prometheus that we read."""
    database: Selector = Selector.model_validate(
        {
            "matchExpressions": [
                {"key": "app.kubernetes.io/name", "operator": "In", "values": ["postgresql", "postgres"]}
            ]
        }
    )


class Guards(Section):
    """What protects a pod. The rest can't be switched off: mirror, static, DaemonSet, terminating, finished, not
    Ready, bare, ours, system-critical, rollouts, budgets, vetoes by annotation."""

    job_pods: bool = False
    """Whether Job pods may move; even then only where the Job's podFailurePolicy ignores DisruptionTarget."""
    owner_kinds: Annotated[tuple[str, ...], AsTuple] = ()
    """Kinds besides Kubernetes' own whose controllers create pods again, for example CloneSet."""
    priority_below: int | None = None
    """Pods with this priority or more stay."""
    priority_class_below: NonEmpty | None = None
    """The same, by the name of a PriorityClass."""
    host_path: bool = False
    """Whether pods with hostPath volumes may move."""
    disk_empty_dir: bool = False
    """Whether pods with an emptyDir on disk may move and lose it. An emptyDir in memory never guards."""
    persistent_volumes: bool = False
    """Whether pods with PersistentVolumeClaims may move. Local volumes never do."""
    min_age: Duration = 300.0
    """Pods that started more recently stay."""
    min_replicas: Count = 2
    """Services that want fewer replicas are left alone."""
    require_opt_in: bool = False
    """Only pods with the label or annotation `rebalancer.dev/evict: "true"`, or with that label on their namespace or
    node, may move."""
    namespaces: NamespaceFilter = NamespaceFilter()
    """By namespace."""
    labels: LabelFilter = LabelFilter()
    """By label."""
    ours: Ours = Ours()
    """What we depend on ourselves."""

    @model_validator(mode="after")
    def _one_threshold(self) -> "Guards":
        if self.priority_below is not None and self.priority_class_below is not None:
            raise FieldError("priorityClassBelow", "expected priorityBelow or priorityClassBelow, not both")
        return self


class RebalancerPolicy(Section):
    """The policy of one cluster."""

    api_version: Literal["rebalancer.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["RebalancerPolicy"]
    """Always RebalancerPolicy."""
    cluster: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
    """The cluster's name in records and in the Lease."""
    pools: Annotated[tuple[Pool, ...], AsTuple, Field(min_length=1)]
    """The nodes that are looked after."""
    usage: UsageSource
    """Where real CPU comes from."""
    strategies: Annotated[tuple[Strategy, ...], AsTuple, Field(min_length=1)]
    """What is looked for."""
    guards: Guards = Guards()
    """Which pods stay where they are."""
    limits: Limits = Limits()
    """How many evictions, how fast."""
    windows: Windows = Windows()
    """When."""
    lists: Lists = Lists()
    """Who, by allow and deny lists."""
    service_levels: ServiceLevels = ServiceLevels()
    """Which services need more care."""
    safety: Safety = Safety()
    """Cooldowns, replacements in flight, the brake, other clusters."""
    scheduler: Scheduler = Scheduler()
    """What places the replacements."""
    alerts: Alerts = Alerts()
    """What Alertmanager may set off."""
    soft_taint: SoftTaint = SoftTaint()
    """Soft taints on nodes without room in real CPU."""
    forecast: Forecast = Forecast()
    """Predicted peaks."""
    effect: Effect = Effect()
    """Whether it helped."""

    @field_validator("pools")
    @classmethod
    def _distinct_names(cls, pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
        names = [pool.name for pool in pools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected distinct pool names, got {', '.join(twice)} more than once")
        return pools

    @model_validator(mode="after")
    def _strategies_have_thresholds(self) -> "RebalancerPolicy":
        by_name = {pool.name: pool for pool in self.pools}
        for index, strategy in enumerate(self.strategies):
            for name in strategy.pools or tuple(by_name):
                if name not in by_name:
                    raise FieldError(
                        ("strategies", index, "pools"), f"expected names of {', '.join(by_name)}, got {name!r}"
                    )
                if strategy.name == "Interference" and self.usage.source == "MetricsServer":
                    raise FieldError(
                        ("strategies", index, "name"), "expected usage.source Prometheus with Interference"
                    )
                needs = strategy.needs
                if needs is not None and getattr(by_name[name], needs) is None:
                    shown, source = (
                        ("thresholds", "CPU") if needs == "thresholds" else ("requestThresholds", "Requests")
                    )
                    raise FieldError(
                        "pools", f"expected pool {name} to have {shown}: {strategy.name} reads source {source}"
                    )
        return self

    @model_validator(mode="after")
    def _no_strategy_twice(self) -> "RebalancerPolicy":
        every_pool = [pool.name for pool in self.pools]
        for index, later in enumerate(self.strategies):
            for before, earlier in enumerate(self.strategies[:index]):
                pools = [every_pool if each.pools is None else each.pools for each in (earlier, later)]
                both = set(pools[0]) & set(pools[1])
                if both and earlier.repeats(later):
                    raise FieldError(
                        ("strategies", index),
                        f"expected {later.name} once for each pool, "
                        f"strategies[{before}] does the same for {', '.join(sorted(both))}",
                    )
        return self

    @model_validator(mode="after")
    def _forecasts_name_pools(self) -> "RebalancerPolicy":
        have = {pool.name for pool in self.pools}
        named = [name for event in self.forecast.events for name in event.pools]
        for name in (*named, *(each.pool for each in self.forecast.pools)):
            if name not in have:
                raise FieldError("forecast", f"expected pools to name one of {', '.join(sorted(have))}, got {name!r}")
        return self

    @model_validator(mode="after")
    def _alerts_have_strategies(self) -> "RebalancerPolicy":
        have = {strategy.name for strategy in self.strategies}
        for rule in self.alerts.rules:
            if rule.strategy not in have:
                raise FieldError("alerts", f"expected a strategy of this policy for {rule.alert}, got {rule.strategy}")
            if rule.high is not None and rule.high < self.alerts.min_high:
                raise FieldError("alerts", f"expected {rule.alert}: high >= minHigh ({self.alerts.min_high:g})")
        return self

    @property
    def longest_window(self) -> float:
        """Seconds for which an eviction matters to any limit."""
        limits = self.limits
        scopes: list[ScopeLimits] = [
            limits.global_,
            limits.cluster,
            limits.pool,
            limits.node,
            limits.namespace,
            limits.service,
            *(pool.limits for pool in self.pools if pool.limits is not None),
            *(level.limits for level in self.service_levels.levels),
        ]
        spans = [rate.per for scope in scopes for rate in scope.evictions]
        return max([*spans, *(scope.spacing or 0.0 for scope in scopes)])
