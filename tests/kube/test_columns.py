"""What the columns and templates carry for the model of the scheduler."""

from typing import Any

import msgspec
import numpy as np
import pytest

from rebalancer.kube.snapshot.records import Pod
from rebalancer.kube.watch.rows import PodRows
from rebalancer.model.cluster.nodes import NodeImages
from rebalancer.model.cluster.objects import Affinity, PodTemplate, SpreadConstraint
from tests.kube.builders import Cluster, Json, a_node, a_pod, owned_by, read


def image(size: int, *names: str) -> Json:
    return {"names": list(names), "sizeBytes": size}


def images_of(*nodes: list[Json] | None) -> NodeImages:
    described = [a_node(f"n{number}") for number in range(len(nodes))]
    for node, images in zip(described, nodes, strict=True):
        if images is not None:
            node["status"]["images"] = images
    return read(Cluster(nodes=described)).nodes.images


def template_of(**spec: Any) -> PodTemplate:
    return read(Cluster(pods=[a_pod("a", spec=spec)])).pod_templates[0]


def test_every_name_of_an_image_is_known_over_all_pages() -> None:
    images = images_of(
        [image(10, "app:1", "app@sha256:aa"), image(5, "db:2")],
        None,
        [image(10, "app@sha256:aa")],
        [image(7, "web:3"), image(10, "app:1")],
    )
    assert images.nodes_with("app:1").tolist() == [0, 3]
    assert images.nodes_with("app@sha256:aa").tolist() == [0, 2]
    assert images.nodes_with("web:3").tolist() == [3]
    assert images.nodes_with("none").tolist() == []
    assert (images.size_of("db:2"), images.size_of("web:3"), images.size_of("none")) == (5.0, 7.0, None)
    assert images.nodes_with("app:1").dtype == np.int32


def test_the_first_node_says_how_large_an_image_is() -> None:
    images = images_of([image(300, "other:1")], [image(100, "app:1")], [image(200, "app:1")])
    assert images.size_of("app:1") == 100.0


def test_a_name_that_a_node_repeats_is_there_once() -> None:
    images = images_of([image(1, "app:1", "app:1"), image(2, "app:1")], [image(1, "app:1")])
    assert images.nodes_with("app:1").tolist() == [0, 1]
    assert images.size_of("app:1") == 1.0


def test_an_image_without_names_is_left_out() -> None:
    images = images_of([{"names": None, "sizeBytes": 9}, {"sizeBytes": 9}, image(4, "app:1")])
    assert images.size_of("app:1") == 4.0


def test_a_taint_says_since_when() -> None:
    taints = [{"key": "k", "value": "v", "effect": "PreferNoSchedule", "timeAdded": "2026-11-21T03:00:00Z"}]
    taint = read(Cluster(nodes=[a_node("n1", taints=taints)])).nodes.taints[0][0]
    assert (taint.key, taint.value, taint.effect) == ("k", "v", "PreferNoSchedule")
    assert taint.time_added == "2026-11-21T03:00:00Z"


def test_waiting_pods_show_their_gates_and_nominations() -> None:
    gates = {"schedulingGates": [{"name": "example.com/quota"}]}
    snapshot = read(
        Cluster(
            pods=[
                a_pod("bound", node="n1"),
                a_pod("gated", node="", spec={"nodeName": ""} | gates),
                a_pod("free", node="", spec={"schedulingGates": []}),
                a_pod("nominated", node="", status={"nominatedNodeName": "n2"}),
                a_pod("to a node that is gone", node="", status={"nominatedNodeName": "n9"}),
                a_pod("arrived", node="n1", status={"nominatedNodeName": "n2"}),
                a_pod("on a node that is gone", node="n9", status={"nominatedNodeName": "n2"}),
            ]
        )
    )
    assert snapshot.pods.gated.tolist() == [False, True, False, False, False, False, True]
    assert snapshot.pods.nominated.tolist() == [-1, -1, -1, 1, -1, -1, -1]
    assert snapshot.pods.gated.dtype == np.bool_
    assert snapshot.pods.nominated.dtype == np.int32


def test_a_pod_bound_to_a_node_that_is_not_listed_waits_for_none() -> None:
    """Seen with nodes that are gone, and with pods that name a node that never was."""
    pods = [a_pod(name, node=node, status={"phase": "Pending"}) for name, node in (("there", "n1"), ("nowhere", "n9"))]
    rows = PodRows()
    rows.add(msgspec.convert(pods, list[Pod]))
    watched = rows.taken().columns(nodes={"n1": 0, "n2": 1}, namespaces={"shop": 0}, owners={})
    for seen in (read(Cluster(pods=pods)).pods, watched):
        gated = dict(zip(seen.names, seen.gated.tolist(), strict=True))
        assert gated == {"there": False, "nowhere": True}


@pytest.mark.parametrize(
    ("message", "gated"),
    [
        ("0/5 nodes are available: 5 Insufficient cpu.", False),
        ("0/5 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", True),
        ('0/5 nodes are available: persistentvolumeclaim "data" not found.', True),
    ],
)
def test_a_pod_that_its_scheduler_could_not_place_says_so(message: str, gated: bool) -> None:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    fine = {"type": "PodScheduled", "status": "True"}
    pods = [
        a_pod("stuck", node="", status={"phase": "Pending", "conditions": [refused]}),
        a_pod("new", node="", status={"phase": "Pending", "conditions": None}),
        a_pod("bound", status={"conditions": [fine]}),
        a_pod("odd", status={"conditions": [refused]}),
    ]
    rows = PodRows()
    rows.add(msgspec.convert(pods, list[Pod]))
    watched = rows.taken().columns(nodes={"n1": 0, "n2": 1}, namespaces={"shop": 0}, owners={})
    for seen in (read(Cluster(pods=pods)).pods, watched):
        at = [seen.names.index(name) for name in ("stuck", "new", "bound", "odd")]
        assert seen.unschedulable[at].tolist() == [True, False, False, False]
        assert seen.gated[at].tolist() == [gated, False, False, False]


