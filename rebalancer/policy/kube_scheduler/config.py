"""A `KubeSchedulerConfiguration` (kubescheduler.config.k8s.io/v1), read as kube-scheduler reads it.

Source: Kubernetes v1.37, `pkg/scheduler/apis/config` (`types.go`, `types_pluginargs.go`, `v1/default_plugins.go`,
`v1/defaults.go`, `validation/`) and `pkg/scheduler/framework/runtime/framework.go` (`expandMultiPointPlugins`,
`getValidScoreWeights`). Fields that change nothing about where a pod goes are taken as they are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from rebalancer.model.cluster.objects import NodeAffinity, SpreadConstraint
from rebalancer.model.cluster.scheduler import (
    DEFAULT_SCHEDULER,
    DEFAULT_WEIGHTS,
    FILTERS,
    SchedulerConfig,
    SchedulerProfile,
)
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.decoding import convert
from rebalancer.policy.document import Document
from rebalancer.policy.kube_scheduler.args import (
    ARGS,
    AddedAffinity,
    AffinityArgs,
    Args,
    BalancedArgs,
    DefaultConstraint,
    FitArgs,
    InterPodArgs,
    Percentage,
    Resource,
    ScoringStrategy,
    SpreadArgs,
)
from rebalancer.policy.schema.types import AsTuple, NonEmpty, Section

API_VERSION = "kubescheduler.config.k8s.io/v1"

DEFAULT_PLUGINS: tuple[str, ...] = (
    "SchedulingGates",
    "PrioritySort",
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "DefaultPreemption",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
    "NodeDeclaredFeatures",
)
"""Plugins enabled by default in kube-scheduler, in order."""

OWN_PLUGINS = frozenset(
    {*DEFAULT_PLUGINS, "DeferredPodScheduling", "GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount"}
)
NO_SCORE = OWN_PLUGINS - {*DEFAULT_WEIGHTS, "DynamicResources", "VolumeBinding"}
NO_FILTER = OWN_PLUGINS - {
    *FILTERS, "VolumeRestrictions", "VolumeZone", "DynamicResources", "DeferredPodScheduling"
}  # fmt: skip

Weight = Annotated[int, Field(ge=0)]


class _Plugin(Section):
    """A reference to a plugin."""

    name: NonEmpty
    weight: Weight = 0


class _PluginSet(Section):
    """Plugins of one extension point."""

    enabled: Annotated[tuple[_Plugin, ...], AsTuple] = ()
    disabled: Annotated[tuple[_Plugin, ...], AsTuple] = ()

    @property
    def off(self) -> frozenset[str]:
        return frozenset(each.name for each in self.disabled)


class _Plugins(Section):
    """Plugins by extension point."""

    multi_point: _PluginSet = _PluginSet()
    score: _PluginSet = _PluginSet()
    filter: _PluginSet = _PluginSet()
    pre_enqueue: _PluginSet = _PluginSet()
    queue_sort: _PluginSet = _PluginSet()
    pre_filter: _PluginSet = _PluginSet()
    post_filter: _PluginSet = _PluginSet()
    pre_score: _PluginSet = _PluginSet()
    reserve: _PluginSet = _PluginSet()
    permit: _PluginSet = _PluginSet()
    pre_bind: _PluginSet = _PluginSet()
    bind: _PluginSet = _PluginSet()
    post_bind: _PluginSet = _PluginSet()
    placement_generate: _PluginSet = _PluginSet()
    placement_score: _PluginSet = _PluginSet()
    pod_group_post_filter: _PluginSet = _PluginSet()

    def each(self) -> Iterator[tuple[str, _PluginSet]]:
        """(extension point, its plugins)"""
        for name, field in type(self).model_fields.items():
            yield field.alias or name, getattr(self, name)


class _PluginConfig(Section):
    """Arguments of one plugin."""

    name: NonEmpty
    args: dict[str, Any] = {}


class _Profile(Section):
    """One profile."""

    scheduler_name: NonEmpty | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: _Plugins = _Plugins()
    plugin_config: Annotated[tuple[_PluginConfig, ...], AsTuple] = ()


class _Configuration(Section):
    """The file."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    parallelism: Any = None
    leader_election: Any = None
    client_connection: Any = None
    enable_profiling: Any = None
    enable_contention_profiling: Any = None
    pod_initial_backoff_seconds: Any = None
    pod_max_backoff_seconds: Any = None
    delay_cache_until_active: Any = None
    percentage_of_nodes_to_score: Percentage = 0
    profiles: Annotated[tuple[_Profile, ...], AsTuple] = ()
    extenders: Annotated[tuple[dict[str, Any], ...], AsTuple] = ()


