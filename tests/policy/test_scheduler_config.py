"""A KubeSchedulerConfiguration is read as kube-scheduler reads it."""

from typing import Any

import pytest
import yaml

from rebalancer.model.cluster.objects import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PreferredTerm,
    Requirement,
    SpreadConstraint,
)
from rebalancer.model.cluster.scheduler import DEFAULT_WEIGHTS, FILTERS, SchedulerConfig, SchedulerProfile
from rebalancer.model.errors import ConfigError
from rebalancer.policy.kube_scheduler.config import load_scheduler_config
from tests.real.builders.profiles import PROFILES

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def load(*profiles: dict[str, Any], **fields: Any) -> SchedulerConfig:
    document = {**HEAD, **({"profiles": list(profiles)} if profiles else {}), **fields}
    return load_scheduler_config(yaml.safe_dump(document, sort_keys=False).encode(), source="scheduler.yaml")


def only(**profile: Any) -> SchedulerProfile:
    (found,) = load(profile).profiles.values()
    return found


def plugins(**points: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {"plugins": points}


def configured(name: str, **args: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": name, "args": args}]}


def names(*wanted: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in wanted]


def of_plugin(name: str, *args: str) -> str:
    """A file in which a plugin has these arguments, a line each."""
    return "\n".join(
        ["profiles:", "- pluginConfig:", f"  - name: {name}", "    args:", *(f"      {each}" for each in args)]
    )


def enabled(point: str, *plugins: str) -> str:
    """A file that enables these plugins."""
    return "\n".join(
        ["profiles:", "- plugins:", f"    {point}:", "      enabled:", *(f"      - name: {each}" for each in plugins)]
    )


@pytest.mark.parametrize("profiles", [(), ({},), ({"schedulerName": "default-scheduler"},), ({"plugins": None},)])
def test_what_is_not_written_is_the_default(profiles: tuple[dict[str, Any], ...]) -> None:
    assert load(*profiles) == SchedulerConfig()


def test_profiles_are_found_by_their_scheduler_name() -> None:
    found = load(*PROFILES)
    assert list(found.profiles) == ["default-scheduler", "packing", "ratio"]
    assert found.profiles["default-scheduler"] == SchedulerProfile()
    assert found.unknown == ()
    packing, ratio = found.profiles["packing"], found.profiles["ratio"]
    exists, ssd = (
        NodeSelectorTerm(match_expressions=(Requirement(key="disk", operator=operator, values=values),))
        for operator, values in (("Exists", ()), ("In", ("ssd",)))
    )
    zone, host = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
    weights = {name: weight for name, weight in DEFAULT_WEIGHTS.items() if name != "NodeResourcesBalancedAllocation"}
    assert packing == SchedulerProfile(
        name="packing",
        weights={**weights, "ImageLocality": 5},
        fit_strategy="MostAllocated",
        fit_resources=(("cpu", 3), ("memory", 1), ("example.com/gpu", 5)),
        added_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=(exists,)), preferred=(PreferredTerm(weight=40, preference=ssd),)
        ),
        default_constraints=(
            SpreadConstraint(max_skew=1, topology_key=zone, when_unsatisfiable="ScheduleAnyway"),
            SpreadConstraint(max_skew=6, topology_key=host, when_unsatisfiable="DoNotSchedule"),
        ),
        hard_pod_affinity_weight=30,
        ignore_preferred_terms_of_existing_pods=True,
    )
    assert "TaintToleration" not in ratio.weights
    assert "TaintToleration" in ratio.filters
    assert ratio.fit_strategy == "RequestedToCapacityRatio"
    assert ratio.fit_shape == ((0, 2), (35, 10), (100, 0))
    assert ratio.balanced_resources == (("cpu", 1), ("memory", 1), ("example.com/gpu", 1))


def weighted(name: str, weight: int) -> dict[str, Any]:
    return {"enabled": [{"name": name, "weight": weight}]}


