"""The policy file: pools, thresholds and the root document. The reference and the JSON Schema are generated from it."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.policy.schema.alerts import Alerts
from rebalancer.policy.schema.approval import Approval
from rebalancer.policy.schema.forecast import Forecast
from rebalancer.policy.schema.guards import Guards
from rebalancer.policy.schema.levels import ServiceLevels
from rebalancer.policy.schema.limits import CountOrPercent, Limits, ScopeLimits
from rebalancer.policy.schema.lists import Lists
from rebalancer.policy.schema.notifications import Notifications
from rebalancer.policy.schema.safety import Safety
from rebalancer.policy.schema.strategies import Strategy
from rebalancer.policy.schema.strategies.base import Need, check_order
from rebalancer.policy.schema.strategies.utilization import HighNodeUtilization
from rebalancer.policy.schema.trust import TrustRule
from rebalancer.policy.schema.types import (
    DURATION_PATTERN,
    AsTuple,
    Count,
    Duration,
    FieldError,
    Format,
    Mode,
    NonEmpty,
    Percent,
    PercentagePoints,
    Section,
    Selector,
    Switch,
    at_least,
    at_most,
    format_duration,
)
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.policy.schema.windows import Window, Windows

SCHEMA_ID = "https://rebalancer.dev/schemas/policy/v1alpha1.json"

_REQUESTED = re.compile(
    r"cpu|memory|pods|ephemeral-storage|hugepages-[0-9]+[KMGT]i|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9][-\w.]{0,62}"
)


def is_requested(name: str) -> bool:
    """Whether pods can request a resource of this name. Extended resources have a domain: `nvidia.com/gpu`."""
    return _REQUESTED.fullmatch(name) is not None


class ResourceThresholds(Section):
    """Measured share of a resource at which a node is hot, and to which it is cooled."""

    high: Percent
    """A node above it is hot. Percent of the node's capacity."""
    target: Percent
    """A hot node is cooled to it, and no target node may exceed it. Must be below `high`."""
    low: Percent = Field(default_factory=lambda data: data["target"])
    """Where it is given, a pod is not evicted while no node to which it can go is below it, and below `low` of all
    other resources. Default: `target`."""

    @model_validator(mode="after")
    def _in_order(self) -> "ResourceThresholds":
        if not self.low <= self.target < self.high:
            raise FieldError(
                "target",
                f"expected low <= target < high, got {self.low:g}, {self.target:g} and {self.high:g}",
            )
        return self


class Thresholds(Section):
    """Real CPU at which a node is hot, and to which it is cooled."""

    high: Percent
    """A node above it is hot. Percent of the node's CPU capacity; with `relativeToMean`, percentage points above the
    pool's mean."""
    target: Percent
    """A hot node is cooled to it, and no target node may exceed it. Must be below `high`, or nodes would alternate
    between hot and cool."""
    relative_to_mean: bool = False
    """Deviation mode: `high`, `target` and `low` are relative to the mean of the pool's nodes."""
    low: PercentagePoints = Field(default_factory=lambda data: 0.0 if data.get("relative_to_mean") else data["target"])
    """Where it is given, a pod is not evicted while no node to which it can go is below it. With `relativeToMean`,
    percentage points below the mean. HighNodeUtilization with `source: CPU` drains nodes below it, and needs it.
    Default: `target`; with `relativeToMean`, the mean."""
    floor: Percent | None = None
    """Deviation mode: a node below this percentage of its capacity is never hot, however idle the others are."""
    resources: dict[str, ResourceThresholds] = {}
    """Thresholds of resources besides CPU: `memory`, and names of `usage.prometheus.resources`. A node above any `high`
    is hot."""

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
    """Thresholds for strategies with `source: Requests`: percent of allocatable that pods request."""

    high: dict[str, Percent]
    """Resource (cpu, memory, pods, or an extended one such as nvidia.com/gpu) -> percent of allocatable above which a
    node is hot. A node without the resource is judged by the others."""
    target: dict[str, Percent]
    """Resource -> percent to which a hot node is cooled."""
    low: dict[str, Percent] = Field(default_factory=lambda data: data["target"])
    """Resource -> percent. Where it is given, nothing is evicted while no node is below it in all resources.
    HighNodeUtilization with `source: Requests` drains nodes below it, and needs it. Default: `target`."""

    @model_validator(mode="after")
    def _in_order(self) -> "RequestThresholds":
        if not self.high or self.high.keys() != self.target.keys() or self.high.keys() != self.low.keys():
            raise ValueError("expected the same resources, such as cpu, memory and pods, under high, target and low")
        for name, high in self.high.items():
            if not is_requested(name):
                raise FieldError(
                    "high", f"expected cpu, memory, pods or an extended resource such as nvidia.com/gpu, got {name!r}"
                )
            if not self.low[name] <= self.target[name] < high:
                raise FieldError(
                    "target",
                    f"expected low <= target < high for {name}, "
                    f"got {self.low[name]:g}, {self.target[name]:g} and {high:g}",
                )
        return self