def test_a_spread_constraint_is_read_whole() -> None:
    constraint = {
        "maxSkew": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "hash", "operator": "Exists"}]},
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["pod-template-hash"],
    }
    read_back = template_of(topologySpreadConstraints=[constraint]).topology_spread[0]
    assert read_back.label_selector is not None
    assert read_back.label_selector.match_labels == {"app": "web"}
    assert read_back.label_selector.match_expressions[0].key == "hash"
    assert (read_back.max_skew, read_back.topology_key, read_back.when_unsatisfiable) == (2, "zone", "DoNotSchedule")
    assert (read_back.min_domains, read_back.node_affinity_policy, read_back.node_taints_policy) == (
        3,
        "Ignore",
        "Honor",
    )
    assert read_back.match_label_keys == ("pod-template-hash",)


def test_a_spread_constraint_that_says_little_has_the_api_servers_defaults() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    read_back = template_of(topologySpreadConstraints=[constraint]).topology_spread[0]
    assert read_back == SpreadConstraint(
        max_skew=1,
        topology_key="zone",
        when_unsatisfiable="ScheduleAnyway",
        label_selector=None,
        min_domains=None,
        node_affinity_policy="Honor",
        node_taints_policy="Ignore",
        match_label_keys=(),
    )


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_preferred_pod_affinity_is_read(kind: str) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaces": ["other"],
        "namespaceSelector": {},
        "topologyKey": "zone",
    }
    affinity = {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 70, "podAffinityTerm": term}],
        }
    }
    template = template_of(affinity=affinity)
    assert isinstance(template.affinity, Affinity)
    rules = template.affinity.pod_affinity if kind == "podAffinity" else template.affinity.pod_anti_affinity
    assert rules is not None
    assert rules.required[0].topology_key == "host"
    assert rules.preferred[0].weight == 70
    preferred = rules.preferred[0].pod_affinity_term
    assert (preferred.topology_key, preferred.namespaces) == ("zone", ("other",))
    assert preferred.label_selector is not None
    assert preferred.namespace_selector is not None


def test_preferred_node_affinity_is_read() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    wanted = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]}
    affinity = template_of(affinity={"nodeAffinity": wanted}).affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.preferred[0].weight == 5
    assert affinity.node_affinity.preferred[0].preference.match_expressions[0].values == ("ssd",)


def test_images_come_in_the_order_of_containers_then_init_containers() -> None:
    template = template_of(
        containers=[{"image": "b:1"}, {"image": "a"}, {"image": "b:1"}],
        initContainers=[{"image": "init:1"}, {"image": "side@sha256:aa", "restartPolicy": "Always"}],
        volumes=[
            {"name": "v", "image": {"reference": "model:7", "pullPolicy": "IfNotPresent"}},
            {"name": "w", "configMap": {"name": "x"}},
        ],
    )
    assert template.images == ("b:1", "a", "b:1", "init:1", "side@sha256:aa")
    assert template.volume_images == ("model:7",)
    assert template.volumes == ()


@pytest.mark.parametrize(("spec", "seconds"), [({}, 30.0), ({"terminationGracePeriodSeconds": 0}, 0.0)])
def test_the_grace_period_is_read_or_thirty_seconds(spec: Json, seconds: float) -> None:
    assert template_of(**spec).grace_seconds == seconds


@pytest.mark.parametrize(
    "other",
    [
        {"terminationGracePeriodSeconds": 60},
        {"volumes": [{"name": "v", "image": {"reference": "model:8"}}]},
        {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "minDomains": 2}]},
        {"initContainers": [{"image": "init:1"}]},
    ],
)
def test_pods_that_differ_in_what_the_scheduler_reads_have_different_shapes(other: Json) -> None:
    base = {
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "v", "image": {"reference": "model:7"}}],
        "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1}],
    }
    pods = [a_pod("a", spec=base), a_pod("b", spec=base), a_pod("c", spec=base | other)]
    assert read(Cluster(pods=pods)).pods.template.tolist() == [0, 0, 1]


def test_a_daemonset_keeps_its_pod_affinity() -> None:
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod = a_pod("d", spec={"affinity": affinity}, metadata=owned_by("DaemonSet", "d"))
    kept = read(Cluster(pods=[pod])).pod_templates[0].affinity
    assert kept is not None
    assert kept.pod_affinity is not None


def test_features_that_nodes_declare_and_pods_need_are_read() -> None:
    node = a_node("n1")
    node["status"]["declaredFeatures"] = ["A", "B"]
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]
    needs = {"containers": [{"name": "main", "image": "app:1", "restartPolicyRules": rules}]}
    apart = {"hostNetwork": True, "hostUsers": False}
    pods = [a_pod("a", spec=needs), a_pod("b", spec=apart), a_pod("c", spec={"hostUsers": False}), a_pod("d")]
    snapshot = read(Cluster(nodes=[node, a_node("n2")], pods=pods))
    assert snapshot.nodes.declared_features == (("A", "B"), ())
    assert [snapshot.pod(at).template.required_features for at in range(4)] == [
        ("RestartAllContainersOnContainerExits",), ("UserNamespacesHostNetworkSupport",), (), (),
    ]  # fmt: skip