NONE = dict.fromkeys(DEFAULT_WEIGHTS)
WEIGHTS: dict[str, tuple[dict[str, Any], dict[str, int | None]]] = {
    "one off": (plugins(score={"disabled": names("PodTopologySpread")}), {"PodTopologySpread": None}),
    "all off": (plugins(score={"disabled": names("*")}), NONE),
    "only one": (
        plugins(score={"disabled": names("*"), **weighted("NodeAffinity", 7)}),
        {**NONE, "NodeAffinity": 7},
    ),
    "reweighted": (plugins(score=weighted("ImageLocality", 4)), {"ImageLocality": 4}),
    "reweighted for all points": (plugins(multiPoint=weighted("ImageLocality", 4)), {"ImageLocality": 4}),
    "the point beats all points": (
        plugins(multiPoint=weighted("ImageLocality", 4), score=weighted("ImageLocality", 6)),
        {"ImageLocality": 6},
    ),
    "no weight is 1": (plugins(multiPoint={"enabled": names("TaintToleration")}), {"TaintToleration": 1}),
    "weight 0 is 1": (plugins(score=weighted("TaintToleration", 0)), {"TaintToleration": 1}),
    "off everywhere": (plugins(multiPoint={"disabled": names("TaintToleration")}), {"TaintToleration": None}),
    "a scheduler of one's own": (
        plugins(multiPoint={"disabled": names("*"), "enabled": names("NodeResourcesFit", "DefaultBinder")}),
        {**NONE, "NodeResourcesFit": 1},
    ),
    "off everywhere but on for the score": (
        plugins(multiPoint={"disabled": names("ImageLocality")}, score={"enabled": names("ImageLocality")}),
        {"ImageLocality": 1},
    ),
}