class Pool(Section):
    """A group of nodes that share thresholds. A node that two select is in neither; a node in none is left alone."""

    name: NonEmpty
    """Name in records and limits."""
    selector: Selector
    """Labels of its nodes."""
    mode: Mode = "Act"
    """The mode of evictions from its nodes."""
    thresholds: Thresholds | None = None
    """For strategies with `source: CPU`."""
    request_thresholds: RequestThresholds | None = None
    """For strategies with `source: Requests`."""
    limits: ScopeLimits | None = None
    """Replaces `limits.pool`."""
    windows: Annotated[tuple[Window, ...], AsTuple] = ()
    """Change windows for evictions from its nodes."""


class HotNodeSlo(Section):
    """The organisation's own definition of a hot node, by which the discovery rate is measured. Requires Prometheus."""

    query: NonEmpty | None = None
    """PromQL for the used share (0..1) of each node. Default: the CPU that plans are based on."""
    label: NonEmpty = "node"
    """Label that identifies the node: its name, or an instance's address and port."""
    threshold: Percent | None = None
    """A node above it is hot. Default: its pool's `high`."""
    for_: Annotated[Duration, at_least(0), at_most(86_400)] = Field(default=600.0, alias="for")
    """How long a node must be above the threshold to be hot."""


class Effect(Section):
    """Evaluation after the fact: discovery, eviction and effectiveness rates."""

    hot_node_slo: HotNodeSlo = Field(default=HotNodeSlo(), alias="hotNodeSLO")
    """Definition of a hot node."""
    settling_time: Annotated[Duration, at_least(60), at_most(3600)] = 900.0
    """Time from a node's last eviction to its first assessment. Further assessments follow after an hour and a day."""
    detail_retention: Annotated[Duration, at_least(86_400)] = 2_592_000.0
    """How long cycles, refusals and episodes are kept. Evictions with their cycles are kept for 400 days, daily counts
    without limit."""


class SoftTaint(Section):
    """A PreferNoSchedule taint on nodes without headroom in real CPU while a plan is carried out.

    kube-scheduler sees only requests, so it prefers a hot node whose requests have just fallen.
    """

    mode: Annotated[Literal["Taint", "Off"], Switch] = "Taint"
    """Taint sets the taint if patching nodes is permitted. Otherwise, and with Off, only moves are planned that need no
    taint."""
    max_nodes: CountOrPercent = "50%"
    """Maximum number of nodes of each pool with the taint. A node gets it only where a plan needs it."""
    max_nodes_at_least: Count = 2
    """Lower bound of a percentage."""
    max_age: Annotated[Duration, at_least(60)] = 1800.0
    """An older taint is removed even if the plan still needs it."""


Worth = Literal["Minimal", "Conservative", "Balanced", "Active", "Aggressive"]


class Planning(Section):
    """How a plan is made."""

    patience: Annotated[Duration, at_least(0), at_most(600)] = 120.0
    """How long a cycle waits for its replacements where a move that waits for them takes the place of several smaller
    ones. With 0s it never waits."""
    urgent: Percent = 95.0
    """A node at or above it doesn't wait: it is relieved by what may go now. Percent of the node's CPU capacity."""
    worth: Worth = "Balanced"
    """How much heat an eviction must remove for its price, in five levels: with `Minimal` few pods go, from very hot
    nodes; with `Aggressive` every pod may go that relieves a hot node."""


class Scheduler(Section):
    """The scheduler that places replacements."""

    config_file: NonEmpty | None = None
    """File with kube-scheduler's KubeSchedulerConfiguration; relative to the policy file. Default: kube-scheduler's
    defaults."""


