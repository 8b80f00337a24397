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


@pytest.mark.parametrize("profiles", [(), ({},), ({"schedulerName": "default-scheduler"},), ({"plugins": None},)])
def test_what_is_not_said_is_the_default(profiles: tuple[dict[str, Any], ...]) -> None:
    assert load(*profiles) == SchedulerConfig()


def test_profiles_are_found_by_their_scheduler_name() -> None:
    found = load(*PROFILES)
    assert list(found.profiles) == ["default-scheduler", "packing", "ratio"]
    assert found.profiles["default-scheduler"] == SchedulerProfile()
    assert found.unknown == ()
    packing, ratio = found.profiles["packing"], found.profiles["ratio"]
    assert packing == SchedulerProfile(
        name="packing",
        weights={
            **{name: weight for name, weight in DEFAULT_WEIGHTS.items() if name != "NodeResourcesBalancedAllocation"},
            "ImageLocality": 5,
        },
        fit_strategy="MostAllocated",
        fit_resources=(("cpu", 3), ("memory", 1), ("example.com/gpu", 5)),
        added_affinity=NodeAffinity(
            required=NodeSelector(
                node_selector_terms=(NodeSelectorTerm(match_expressions=(Requirement(key="disk", operator="Exists"),)),)
            ),
            preferred=(
                PreferredTerm(
                    weight=40,
                    preference=NodeSelectorTerm(
                        match_expressions=(Requirement(key="disk", operator="In", values=("ssd",)),)
                    ),
                ),
            ),
        ),
        default_constraints=(
            SpreadConstraint(
                max_skew=1, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"
            ),
            SpreadConstraint(max_skew=6, topology_key="kubernetes.io/hostname", when_unsatisfiable="DoNotSchedule"),
        ),
        hard_pod_affinity_weight=30,
        ignore_preferred_terms_of_existing_pods=True,
    )
    assert "TaintToleration" not in ratio.weights
    assert "TaintToleration" in ratio.filters
    assert ratio.fit_strategy == "RequestedToCapacityRatio"
    assert ratio.fit_shape == ((0, 2), (35, 10), (100, 0))
    assert ratio.balanced_resources == (("cpu", 1), ("memory", 1), ("example.com/gpu", 1))


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        pytest.param(
            plugins(score={"disabled": names("PodTopologySpread")}), {"PodTopologySpread": None}, id="one off"
        ),
        pytest.param(plugins(score={"disabled": names("*")}), dict.fromkeys(DEFAULT_WEIGHTS), id="all off"),
        pytest.param(
            plugins(score={"disabled": names("*"), "enabled": [{"name": "NodeAffinity", "weight": 7}]}),
            {**dict.fromkeys(DEFAULT_WEIGHTS), "NodeAffinity": 7},
            id="only one",
        ),
        pytest.param(
            plugins(score={"enabled": [{"name": "ImageLocality", "weight": 4}]}), {"ImageLocality": 4}, id="reweighted"
        ),
        pytest.param(
            plugins(multiPoint={"enabled": [{"name": "ImageLocality", "weight": 4}]}),
            {"ImageLocality": 4},
            id="reweighted for all points",
        ),
        pytest.param(
            plugins(
                multiPoint={"enabled": [{"name": "ImageLocality", "weight": 4}]},
                score={"enabled": [{"name": "ImageLocality", "weight": 6}]},
            ),
            {"ImageLocality": 6},
            id="the point beats all points",
        ),
        pytest.param(
            plugins(multiPoint={"enabled": names("TaintToleration")}), {"TaintToleration": 1}, id="no weight is 1"
        ),
        pytest.param(
            plugins(score={"enabled": [{"name": "TaintToleration", "weight": 0}]}),
            {"TaintToleration": 1},
            id="weight 0 is 1",
        ),
        pytest.param(
            plugins(multiPoint={"disabled": names("TaintToleration")}), {"TaintToleration": None}, id="off everywhere"
        ),
        pytest.param(
            plugins(multiPoint={"disabled": names("*"), "enabled": names("NodeResourcesFit", "DefaultBinder")}),
            {**dict.fromkeys(DEFAULT_WEIGHTS), "NodeResourcesFit": 1},
            id="a scheduler of one's own",
        ),
        pytest.param(
            plugins(multiPoint={"disabled": names("ImageLocality")}, score={"enabled": names("ImageLocality")}),
            {"ImageLocality": 1},
            id="off everywhere but on for the score",
        ),
    ],
)
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