@pytest.mark.parametrize(("given", "changed"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_weights_follow_multi_point_and_score(given: dict[str, Any], changed: dict[str, int | None]) -> None:
    wanted = {**DEFAULT_WEIGHTS, **changed}
    assert only(**given).weights == {name: weight for name, weight in wanted.items() if weight is not None}
    assert only(**given).filters <= frozenset(FILTERS)


@pytest.mark.parametrize(
    ("given", "off"),
    [
        (plugins(filter={"disabled": names("NodePorts")}), {"NodePorts"}),
        (plugins(filter={"disabled": names("*"), "enabled": names("NodeName")}), set(FILTERS) - {"NodeName"}),
        (plugins(multiPoint={"disabled": names("InterPodAffinity")}), {"InterPodAffinity"}),
        (plugins(score={"disabled": names("*")}), set()),
    ],
)
def test_filters_follow_multi_point_and_filter(given: dict[str, Any], off: set[str]) -> None:
    assert only(**given).filters == frozenset(FILTERS) - off


def test_a_percentage_of_a_profile_goes_before_the_common_one() -> None:
    found = load(
        {"schedulerName": "a"},
        {"schedulerName": "b", "percentageOfNodesToScore": 0},
        {"schedulerName": "c", "percentageOfNodesToScore": 100},
        percentageOfNodesToScore=30,
    )
    assert found.percentage_of_nodes_to_score == 30
    assert [each.percentage_of_nodes_to_score for each in found.profiles.values()] == [None, 0, 100]


def test_resources_without_weight_have_weight_one_and_without_any_cpu_and_memory_are_scored() -> None:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu"}, {"name": "memory", "weight": 0}]}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs"}
    found = only(**configured("NodeResourcesFit", **kind, scoringStrategy=strategy))
    assert found.fit_resources == (("cpu", 1), ("memory", 1))
    found = only(**configured("NodeResourcesFit", scoringStrategy={"type": "MostAllocated"}))
    assert (found.fit_strategy, found.fit_resources) == ("MostAllocated", (("cpu", 1), ("memory", 1)))


def test_an_empty_list_of_default_constraints_is_no_default_spreading() -> None:
    assert only(**configured("PodTopologySpread", defaultingType="List")).default_constraints == ()
    assert only(**configured("PodTopologySpread", defaultingType="System")).default_constraints is None


def test_what_the_model_does_not_know_is_named() -> None:
    trimaran, fit = {"anything": {"goes": 1}}, {"ignoredResources": ["example.com/a"]}
    points = {
        "score": weighted("Trimaran", 2),
        "filter": {"enabled": names("Trimaran", "VolumeZone")},
        "multiPoint": {"enabled": names("Coscheduling")},
    }
    args = [{"name": "Trimaran", "args": trimaran}, {"name": "NodeResourcesFit", "args": fit}]
    extenders = [{"urlPrefix": "https://me:secret@extender.example", "filterVerb": "filter"}]
    profile = {"plugins": points, "pluginConfig": args}
    found = load(profile, extenders=extenders, leaderElection={"leaderElect": False})
    assert found.unknown == (
        "plugin Coscheduling",
        "plugin Trimaran",
        "NodeResourcesFit ignores example.com/a",
        "extender https://***@extender.example",
    )
    assert found.profiles["default-scheduler"].weights == DEFAULT_WEIGHTS


RATIO = ("scoringStrategy:", "  type: RequestedToCapacityRatio", "  requestedToCapacityRatio:")
SPREAD = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway"
AFFINITY = (
    *("addedAffinity:", "  requiredDuringSchedulingIgnoredDuringExecution:", "    nodeSelectorTerms:"),
    *("    - matchExpressions:", "      - {key: disk, operator: In}"),
)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "empty: expected a KubeSchedulerConfiguration"),
        ("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration", 1, "apiVersion"),
        ("kind: Pod\napiVersion: kubescheduler.config.k8s.io/v1", 1, "kind: expected 'KubeSchedulerConfiguration'"),
        ("profiles:\n- schedulerNam: a", 2, "profiles[0].schedulerNam: unknown field, did you mean schedulerName?"),
        ("percentageOfNodesToScore: 101", 1, "percentageOfNodesToScore"),
        ("profiles:\n- percentageOfNodesToScore: -1", 2, "profiles[0].percentageOfNodesToScore: expected at least 0"),
        ("profiles:\n- schedulerName: a\n-\n  plugins: {}", 4, "profiles[1].schedulerName: required"),
        ("profiles:\n- schedulerName: a\n- schedulerName: a", 3, "profiles[1].schedulerName: expected a name of its"),
        (enabled("score", "NodeName"), 5, "score.enabled[0]: expected a plugin that can score, got NodeName"),
        (
            enabled("filter", "ImageLocality"),
            5,
            "filter.enabled[0]: expected a plugin that can filter, got ImageLocality",
        ),
        (enabled("multiPoint", "A", "A"), 6, "multiPoint.enabled[1]: expected each plugin once, got A again"),
        (
            of_plugin("NodeResourcesFit", "scoringStrategy:", "  type: Least"),
            6,
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: expected 'LeastAllocated'",
        ),
        (
            of_plugin("NodeResourcesFit", "scoringStrategie: {}"),
            5,
            "args.scoringStrategie: unknown field, did you mean scoringStrategy?",
        ),
        (
            of_plugin("NodeResourcesFit", "scoringStrategy:", "  type: RequestedToCapacityRatio"),
            5,
            "requestedToCapacityRatio: expected with type RequestedToCapacityRatio only",
        ),
        (
            of_plugin(
                "NodeResourcesFit", *RATIO, "    shape: [{utilization: 50, score: 1}, {utilization: 50, score: 2}]"
            ),
            8,
            "shape: expected ascending utilization, got 50, 50",
        ),
        (
            of_plugin("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]"),
            5,
            "expected weight 1",
        ),
        (
            of_plugin("PodTopologySpread", "defaultConstraints:", f"- {{{SPREAD}}}"),
            4,
            "defaultingType: expected List with defaultConstraints",
        ),
        (
            of_plugin(
                "PodTopologySpread",
                "defaultingType: List",
                "defaultConstraints:",
                f"- {{{SPREAD}, labelSelector: {{}}}}",
            ),
            7,
            "defaultConstraints[0].labelSelector: unknown field",
        ),
        (of_plugin("InterPodAffinity", "hardPodAffinityWeight: 101"), 5, "hardPodAffinityWeight"),
        (of_plugin("NodeAffinity", *AFFINITY), 9, "values: expected values that fit In"),
        (
            of_plugin("NodeAffinity", "kind: NodeResourcesFitArgs"),
            5,
            "args.kind: expected NodeAffinityArgs, got 'NodeResourcesFitArgs'",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n  - name: NodeAffinity",
            4,
            "profiles[0].pluginConfig[1].name: expected each plugin once",
        ),
    ],
)
def test_a_mistake_is_a_line_with_file_line_and_field(text: str, line: int, says: str) -> None:
    head = yaml.safe_dump(HEAD)
    complete = "apiVersion" in text or not text
    with pytest.raises(ConfigError) as caught:
        load_scheduler_config((text if complete else f"{text}\n{head}").encode(), source="scheduler.yaml")
    message = str(caught.value)
    assert f"scheduler.yaml:{line}: " in message, message
    assert says in message, message


def test_several_mistakes_in_arguments_are_all_named() -> None:
    weight, strategy = {"hardPodAffinityWeight": -1}, {"scoringStrategy": {"type": "None"}}
    args = [{"name": "InterPodAffinity", "args": weight}, {"name": "NodeResourcesFit", "args": strategy}]
    with pytest.raises(ConfigError) as caught:
        only(pluginConfig=args)
    assert len(str(caught.value).splitlines()) == 2