class RebalancerPolicy(Section):
    """The policy of one cluster."""

    api_version: Literal["rebalancer.dev/v1alpha1"]
    """Version of this format."""
    kind: Literal["RebalancerPolicy"]
    """Always RebalancerPolicy."""
    cluster: Annotated[
        str,
        Format(
            r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$",
            "a name such as prod-eu-1: lower-case letters, digits, - and ., at most 63 characters",
        ),
    ]
    """Name of the cluster in records and in the Lease."""
    mode: Mode = "Act"
    """DryRun plans and records evictions, and makes none. Approve proposes them, and makes those of an approved
    proposal. Act makes them. The strictest mode counts: of the command, the policy, the pool and the strategy."""
    pools: Annotated[tuple[Pool, ...], AsTuple, Field(min_length=1)]
    """Groups of nodes. Nodes in no pool are left alone."""
    usage: UsageSource
    """Where real CPU comes from."""
    strategies: Annotated[tuple[Strategy, ...], AsTuple, Field(min_length=1)]
    """Strategies in use."""
    guards: Guards = Guards()
    """Which pods are never evicted, and where nothing may land."""
    trust: Annotated[tuple[TrustRule, ...], AsTuple] = ()
    """How far tenants may shield their own pods from evictions. The first rule that matches a namespace counts; a
    namespace without one, and rebalancer's own, is trusted with every shield."""
    limits: Limits = Limits()
    """How many evictions, and how fast."""
    windows: Windows = Windows()
    """When evictions are allowed."""
    lists: Lists = Lists()
    """Allow and deny lists."""
    service_levels: ServiceLevels = ServiceLevels()
    """Classes of services with their own limits, windows and eviction cost."""
    safety: Safety = Safety()
    """Cooldowns, late replacements, circuit breaker, other clusters."""
    planner: Planning = Planning()
    """How a plan is made."""
    scheduler: Scheduler = Scheduler()
    """The scheduler that places replacements."""
    approval: Approval = Approval()
    """Proposals of the parts in `mode: Approve`."""
    alerts: Alerts = Alerts()
    """Alerts of Alertmanager that trigger cycles."""
    soft_taint: SoftTaint = SoftTaint()
    """Soft taint on nodes without headroom."""
    forecast: Forecast = Forecast()
    """Predicted peaks of nodes."""
    effect: Effect = Effect()
    """Evaluation after the fact."""
    notifications: Notifications = Notifications()
    """Messages about evictions, circuit breakers and their effect; off by default."""

    @property
    def cycle_seconds(self) -> float:
        """The shortest period of a strategy: a cycle is due so often. Infinite where none is periodic."""
        return min((each.period for each in self.strategies), default=float("inf"))

    @property
    def overdue_seconds(self) -> float:
        """A leader without a cycle for longer does not work: three of the shortest interval, and a minute."""
        return 3.0 * self.cycle_seconds + 60.0

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
        with_thresholds = {pool.name for pool in self.pools if pool.thresholds is not None}
        for index, strategy in enumerate(self.strategies):
            for field, named in ((("pools",), strategy.pools or ()), (("args", "order"), strategy.ordered_pools)):
                if unknown := [name for name in named if name not in by_name]:
                    expected = f"expected pools of this policy ({', '.join(by_name)}), got {unknown[0]!r}"
                    raise FieldError(("strategies", index, *field), expected)
            check_order(index, self.strategies, with_thresholds)
            for name in strategy.pools or tuple(by_name):
                if Need.CONTENTION in strategy.NEEDS and self.usage.source == "MetricsServer":
                    raise FieldError(
                        ("strategies", index, "name"), f"expected usage.source Prometheus with {strategy.name}"
                    )
                if (wanted := strategy.pool_thresholds) is None:
                    continue
                shown, source = ("thresholds", "CPU") if wanted == "thresholds" else ("requestThresholds", "Requests")
                marks = getattr(by_name[name], wanted)
                if marks is None:
                    raise FieldError(
                        "pools", f"expected pool {name} to have {shown}: {strategy.name} reads source {source}"
                    )
                if isinstance(strategy, HighNodeUtilization) and "low" not in marks.model_fields_set:
                    at = ("pools", self.pools.index(by_name[name]), shown)
                    raise FieldError(at, f"expected low: {strategy.name} drains nodes below it")
        return self

    @model_validator(mode="after")
    def _resources_are_measured(self) -> "RebalancerPolicy":
        measured = set(self.measured_resources) - {CPU}
        for index, pool in enumerate(self.pools):
            for name in pool.thresholds.resources if pool.thresholds is not None else ():
                if name not in measured:
                    at = ("pools", index, "thresholds", "resources")
                    expected = (
                        f"expected memory or a name of usage.prometheus.resources ({', '.join(sorted(measured))})"
                    )
                    raise FieldError(at, f"{expected}, got {name!r}")
        return self

    @model_validator(mode="after")
    def _releases_what_is_measured(self) -> "RebalancerPolicy":
        for index, each in enumerate(self.strategies):
            resource = each.args.resource if isinstance(each, HighNodeUtilization) else CPU
            if resource not in self.measured_resources:
                known = ", ".join(sorted(self.measured_resources))
                at = ("strategies", index, "args", "resource")
                raise FieldError(at, f"expected one of {known}, got {resource!r}")
        return self

    @property
    def measured_resources(self) -> tuple[str, ...]:
        """Names of the resources that are measured: CPU, memory, and those of the policy."""
        own = self.usage.prometheus.resources if self.usage.prometheus is not None else ()
        named = [each.name for each in own] if self.usage.source == "Prometheus" else []
        return tuple(dict.fromkeys((CPU, MEMORY, *named)))

    @property
    def threshold_resources(self) -> tuple[str, ...]:
        """Names of the resources besides CPU that a pool has thresholds of."""
        return resources_with_thresholds(self.pools)

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
        named += [name for day in self.forecast.calendar for name in day.pools]
        for name in (*named, *(each.pool for each in self.forecast.pools)):
            if name not in have:
                raise FieldError("forecast", f"expected pools to name one of {', '.join(sorted(have))}, got {name!r}")
        return self

    @model_validator(mode="after")
    def _overrides_name_strategies_and_pools(self) -> "RebalancerPolicy":
        strategies, pools = {each.name for each in self.strategies}, {pool.name for pool in self.pools}
        for index, each in enumerate(self.guards.overrides):
            for field, names, have in (("strategies", each.strategies, strategies), ("pools", each.pools, pools)):
                if unknown := sorted(set(names) - have):
                    at = ("guards", "overrides", index, field)
                    raise FieldError(at, f"expected names of {', '.join(sorted(have))}, got {unknown[0]!r}")
        return self

    @model_validator(mode="after")
    def _alerts_have_strategies(self) -> "RebalancerPolicy":
        have = {strategy.name for strategy in self.strategies}
        for index, rule in enumerate(self.alerts.rules):
            if rule.strategy not in have:
                at = ("alerts", "rules", index, "strategy")
                raise FieldError(at, f"expected one of {', '.join(sorted(have))}, got {rule.strategy!r}")
            if not any("Alert" in each.triggers for each in self.strategies if each.name == rule.strategy):
                at = ("alerts", "rules", index, "strategy")
                raise FieldError(at, f"expected a strategy with Alert among its triggers, got {rule.strategy!r}")
            if rule.resource not in (CPU, *self.threshold_resources):
                known = ", ".join((CPU, *self.threshold_resources))
                raise FieldError(
                    "alerts",
                    f"expected {rule.alert}: a resource that a pool has thresholds of ({known}), got {rule.resource}",
                )
            if rule.high is not None and rule.high < self.alerts.min_high:
                raise FieldError("alerts", f"expected {rule.alert}: high >= minHigh ({self.alerts.min_high:g})")
        return self

    @property
    def longest_window(self) -> float:
        """Seconds for which an eviction matters to any limit."""
        scopes = [
            *(section for _, section in self.limits if isinstance(section, ScopeLimits)),
            *(pool.limits for pool in self.pools if pool.limits is not None),
            *(level.limits for level in self.service_levels.levels),
            *self.limits.services.values(),
        ]
        spans = [rate.per for scope in scopes for rate in scope.evictions]
        return max([*spans, *(scope.spacing or 0.0 for scope in scopes)])


def resources_with_thresholds(pools: Iterable[Pool]) -> tuple[str, ...]:
    """Names of the resources besides CPU that one of these pools has thresholds of, in order."""
    return tuple(sorted({name for pool in pools if pool.thresholds is not None for name in pool.thresholds.resources}))


def policy_schema() -> dict[str, Any]:
    """JSON Schema of the policy file (draft 2020-12), with every field's description."""
    schema = RebalancerPolicy.model_json_schema(by_alias=True)
    for section in (schema, *schema["$defs"].values()):
        for field in section.get("properties", {}).values():
            # durations are seconds internally; a file has 2m
            if field.get("pattern") == DURATION_PATTERN and "default" in field:
                field["default"] = format_duration(field["default"])
            if field.get("type") == "array" and "minLength" in field:  # pydantic's name for it in a tuple
                field["minItems"] = field.pop("minLength")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