def load_scheduler_config(data: bytes, *, source: str) -> SchedulerConfig:
    """Parse and validate. `source` is the file name for messages.

    Raises ConfigError with a line for each mistake.
    """
    document = Document.read(data, source=source, kind="KubeSchedulerConfiguration")
    file = document.checked(_Configuration, _without_nulls(document.value))
    profiles: dict[str, SchedulerProfile] = {}
    unknown: list[str] = []
    for index, given in enumerate(file.profiles or (_Profile(),)):
        at = ("profiles", index)
        name = given.scheduler_name or (DEFAULT_SCHEDULER if len(file.profiles) < 2 else "")
        if not name:
            raise document.mistake((*at, "schedulerName"), "required where there are several profiles")
        if name in profiles:
            raise document.mistake((*at, "schedulerName"), f"expected a name of its own, got {name!r} again")
        profiles[name] = _profile(document, at, given, name)
        unknown += _unknown(given)
    unknown += [f"extender {_address(each)}" for each in file.extenders]
    return SchedulerConfig(
        profiles=profiles,
        percentage_of_nodes_to_score=file.percentage_of_nodes_to_score,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _profile(document: Document, at: tuple[str | int, ...], given: _Profile, name: str) -> SchedulerProfile:
    for point, plugins in given.plugins.each():
        names = [each.name for each in plugins.enabled]
        wrong = {"score": NO_SCORE, "filter": NO_FILTER}.get(point, frozenset())
        for index, plugin in enumerate(names):
            place = (*at, "plugins", point, "enabled", index)
            if plugin in names[:index]:
                raise document.mistake(place, f"expected each plugin once, got {plugin} again")
            if plugin in wrong:
                raise document.mistake(place, f"expected a plugin that can {point}, got {plugin}")
    args = _args(document, at, given)
    fit, spread = args["NodeResourcesFit"], args["PodTopologySpread"]
    affinity, others = args["NodeAffinity"], args["InterPodAffinity"]
    balanced = args["NodeResourcesBalancedAllocation"]
    assert isinstance(fit, FitArgs)
    assert isinstance(spread, SpreadArgs)
    assert isinstance(affinity, AffinityArgs)
    assert isinstance(others, InterPodArgs)
    assert isinstance(balanced, BalancedArgs)
    default = SchedulerProfile()
    strategy = fit.scoring_strategy or ScoringStrategy(type="LeastAllocated")
    ratio = strategy.requested_to_capacity_ratio
    weights = _on(given.plugins, given.plugins.score)
    return SchedulerProfile(
        name=name,
        weights={plugin: weights[plugin] for plugin in DEFAULT_WEIGHTS if plugin in weights},
        filters=frozenset(FILTERS) & _on(given.plugins, given.plugins.filter).keys(),
        fit_strategy=strategy.type,
        fit_resources=_weighted(strategy.resources) or default.fit_resources,
        fit_shape=tuple((point.utilization, point.score) for point in ratio.shape) if ratio is not None else (),
        balanced_resources=_weighted(balanced.resources) or default.balanced_resources,
        added_affinity=_node_affinity(affinity.added_affinity),
        default_constraints=tuple(map(_constraint, spread.default_constraints))
        if spread.defaulting_type == "List"
        else None,
        hard_pod_affinity_weight=others.hard_pod_affinity_weight,
        ignore_preferred_terms_of_existing_pods=others.ignore_preferred_terms_of_existing_pods,
        percentage_of_nodes_to_score=given.percentage_of_nodes_to_score,
    )


def _args(document: Document, at: tuple[str | int, ...], given: _Profile) -> dict[str, Args]:
    """Plugin -> its arguments; defaults if the file has none."""
    out: dict[str, Args] = {name: model() for name, model in ARGS.items()}
    seen: set[str] = set()
    mistakes: list[str] = []
    for index, each in enumerate(given.plugin_config):
        place = (*at, "pluginConfig", index)
        if each.name in seen:
            raise document.mistake((*place, "name"), f"expected each plugin once, got {each.name} again")
        seen.add(each.name)
        if each.name not in ARGS:
            continue
        try:
            read = document.checked(ARGS[each.name], each.args, (*place, "args"))
        except ConfigError as error:
            mistakes.append(str(error))
            continue
        if read.kind not in (None, f"{each.name}Args"):
            raise document.mistake((*place, "args", "kind"), f"expected {each.name}Args, got {read.kind!r}")
        out[each.name] = read
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return out


def _on(plugins: _Plugins, point: _PluginSet) -> dict[str, int]:
    """Plugins enabled at an extension point that implement it, with their weights.

    A weight of 0 is 1, also for a plugin whose default weight is another.
    """
    multi, own = plugins.multi_point, {each.name: each.weight for each in point.enabled}
    usual: dict[str, int] = {}
    if "*" not in multi.off:
        usual = {name: DEFAULT_WEIGHTS.get(name, 1) for name in DEFAULT_PLUGINS if name not in multi.off}
    usual |= {each.name: each.weight for each in multi.enabled}
    if "*" in point.off:
        usual = {}
    chosen = {name: weight for name, weight in usual.items() if name not in point.off} | own
    return {name: weight or 1 for name, weight in chosen.items()}


def _unknown(given: _Profile) -> list[str]:
    names = [
        f"plugin {each.name}"
        for _, plugins in given.plugins.each()
        for each in plugins.enabled
        if each.name not in OWN_PLUGINS
    ]
    for each in given.plugin_config:
        if each.name == "NodeResourcesFit":
            ignored = [*each.args.get("ignoredResources", ()), *each.args.get("ignoredResourceGroups", ())]
            names += [f"NodeResourcesFit ignores {resource}" for resource in ignored]
    return names


def _address(extender: Mapping[str, Any]) -> str:
    """Without credentials."""
    return re.sub(r"//\S*@", "//***@", str(extender.get("urlPrefix", "without urlPrefix")))


def _weighted(resources: Sequence[Resource]) -> tuple[tuple[str, int], ...]:
    return tuple((each.name, each.weight or 1) for each in resources)


def _node_affinity(given: AddedAffinity | None) -> NodeAffinity | None:
    if given is None:
        return None
    return convert(given.model_dump(by_alias=True, exclude_none=True), NodeAffinity)


def _constraint(given: DefaultConstraint) -> SpreadConstraint:
    return convert(given.model_dump(by_alias=True, exclude_none=True), SpreadConstraint)


def _without_nulls(value: Any) -> Any:
    """Kubernetes treats a null field as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


# ---- writing


def profile_fields(profile: SchedulerProfile) -> dict[str, Any]:
    """A profile as an entry of `profiles`, without defaults; loading it returns the same profile."""
    weights = [
        {"name": name, "weight": weight} for name, weight in profile.weights.items() if weight != DEFAULT_WEIGHTS[name]
    ]
    points: dict[str, dict[str, list[dict[str, Any]]]] = {
        "score": {
            "enabled": weights,
            "disabled": _named(each for each in DEFAULT_WEIGHTS if each not in profile.weights),
        },
        "filter": {"disabled": _named(each for each in FILTERS if each not in profile.filters)},
    }
    shown = {point: {key: each for key, each in sets.items() if each} for point, sets in points.items()}
    config = [{"name": name, "args": args} for name, args in _written_args(profile).items() if args]
    fields: dict[str, Any] = {"schedulerName": profile.name}
    if profile.percentage_of_nodes_to_score is not None:
        fields["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    if plugins := {point: sets for point, sets in shown.items() if sets}:
        fields["plugins"] = plugins
    if config:
        fields["pluginConfig"] = config
    return fields


def _named(names: Iterable[str]) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def _written_args(profile: SchedulerProfile) -> dict[str, dict[str, Any]]:
    """Plugin -> arguments that differ from the defaults."""
    default = SchedulerProfile()
    strategy: dict[str, Any] = {}
    if (profile.fit_strategy, profile.fit_resources) != (default.fit_strategy, default.fit_resources):
        strategy = {"type": profile.fit_strategy, "resources": _resources(profile.fit_resources)}
        if profile.fit_shape:
            shape = [{"utilization": used, "score": score} for used, score in profile.fit_shape]
            strategy["requestedToCapacityRatio"] = {"shape": shape}
    others = {
        "hardPodAffinityWeight": (profile.hard_pod_affinity_weight, 1),
        "ignorePreferredTermsOfExistingPods": (profile.ignore_preferred_terms_of_existing_pods, False),
    }
    args: dict[str, dict[str, Any]] = {
        "NodeResourcesFit": {"scoringStrategy": strategy} if strategy else {},
        "NodeResourcesBalancedAllocation": {},
        "NodeAffinity": {},
        "PodTopologySpread": {},
        "InterPodAffinity": {name: value for name, (value, usual) in others.items() if value != usual},
    }
    if profile.balanced_resources != default.balanced_resources:
        args["NodeResourcesBalancedAllocation"] = {"resources": _resources(profile.balanced_resources)}
    if profile.added_affinity is not None:
        args["NodeAffinity"] = {"addedAffinity": msgspec.to_builtins(profile.added_affinity)}
    if profile.default_constraints is not None:
        # required fields are written even if they equal the default
        constraints = [
            {"maxSkew": each.max_skew, "whenUnsatisfiable": each.when_unsatisfiable, **msgspec.to_builtins(each)}
            for each in profile.default_constraints
        ]
        args["PodTopologySpread"] = {"defaultingType": "List", "defaultConstraints": constraints}
    return args


def _resources(resources: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "weight": weight} for name, weight in resources]
