"""Advice for kube-scheduler: only what is seen, with its numbers, and profiles that load again."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from rebalancer.cli.output.advised import advised_yaml, configuration
from rebalancer.model.cluster.objects import (
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SpreadConstraint,
    Taint,
)
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import PENDING, SUCCEEDED
from rebalancer.model.cluster.scheduler import DEFAULT_WEIGHTS, FILTERS, SchedulerConfig, SchedulerProfile
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine
from rebalancer.planner.advice.advice import (
    Advice,
    SchedulerAdvice,
    Topic,
    advise,
    find_placement_skews,
)
from rebalancer.planner.advice.profiles import CROWD_PROFILE, PACKING_PROFILE
from rebalancer.policy.kube_scheduler.config import load_scheduler_config, profile_fields
from tests.builders import GIB, NOW, ANode, APod, a_node, a_pod, a_policy, cluster, replicas
from tests.planner.test_explain_skews import skewed_world
from tests.real.builders.profiles import PROFILES

DEFAULT = "default-scheduler"


def advice_for(
    nodes: Sequence[ANode],
    pods: Sequence[APod],
    *,
    config: SchedulerConfig | None = None,
    strategies: Sequence[str] = ("LowNodeUtilization",),
    pools: Sequence[str] | None = None,
    **fields: Any,
) -> SchedulerAdvice:
    snapshot: ClusterSnapshot = cluster(nodes, pods, **fields)
    config = config or SchedulerConfig()
    return advise(
        snapshot,
        Engine(Board(snapshot), config),
        config,
        strategies=a_policy(strategies=[{"name": each} for each in strategies]).strategies,
        pools=pools or ["general"] * len(nodes),
        now=NOW,
    )


def about(found: SchedulerAdvice, topic: Topic) -> list[Advice]:
    return [each for each in found.advice if each.topic is topic]


def profile(found: SchedulerAdvice, name: str = DEFAULT) -> SchedulerProfile:
    return next(each.profile for each in found.profiles if each.profile.name == name)


def quiet() -> tuple[list[ANode], list[APod]]:
    nodes = [a_node(f"n{number}") for number in range(1, 5)]
    return nodes, replicas("web", {node.name: 3 for node in nodes})


def loaded(found: SchedulerAdvice) -> SchedulerConfig:
    return load_scheduler_config(advised_yaml(found).encode(), source="advice.yaml")


# ---- what is seen


def test_in_a_quiet_cluster_the_scheduler_stays_as_it_is() -> None:
    found = advice_for(*quiet())
    assert [each.topic for each in found.advice] == [Topic.STRATEGY]
    assert profile(found) == SchedulerProfile()
    assert loaded(found) == SchedulerConfig()


def test_image_locality_is_switched_off_where_it_decides_a_skew_with_the_numbers() -> None:
    found = advice_for(*skewed_world(here=12))
    (advice,) = about(found, Topic.IMAGE_LOCALITY)
    assert advice.subject == "shop/report"
    assert advice.figures["pointsHere"] == 76
    assert advice.figures["pointsMedian"] == 0
    assert "12 of 12 pods are on n1" in advice.observation
    assert "ImageLocality" not in profile(found).weights
    assert any("76 points" in reason for reason in found.profiles[0].reasons)
    (pull,) = about(found, Topic.PRE_PULL)
    assert pull.subject == "registry.example/report:1"
    assert pull.figures == {"bytes": 3 * GIB, "nodesWithIt": 1.0, "nodes": 4.0}


def test_image_locality_is_weighed_down_where_that_is_enough() -> None:
    weights = {**DEFAULT_WEIGHTS, "ImageLocality": 4}
    config = SchedulerConfig(profiles={DEFAULT: SchedulerProfile(weights=weights)})
    nodes, pods = skewed_world(here=12)
    # requests speak more loudly against the node than its image at weight 1 speaks for it
    full = replicas("batch", {"n1": 1}, owner_kind="Job", cpu=15_000, memory=30 * GIB)
    found = advice_for(nodes, [*pods, *full], config=config)
    assert profile(found).weights["ImageLocality"] == 1
    assert "set the weight of ImageLocality to 1 instead of 4" in about(found, Topic.IMAGE_LOCALITY)[0].recommendation


def test_image_locality_is_switched_off_where_a_smaller_weight_is_not_enough() -> None:
    weights = {**DEFAULT_WEIGHTS, "ImageLocality": 4}
    config = SchedulerConfig(profiles={DEFAULT: SchedulerProfile(weights=weights)})
    found = advice_for(*skewed_world(here=12), config=config)
    assert "ImageLocality" not in profile(found).weights


def test_only_images_that_are_missing_somewhere_are_to_be_pulled() -> None:
    base = {"registry.example/base:1": 1 * GIB}
    nodes, pods = skewed_world(here=12, images=("registry.example/report:1", "registry.example/base:1"))
    for node in nodes:
        node.images = {**node.images, **base}
    elsewhere = [a_node(f"m{number}", images=nodes[0].images, unschedulable=True) for number in range(4)]
    (pull,) = about(advice_for([*nodes, *elsewhere], pods), Topic.PRE_PULL)
    assert pull.subject == "registry.example/report:1"
    assert pull.figures["nodesWithIt"] == 1


def test_an_image_that_is_everywhere_needs_no_pull_and_decides_no_skew() -> None:
    nodes, pods = skewed_world(here=12)
    for node in nodes:
        node.images = nodes[0].images
    found = advice_for(nodes, pods)
    assert about(found, Topic.IMAGE_LOCALITY) == about(found, Topic.PRE_PULL) == []
    assert len(about(found, Topic.PLACEMENT_SKEW)) == 1


def test_only_the_profile_that_skews_is_changed() -> None:
    config = SchedulerConfig(profiles={DEFAULT: SchedulerProfile(), "other": SchedulerProfile(name="other")})
    found = advice_for(*skewed_world(here=12, schedulerName="other"), config=config)
    assert "ImageLocality" in profile(found).weights
    assert "ImageLocality" not in profile(found, "other").weights


def test_skews_are_found_in_all_of_the_cluster_largest_first() -> None:
    nodes, pods = skewed_world(here=12)
    more = replicas("mail", {"n3": 30}, owner_kind="Job", cpu=10.0)
    snapshot = cluster(nodes, [*pods, *more, *replicas("web", {"n1": 2, "n2": 2, "n3": 2, "n4": 2})])
    placement_skews = find_placement_skews(snapshot, Engine(Board(snapshot)), NOW)
    assert [(each.service.name, each.pod.node_name) for each in placement_skews] == [("mail", "n3"), ("report", "n1")]


def test_in_a_cluster_without_pods_nothing_is_skewed() -> None:
    snapshot = cluster([a_node("n1")], [])
    assert find_placement_skews(snapshot, Engine(Board(snapshot)), NOW) == []


@pytest.mark.parametrize(
    ("strategies", "now", "wanted"),
    [
        (["LowNodeUtilization"], "LeastAllocated", "LeastAllocated"),
        (["LowNodeUtilization"], "MostAllocated", "LeastAllocated"),
        (["HighNodeUtilization"], "LeastAllocated", "MostAllocated"),
        (["HighNodeUtilization"], "MostAllocated", "MostAllocated"),
    ],
)
def test_the_scoring_strategy_follows_the_policy(strategies: list[str], now: Any, wanted: str) -> None:
    config = SchedulerConfig(profiles={DEFAULT: SchedulerProfile(fit_strategy=now)})
    found = advice_for(*quiet(), config=config, strategies=strategies)
    assert profile(found).fit_strategy == wanted
    (advice,) = about(found, Topic.STRATEGY)
    assert ("keep" in advice.recommendation) == (now == wanted)


def test_a_ratio_that_packs_already_is_kept() -> None:
    packs = SchedulerProfile(fit_strategy="RequestedToCapacityRatio", fit_shape=((0, 0), (100, 10)))
    config = SchedulerConfig(profiles={DEFAULT: packs})
    assert profile(advice_for(*quiet(), config=config, strategies=["HighNodeUtilization"])) == packs
    assert profile(advice_for(*quiet(), config=config)).fit_strategy == "LeastAllocated"


def test_a_policy_that_packs_and_spreads_gets_a_profile_for_packing() -> None:
    found = advice_for(*quiet(), strategies=["LowNodeUtilization", "HighNodeUtilization"])
    assert profile(found).fit_strategy == "LeastAllocated"
    assert profile(found, PACKING_PROFILE).fit_strategy == "MostAllocated"
    assert list(loaded(found).profiles) == [DEFAULT, PACKING_PROFILE]


def crowd(count: int, *, kind: str = "CronJob", **fields: Any) -> tuple[list[ANode], list[APod]]:
    nodes = [a_node(f"n{number}") for number in range(1, 5)]
    return nodes, [
        a_pod(f"c{number}", f"n{number % 4 + 1}", owner="clean", owner_kind=kind, **{"age": 300.0, **fields})
        for number in range(count)
    ]


def test_a_crowd_of_young_cron_job_pods_gets_a_profile_of_its_own() -> None:
    nodes, pods = crowd(12)
    for done in pods[:6]:
        done.phase = SUCCEEDED
    found = advice_for(nodes, pods)
    (advice,) = about(found, Topic.CROWD)
    assert advice.figures == {"pods": 12.0, "nodesUsed": 4.0, "nodes": 4.0, "pool": "general", "oldestSeconds": 300}
    assert "topologySpreadConstraints" in advice.recommendation
    own = profile(found, CROWD_PROFILE)
    assert own.fit_strategy == "LeastAllocated"
    assert "ImageLocality" not in own.weights
    assert own.weights["PodTopologySpread"] > DEFAULT_WEIGHTS["PodTopologySpread"]


def test_pods_of_a_cron_jobs_jobs_count_together() -> None:
    nodes = [a_node("n1"), a_node("n2")]
    owners = [
        Owner(kind="CronJob", namespace="shop", name="clean", uid="c"),
        *(Owner(kind="Job", namespace="shop", name=f"clean-{at}", uid=f"j{at}", parent=0) for at in range(12)),
    ]
    pods = [a_pod(f"p{at}", "n1", owner=f"clean-{at}", owner_kind="Job", age=60.0) for at in range(12)]
    (advice,) = about(advice_for(nodes, pods, owners=owners), Topic.CROWD)
    assert advice.subject == "shop/clean"
    assert advice.figures["pods"] == 12


@pytest.mark.parametrize(
    "world",
    [crowd(9), crowd(12, age=7200.0), crowd(12, kind="ReplicaSet")],
    ids=["few", "old", "no Job"],
)
def test_few_old_or_lasting_pods_are_no_crowd(world: tuple[list[ANode], list[APod]]) -> None:
    found = advice_for(*world)
    assert about(found, Topic.CROWD) == []
    assert [each.profile.name for each in found.profiles] == [DEFAULT]


def test_a_crowd_is_counted_by_pool_and_measured_by_its_size() -> None:
    nodes, pods = crowd(12)
    assert about(advice_for(nodes, pods, pools=["a", "a", "b", "b"]), Topic.CROWD) == []
    many = [*nodes, *(a_node(f"m{number}") for number in range(30))]
    assert about(advice_for(many, pods), Topic.CROWD) == []


def test_many_pods_that_wait_are_to_be_capped() -> None:
    nodes, _ = quiet()
    waiting = [
        a_pod(f"w{number}", owner="train", owner_kind="Job", phase=PENDING, cpu=99_000, gated=number >= 25)
        for number in range(40)
    ]
    (advice,) = about(advice_for(nodes, waiting), Topic.PENDING)
    assert (advice.subject, advice.figures["pending"]) == ("shop/train", 25)
    assert "parallelism" in advice.recommendation
    assert about(advice_for(nodes, waiting[:19]), Topic.PENDING) == []


def test_an_autoscaler_is_told_of_only_where_its_taint_is_seen() -> None:
    nodes, pods = quiet()
    assert about(advice_for(nodes, pods), Topic.AUTOSCALER) == []
    nodes[2].taints = (Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule"),)
    (advice,) = about(advice_for(nodes, pods, pools=["a", "a", "b", "b"]), Topic.AUTOSCALER)
    assert advice.subject == "b"
    assert "1 of 2 nodes" in advice.observation


def test_what_is_not_modelled_has_to_be_carried_over() -> None:
    found = advice_for(*quiet(), config=SchedulerConfig(unknown=("extender https://x",)))
    assert [each.subject for each in about(found, Topic.NOT_MODELLED)] == ["extender https://x"]
    assert "extender https://x" in advised_yaml(found)


# ---- what is written


def test_the_advice_loads_as_the_profiles_that_are_advised() -> None:
    nodes, pods = skewed_world(here=12)
    found = advice_for(nodes, [*pods, *crowd(12)[1]], strategies=["HighNodeUtilization"])
    assert [each.profile.name for each in found.profiles] == [DEFAULT, CROWD_PROFILE]
    assert loaded(found).profiles == {each.profile.name: each.profile for each in found.profiles}
    text = advised_yaml(found)
    assert yaml.safe_load(text) == configuration(found)
    for reason in found.profiles[0].reasons:
        assert " ".join(reason.split()) in " ".join(text.replace("\n#", " ").split())


def test_names_of_a_cluster_can_not_end_a_comment() -> None:
    nodes, pods = skewed_world(here=12, schedulerName="a")
    config = SchedulerConfig(unknown=("plugin x\nprofiles: []\n", "plugin \u2028y"))
    found = advice_for(nodes, pods, config=config)
    assert loaded(found).profiles.keys() == {DEFAULT, CROWD_PROFILE}


RICH = SchedulerProfile(
    name="rich",
    weights={"NodeResourcesFit": 4, "ImageLocality": 1},
    filters=frozenset(FILTERS) - {"NodePorts"},
    fit_strategy="RequestedToCapacityRatio",
    fit_resources=(("cpu", 3), ("example.com/gpu", 1)),
    fit_shape=((0, 10), (100, 0)),
    balanced_resources=(("cpu", 1),),
    added_affinity=NodeAffinity(
        required=NodeSelector(
            node_selector_terms=(NodeSelectorTerm(match_expressions=(Requirement(key="disk", operator="Exists"),)),)
        )
    ),
    default_constraints=(
        SpreadConstraint(topology_key="zone"),
        SpreadConstraint(topology_key="zone", when_unsatisfiable="ScheduleAnyway", max_skew=3, min_domains=2),
    ),
    hard_pod_affinity_weight=0,
    ignore_preferred_terms_of_existing_pods=True,
    percentage_of_nodes_to_score=0,
)


def read(*profiles: dict[str, Any]) -> dict[str, SchedulerProfile]:
    """Profiles as a file of kube-scheduler has them."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**load_scheduler_config(yaml.safe_dump({**kind, "profiles": [*profiles]}).encode(), source="x").profiles}


def test_a_profile_is_written_so_that_it_loads_the_same() -> None:
    again = read(*PROFILES, profile_fields(RICH), {"schedulerName": "none", **_off()})
    assert again["rich"] == RICH
    assert again["none"].weights == {}
    for name, each in again.items():
        assert read(profile_fields(each))[name] == each


def _off() -> dict[str, Any]:
    config = [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}]
    return {"plugins": {"score": {"disabled": [{"name": "*"}]}}, "pluginConfig": config}


def test_a_skew_by_its_own_affinity_is_not_blamed_on_images() -> None:
    preferred = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]
                    },
                }
            ]
        }
    }
    found = advice_for(*skewed_world(here=12, affinity=preferred))
    assert about(found, Topic.IMAGE_LOCALITY) == []
    (skew,) = about(found, Topic.PLACEMENT_SKEW)
    assert skew.figures["plugin"] == "NodeAffinity"
    assert "affinity decides" in skew.recommendation


def test_a_scheduler_that_is_not_known_is_not_advised() -> None:
    found = advice_for(*skewed_world(here=12, schedulerName="other"))
    assert about(found, Topic.IMAGE_LOCALITY) == []
    assert profile(found) == SchedulerProfile()
