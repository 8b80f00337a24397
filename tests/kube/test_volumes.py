from typing import Any

import pytest

from rebalancer.model.cluster.match import node_selector_matches
from tests.kube.builders import Cluster, Json, a_pod, meta, read

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
WITH_CLAIM = a_pod("a", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "local"}}]})


def volume(name: str, claim: str, *, labels: Json | None = None, phase: str = "Bound", **spec: Any) -> Json:
    reference = {"claimRef": {"namespace": "shop", "name": claim}}
    return {"metadata": meta(name, labels=labels or {}), "spec": spec | reference, "status": {"phase": phase}}


def requires(*terms: Json) -> Json:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def pinned(key: str, *values: str) -> Json:
    return requires({"matchExpressions": [{"key": key, "operator": "In", "values": list(values or ("x",))}]})


def with_claims() -> Cluster:
    return Cluster(
        pods=[WITH_CLAIM],
        persistentvolumes=[
            volume("p1", "local", local={"path": "/x"}),
            volume("p2", "path", hostPath={"path": "/x"}),
            volume("p3", "pinned", csi={}, nodeAffinity=pinned("kubernetes.io/hostname")),
            volume("p4", "zonal", csi={}, nodeAffinity=pinned(ZONE)),
            {"metadata": meta("p5"), "spec": {"local": {"path": "/x"}}},
        ],
    )


def allowed(pv: Json, labels: Json, node: str = "n1") -> bool:
    selector = read(Cluster(pods=[WITH_CLAIM], persistentvolumes=[pv])).volume_nodes["shop", "data"]
    return node_selector_matches(selector, labels, node)


def test_claims_on_local_volumes_are_known() -> None:
    snapshot = read(with_claims())
    assert snapshot.local_claims == {("shop", "local"), ("shop", "path"), ("shop", "pinned")}
    assert snapshot.claims_known


def test_claims_are_not_known_when_volumes_may_not_be_listed() -> None:
    cluster = with_claims()
    cluster.refused["persistentvolumes"] = 403
    snapshot = read(cluster)
    assert not snapshot.claims_known
    assert not snapshot.local_claims
    assert not snapshot.volume_nodes


def test_volumes_are_not_listed_for_a_cluster_without_claims() -> None:
    cluster = Cluster(pods=[a_pod("a")])
    cluster.refused["persistentvolumes"] = 500
    assert read(cluster).claims_known


def test_a_volume_binds_its_claim_to_the_nodes_of_its_affinity() -> None:
    snapshot = read(with_claims())
    assert set(snapshot.volume_nodes) == {("shop", "pinned"), ("shop", "zonal")}
    assert node_selector_matches(snapshot.volume_nodes["shop", "zonal"], {ZONE: "x"}, "n1")
    assert not node_selector_matches(snapshot.volume_nodes["shop", "zonal"], {ZONE: "y"}, "n1")


def test_equal_volumes_share_one_selector() -> None:
    volumes = [volume(f"p{i}", f"c{i}", nodeAffinity=pinned(ZONE, "a"), labels={ZONE: "a"}) for i in range(4)]
    selectors = read(Cluster(pods=[WITH_CLAIM], persistentvolumes=volumes)).volume_nodes
    assert len(selectors) == 4
    assert len({id(each) for each in selectors.values()}) == 1


def test_a_claim_for_one_pod_only_is_exclusive() -> None:
    volumes = [
        volume("p1", "one", accessModes=["ReadWriteOncePod"]),
        volume("p2", "many", accessModes=["ReadWriteOnce", "ReadWriteMany"]),
        volume("p3", "none"),
    ]
    assert read(Cluster(pods=[WITH_CLAIM], persistentvolumes=volumes)).exclusive_claims == {("shop", "one")}


@pytest.mark.parametrize("phase", ["Released", "Failed"])
def test_a_volume_that_was_let_go_says_nothing_of_a_new_claim_of_that_name(phase: str) -> None:
    new = volume("new", "data", nodeAffinity=pinned(ZONE, "a"))
    old = volume("old", "data", phase=phase, local={}, accessModes=["ReadWriteOncePod"], nodeAffinity=pinned(ZONE, "b"))
    snapshot = read(Cluster(pods=[WITH_CLAIM], persistentvolumes=[new, old]))
    assert not snapshot.local_claims
    assert not snapshot.exclusive_claims
    assert node_selector_matches(snapshot.volume_nodes["shop", "data"], {ZONE: "a"}, "n1")


@pytest.mark.parametrize(
    ("on_volume", "on_node", "fits"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a__b"}, {ZONE: "a__b"}, False),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, True),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, False),
        # A node of a single-zone cluster without any of the labels takes everything; one with a region only doesn't.
        ({ZONE: "a"}, {"pool": "p"}, True),
        ({ZONE: "a"}, {REGION: "r"}, False),
        ({ZONE: "a"}, {BETA_ZONE: "a"}, False),
        # The beta label is held against the newer one only where the node has no beta label.
        ({BETA_ZONE: "a"}, {ZONE: "a"}, True),
        ({BETA_ZONE: "a"}, {ZONE: "b"}, False),
        ({BETA_ZONE: "a"}, {BETA_ZONE: "a", ZONE: "b"}, True),
        ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False),
        ({BETA_ZONE: "a", BETA_REGION: "r"}, {ZONE: "a", BETA_REGION: "r"}, True),
        ({BETA_ZONE: "a", BETA_REGION: "r"}, {ZONE: "a", BETA_REGION: "s"}, False),
    ],
)
def test_zone_labels_bind_as_the_volume_zone_plugin_does(on_volume: Json, on_node: Json, fits: bool) -> None:
    assert allowed(volume("p", "data", labels=on_volume), on_node) is fits