def test_a_resource_without_weight_has_weight_one() -> None:
    given = configured(
        "NodeResourcesFit",
        apiVersion="kubescheduler.config.k8s.io/v1",
        kind="NodeResourcesFitArgs",
        scoringStrategy={"type": "MostAllocated", "resources": [{"name": "cpu"}, {"name": "memory", "weight": 0}]},
    )
    assert only(**given).fit_resources == (("cpu", 1), ("memory", 1))


def test_a_strategy_without_resources_scores_cpu_and_memory() -> None:
    found = only(**configured("NodeResourcesFit", scoringStrategy={"type": "MostAllocated"}))
    assert (found.fit_strategy, found.fit_resources) == ("MostAllocated", (("cpu", 1), ("memory", 1)))


def test_an_empty_list_of_default_constraints_is_no_default_spreading() -> None:
    assert only(**configured("PodTopologySpread", defaultingType="List")).default_constraints == ()
    assert only(**configured("PodTopologySpread", defaultingType="System")).default_constraints is None


def test_what_the_model_does_not_know_is_named() -> None:
    found = load(
        {
            "plugins": {
                "score": {"enabled": [{"name": "Trimaran", "weight": 2}]},
                "filter": {"enabled": names("Trimaran", "VolumeZone")},
                "multiPoint": {"enabled": names("Coscheduling")},
            },
            "pluginConfig": [
                {"name": "Trimaran", "args": {"anything": {"goes": 1}}},
                {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/a"]}},
            ],
        },
        extenders=[{"urlPrefix": "https://me:secret@extender.example", "filterVerb": "filter"}],
        leaderElection={"leaderElect": False},
    )
    assert found.unknown == (
        "plugin Coscheduling",
        "plugin Trimaran",
        "NodeResourcesFit ignores example.com/a",
        "extender https://***@extender.example",
    )
    assert found.profiles["default-scheduler"].weights == DEFAULT_WEIGHTS


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
        (
            "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: NodeName",
            5,
            "profiles[0].plugins.score.enabled[0]: expected a plugin that can score, got NodeName",
        ),
        (
            "profiles:\n- plugins:\n    filter:\n      enabled:\n      - name: ImageLocality",
            5,
            "profiles[0].plugins.filter.enabled[0]: expected a plugin that can filter, got ImageLocality",
        ),
        (
            "profiles:\n- plugins:\n    multiPoint:\n      enabled:\n      - name: A\n      - name: A",
            6,
            "profiles[0].plugins.multiPoint.enabled[1]: expected each plugin once, got A again",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n"
            "        type: Least",
            6,
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: expected 'LeastAllocated'",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategie: {}",
            5,
            "args.scoringStrategie: unknown field, did you mean scoringStrategy?",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n"
            "        type: RequestedToCapacityRatio",
            5,
            "requestedToCapacityRatio: expected with type RequestedToCapacityRatio only",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n"
            "        type: RequestedToCapacityRatio\n        requestedToCapacityRatio:\n"
            "          shape: [{utilization: 50, score: 1}, {utilization: 50, score: 2}]",
            8,
            "shape: expected ascending utilization, got 50, 50",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeResourcesBalancedAllocation\n    args:\n"
            "      resources: [{name: cpu, weight: 2}]",
            5,
            "expected weight 1",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultConstraints:\n"
            "      - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}",
            4,
            "defaultingType: expected List with defaultConstraints",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultingType: List\n"
            "      defaultConstraints:\n"
            "      - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}",
            7,
            "defaultConstraints[0].labelSelector: unknown field",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args: {hardPodAffinityWeight: 101}",
            4,
            "hardPodAffinityWeight",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args:\n      addedAffinity:\n"
            "        requiredDuringSchedulingIgnoredDuringExecution:\n          nodeSelectorTerms:\n"
            "          - matchExpressions:\n            - {key: disk, operator: In}",
            9,
            "values: expected values that fit In",
        ),
        (
            "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args: {kind: NodeResourcesFitArgs}",
            4,
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
    said = str(caught.value)
    assert f"scheduler.yaml:{line}: " in said, said
    assert says in said, said


def test_several_mistakes_in_arguments_are_all_named() -> None:
    with pytest.raises(ConfigError) as caught:
        only(
            pluginConfig=[
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": -1}},
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "None"}}},
            ]
        )
    assert len(str(caught.value).splitlines()) == 2