def test_a_zone_label_with_an_empty_part_is_ignored() -> None:
    pv = volume("p", "data", labels={ZONE: "a__", REGION: "r"})
    assert allowed(pv, {ZONE: "elsewhere", REGION: "r"})
    assert not allowed(pv, {ZONE: "elsewhere", REGION: "s"})


def test_zone_labels_are_anded_into_every_term_of_the_affinity() -> None:
    terms = requires(
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]},
    )
    pv = volume("p", "data", labels={ZONE: "a"}, nodeAffinity=terms)
    assert allowed(pv, {"disk": "ssd", ZONE: "a"})
    assert not allowed(pv, {"disk": "ssd", ZONE: "b"})
    assert not allowed(pv, {ZONE: "a"})
    assert allowed(pv, {ZONE: "a"}, "n9")
    assert not allowed(pv, {ZONE: "b"}, "n9")


def test_a_term_that_selects_no_node_selects_none_with_a_zone_label_either() -> None:
    assert not allowed(volume("p", "data", labels={ZONE: "a"}, nodeAffinity=requires({})), {ZONE: "a"})


# ---- CSI volume limits, ReadWriteOnce, binding


def a_csi_node(name: str, **counts: int | None) -> Json:
    drivers = [
        {"name": driver, "nodeID": name, "topologyKeys": []}
        | ({} if count is None else {"allocatable": {"count": count}})
        for driver, count in counts.items()
    ]
    return {"metadata": meta(name), "spec": {"drivers": drivers}}


def test_volume_limits_of_nodes_are_read_by_driver() -> None:
    csi_nodes = [a_csi_node("n1", disk=25, files=None), a_csi_node("unknown", disk=3)]
    limits = read(Cluster(pods=[WITH_CLAIM], csinodes=csi_nodes)).volume_limits
    assert limits is not None
    assert {driver: column.tolist() for driver, column in limits.items()} == {"disk": [25.0, float("inf")]}


def test_limits_are_unknown_when_csi_nodes_may_not_be_listed() -> None:
    cluster = Cluster(pods=[WITH_CLAIM])
    cluster.refused["csinodes"] = 403
    assert read(cluster).volume_limits is None
    cluster.lists["pods"] = [a_pod("a")]
    assert read(cluster).volume_limits == {}


def test_what_a_claim_is_bound_to_is_read_from_its_volume() -> None:
    volumes = [
        volume("p1", "disk", csi={"driver": "disk.example"}, accessModes=["ReadWriteOnce"]),
        volume("p2", "files", csi={"driver": "files.example"}, accessModes=["ReadWriteMany", "ReadWriteOnce"]),
        volume("p3", "old", phase="Released"),
        {"metadata": meta("p4"), "spec": {}},
    ]
    snapshot = read(Cluster(pods=[WITH_CLAIM], persistentvolumes=volumes))
    assert snapshot.bound_claims == {("shop", "disk"), ("shop", "files")}
    assert snapshot.one_node_claims == {("shop", "disk")}
    assert snapshot.claim_drivers == {("shop", "disk"): "disk.example", ("shop", "files"): "files.example"}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, ""),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}, "DRA"),
        ({"schedulingGroup": {"podGroupName": "training-0"}}, "PodGroup"),
        ({"workloadRef": {"name": "training", "podGroup": "workers"}}, "PodGroup"),
    ],
)
def test_what_the_model_of_the_scheduler_leaves_out_of_a_pod_is_named(spec: dict[str, Any], named: str) -> None:
    """The last is the form of Kubernetes 1.35."""
    snapshot = read(Cluster(pods=[a_pod("a", spec=spec), a_pod("b")]))
    first, second = (snapshot.pod(index).template.not_modelled for index in range(2))
    assert (named in first, bool(first), second) == (True, bool(named), "")


def test_drivers_that_keep_pods_off_nodes_without_them_are_read() -> None:
    required = {"metadata": meta("disk.example"), "spec": {"preventPodSchedulingIfMissing": True}}
    optional = {"metadata": meta("files.example"), "spec": {"attachRequired": False}}
    nodes = [{"metadata": meta("n2"), "spec": {"drivers": [{"name": "disk.example"}, {"name": "files.example"}]}}]
    cluster = Cluster(pods=[WITH_CLAIM], csinodes=nodes, csidrivers=[required, optional])
    found = read(cluster).drivers_at
    assert found is not None
    assert {name: there.tolist() for name, there in found.items()} == {"disk.example": [False, True]}
    cluster.refused["csidrivers"] = 403
    assert read(cluster).drivers_at is None
