"""One object that can't be read costs no other object anything, in lists and in watches."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rebalancer.kube.snapshot.quarantine import NAMELESS, read_object
from rebalancer.kube.snapshot.records import Pod
from rebalancer.kube.watch.rows import PodRows
from rebalancer.model.cluster.owners import OWNER_LEVELS
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.kube.builders import Cluster, Json, a_node, a_pod, a_workload, meta, owned_by, read
from tests.kube.fakes.watches import line
from tests.kube.test_cache import a_shop, watching

REFERENCE = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}


def a_clean_cluster() -> dict[str, list[Json]]:
    """Two nodes; a Deployment with its ReplicaSet and two pods; a bare pod."""
    return {
        "nodes": [a_node("n1"), a_node("n2")],
        "namespaces": [{"metadata": meta("shop")}],
        "pods": [
            a_pod("bare"),
            *(a_pod(f"web-{number}", metadata=owned_by("ReplicaSet", "web-1")) for number in range(2)),
        ],
        "replicasets": [a_workload("web-1", **owned_by("Deployment", "web"))],
        "deployments": [a_workload("web")],
        "poddisruptionbudgets": [a_budget("web")],
    }


def a_budget(name: str, namespace: str = "shop", **spec: Any) -> Json:
    return {
        "metadata": meta(name, namespace, generation=1),
        "spec": {"selector": {"matchLabels": {"app": "web"}}} | spec,
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "observedGeneration": 1},
    }


def beside(**odd: list[Json]) -> ClusterSnapshot:
    """The clean cluster with these objects in its lists, in the same pages."""
    return read(with_odd(odd))


def with_odd(odd: dict[str, list[Json]]) -> Cluster:
    clean = a_clean_cluster()
    return Cluster(page_size=100, **{plural: [*odd.get(plural, ()), *clean.get(plural, ())] for plural in clean | odd})


def facts(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """What the snapshot says of the clean objects, with names in place of indices."""
    pods, out = snapshot.pods, {}
    for row, name in enumerate(pods.names):
        pod = snapshot.pod(row)
        if pod.namespace == "shop" and name in ("bare", "web-0", "web-1"):
            requests = float(pods.cpu_request_millicores[row]), float(pods.memory_request_bytes[row])
            top = None if pod.service is None else (pod.service.kind, str(pod.service))
            replicas = None if pod.owner is None else snapshot.replicas(int(pods.owner[row]))
            its = (pod.uid, pod.node_name, pod.owner and pod.owner.name, top, replicas, requests, pod.template)
            out[name] = (*its, pod.ready, pod.phase, pod.started, snapshot.obstacle_of(row))
    for row, name in enumerate(snapshot.nodes.names):
        if name in ("n1", "n2"):
            columns = set(snapshot.nodes.columns) - {"names"}
            out[name] = {column: str(value) for column, value in snapshot.nodes.row(row, columns).items()}
    out["budgets"] = [each for each in snapshot.budgets if each.namespace == "shop"]
    return out


CLEAN = facts(read(Cluster(page_size=100, **a_clean_cluster())))


def test_the_facts_are_all_there() -> None:
    assert {"bare", "web-0", "web-1", "n1", "n2"} < set(CLEAN)
    assert CLEAN["web-0"][3] == ("Deployment", "shop/web")


# ---- single objects


ABSURD = ("1e400", "10e399", "1e308", "-1", "9" * 1000, "nan", "inf", "", "1E", "9007199254740994")


@pytest.mark.parametrize("amount", ABSURD)
@pytest.mark.parametrize("resource", ["cpu", "memory", "example.com/gpu"])
def test_a_pod_with_an_absurd_request_is_an_obstacle(amount: str, resource: str) -> None:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {resource: amount}}}
    snapshot = beside(pods=[a_pod("odd", namespace="tenant", spec={"containers": [container]})])
    assert facts(snapshot) == CLEAN
    (obstacle,) = snapshot.obstacles
    assert (obstacle.kind, obstacle.namespace, obstacle.name) == ("Pod", "tenant", "odd")
    assert obstacle.cause.startswith(f"request of {resource}: ")
    row = snapshot.pods.names.index("odd")
    assert snapshot.obstacle_of(row) == obstacle
    assert snapshot.pods.unreadable[row]
    assert snapshot.pods.node[row] == snapshot.node_index["n1"]
    # no sum depends on it
    assert snapshot.pods.cpu_request_millicores[row] == snapshot.pods.memory_request_bytes[row] == 0.0
    assert snapshot.pod(row).template.cpu_request_millicores == 0.0


@pytest.mark.parametrize(("resource", "amount"), [("cpu", "16"), ("memory", "61Gi")])
def test_a_pod_that_requests_more_than_its_whole_node_is_an_obstacle(resource: str, amount: str) -> None:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {resource: amount}}}
    odd = a_pod("odd", namespace="tenant", spec={"containers": [container]})
    snapshot = beside(pods=[odd, a_pod("over", namespace="tenant", cpu="15500m")])
    assert facts(snapshot) == CLEAN
    (obstacle,) = snapshot.obstacles
    assert obstacle.object == "Pod tenant/odd"
    assert obstacle.cause.startswith(f"request of {resource}: ")
    row = snapshot.pods.names.index("odd")
    assert snapshot.pods.unreadable[row]
    assert snapshot.pods.cpu_request_millicores[row] == snapshot.pods.memory_request_bytes[row] == 0.0
    # over, finished or waiting it takes nothing
    for change in ({"status": {"phase": "Failed"}}, {"spec": {"nodeName": ""}}):
        finished = a_pod("odd", namespace="tenant", spec={"containers": [container]} | change.get("spec", {}))
        finished["status"] |= change.get("status", {})
        assert beside(pods=[finished]).obstacles == ()


@pytest.mark.parametrize("where", ["limits", "overhead", "init", "pod level"])
def test_every_amount_of_a_pod_is_looked_at(where: str) -> None:
    absurd = {"memory": "1e400"}
    container: Json = {"name": "main", "image": "app:1"}
    spec: dict[str, Json] = {
        "limits": {"containers": [container | {"resources": {"limits": absurd}}]},
        "overhead": {"overhead": absurd},
        "init": {"initContainers": [container | {"resources": {"requests": absurd}}]},
        "pod level": {"resources": {"requests": absurd}},
    }
    snapshot = beside(pods=[a_pod("odd", namespace="tenant", spec=spec[where])])
    assert [each.object for each in snapshot.obstacles] == ["Pod tenant/odd"]
    assert facts(snapshot) == CLEAN


def test_a_pod_that_waits_and_cannot_be_read_asks_for_no_room() -> None:
    snapshot = beside(pods=[a_pod("odd", namespace="tenant", node="", cpu="1e400", status={"phase": "Pending"})])
    assert snapshot.pods.gated[snapshot.pods.names.index("odd")]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": {"name": "no list"}}},
        {"spec": {"priority": 2**40}},
        {"spec": {"terminationGracePeriodSeconds": 10**400}},
        {"metadata": {"labels": {"app": 5}}},
        {"metadata": {"creationTimestamp": 7}},
        {"status": {"containerStatuses": [{"restartCount": 2**31}]}},
        {"status": {"conditions": "Ready"}},
    ],
)
def test_a_pod_of_a_wrong_shape_keeps_what_can_be_read(change: dict[str, Json]) -> None:
    odd = a_pod("odd", namespace="tenant", **{key: change.get(key, {}) for key in ("spec", "status", "metadata")})
    snapshot = beside(pods=[odd])
    assert facts(snapshot) == CLEAN
    (obstacle,) = snapshot.obstacles
    assert obstacle.object == "Pod tenant/odd"
    assert "Expected" in obstacle.cause or "out of range" in obstacle.cause
    pod = snapshot.pod(snapshot.pods.names.index("odd"))
    assert (pod.uid, pod.node_name) == ("uid-tenant-odd", "n1")


def test_restarts_of_many_containers_are_counted_to_the_end_of_the_column() -> None:
    many = [{"name": str(number), "restartCount": 2**31 - 1} for number in range(3)]
    snapshot = beside(pods=[a_pod("odd", namespace="tenant", status={"containerStatuses": many})])
    assert snapshot.obstacles == ()
    assert snapshot.pods.restarts.max() == 2**31 - 1


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "tomorrow", ""])
def test_a_time_that_is_none_is_not_known(time: str) -> None:
    odd = a_pod("odd", namespace="tenant", status={"startTime": time})
    snapshot = beside(pods=[odd])
    assert facts(snapshot) == CLEAN
    rows = PodRows()
    rows.add([read_object(msgspec.json.encode(odd), Pod)])
    assert rows.taken().names == ["odd"]


@pytest.mark.parametrize("amount", ABSURD)
@pytest.mark.parametrize("field", ["capacity", "allocatable"])
def test_a_node_with_an_absurd_figure_is_neither_ready_nor_sized(amount: str, field: str) -> None:
    odd = a_node("odd")
    odd["status"][field]["cpu"] = amount
    snapshot = beside(nodes=[odd])
    assert facts(snapshot) == CLEAN
    (obstacle,) = snapshot.obstacles
    assert (obstacle.object, obstacle.cause.startswith(f"{field} of cpu: ")) == ("Node odd", True)
    row = snapshot.node_index["odd"]
    assert snapshot.nodes.unreadable[row] == obstacle.cause
    assert not snapshot.nodes.ready[row]
    assert snapshot.nodes.cpu_allocatable_millicores[row] == 0.0


def test_images_that_cannot_be_read_are_not_there() -> None:
    odd = a_node("odd")
    odd["status"]["images"] = [5, {"names": [1]}, {"names": ["app:1"], "sizeBytes": 7}]
    snapshot = beside(nodes=[odd])
    assert snapshot.obstacles == ()
    assert snapshot.nodes.images.size_of("app:1") == 7


NAMESPACED = {
    "poddisruptionbudgets": ("PodDisruptionBudget", a_budget("odd", selector=[])),
    "resourcequotas": ("ResourceQuota", {"metadata": meta("odd", "shop"), "status": {"hard": {"pods": "many"}}}),
    "horizontalpodautoscalers": (
        "HorizontalPodAutoscaler",
        {"metadata": meta("odd", "shop"), "spec": {"scaleTargetRef": 5}},
    ),
}


@pytest.mark.parametrize("plural", NAMESPACED)
def test_a_rule_that_cannot_be_read_concerns_its_namespace(plural: str) -> None:
    kind, odd = NAMESPACED[plural]
    snapshot = beside(**{plural: [odd]}, pods=[a_pod("other", namespace="other")])
    (obstacle,) = snapshot.obstacles
    assert (obstacle.kind, obstacle.namespace, obstacle.name) == (kind, "shop", "odd")
    concerned = {name: snapshot.obstacle_of(row) for row, name in enumerate(snapshot.pods.names)}
    assert concerned == {"bare": obstacle, "web-0": obstacle, "web-1": obstacle, "other": None}


def test_a_namespace_that_cannot_be_read_concerns_its_pods() -> None:
    odd = {"metadata": meta("tenant", labels={"rebalancer.dev/evict": False})}
    snapshot = beside(namespaces=[odd], pods=[a_pod("a", namespace="tenant")])
    assert [each.object for each in snapshot.obstacles] == ["Namespace tenant"]
    assert snapshot.obstacle_of(snapshot.pods.names.index("a")) is not None
    assert facts(snapshot) == CLEAN


def test_objects_without_names_that_can_be_read_are_each_there() -> None:
    nameless = [{"metadata": meta("odd") | {"name": number}} for number in range(3)]
    snapshot = beside(namespaces=nameless, nodes=[each | {"spec": {}} for each in nameless])
    assert facts(snapshot) == CLEAN
    assert {each.object for each in snapshot.obstacles} == {f"{kind} {NAMELESS}" for kind in ("Namespace", "Node")}


def test_other_small_kinds_that_cannot_be_read_are_named() -> None:
    volume = {
        "metadata": meta("v"),
        "spec": {"claimRef": {"namespace": "tenant", "name": "data"}, "accessModes": "all"},
    }
    claims = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    snapshot = beside(
        priorityclasses=[{"metadata": meta("p"), "value": 2**70}],
        persistentvolumes=[volume],
        csinodes=[{"metadata": meta("n1"), "spec": {"drivers": 5}}],
        pods=[a_pod("a", namespace="tenant", spec=claims)],
    )
    assert [each.object for each in snapshot.obstacles] == ["CSINode n1", "PersistentVolume v", "PriorityClass p"]
    assert ("tenant", "data") in snapshot.local_claims
    assert facts(snapshot) == CLEAN


# ---- owners


def self_owned(name: str) -> Json:
    return a_workload(name, namespace="tenant", **owned_by("ReplicaSet", name, namespace="tenant"))


def pod_of(name: str, owner: str) -> Json:
    return a_pod(name, namespace="tenant", metadata=owned_by("ReplicaSet", owner, namespace="tenant"))


def test_a_replicaset_that_owns_itself_is_an_obstacle() -> None:
    snapshot = beside(replicasets=[self_owned("knot")], pods=[pod_of("p", "knot")])
    assert facts(snapshot) == CLEAN
    (obstacle,) = snapshot.obstacles
    assert str(obstacle) == "ReplicaSet tenant/knot: ownerReferences: it is its own owner"
    assert snapshot.obstacle_of(snapshot.pods.names.index("p")) == obstacle


@pytest.mark.parametrize("length", [2, 3, 3000])
def test_replicasets_that_own_each_other_are_obstacles(length: int) -> None:
    around = [
        a_workload(f"r{at}", namespace="tenant", **owned_by("ReplicaSet", f"r{(at + 1) % length}", namespace="tenant"))
        for at in range(length)
    ]
    below = a_workload("below", namespace="tenant", **owned_by("ReplicaSet", "r0", namespace="tenant"))
    pods = [pod_of("p", "below"), *(pod_of(f"p{at}", f"r{at}") for at in range(2))]
    snapshot = beside(replicasets=[*around, below], pods=pods)
    assert facts(snapshot) == CLEAN
    assert len(snapshot.obstacles) == length
    assert "by way of r1" in next(each.cause for each in snapshot.obstacles if each.name == "r0")
    for name in ("p", "p0", "p1"):
        assert snapshot.obstacle_of(snapshot.pods.names.index(name)) is not None


def test_owners_without_an_end_are_cut() -> None:
    length = 5000
    chain = [
        a_workload(f"r{at}", namespace="tenant", **owned_by("ReplicaSet", f"r{at + 1}", namespace="tenant"))
        for at in range(length)
    ]
    snapshot = beside(replicasets=[*chain, a_workload(f"r{length}", namespace="tenant")], pods=[pod_of("p", "r0")])
    assert facts(snapshot) == CLEAN
    assert f"more than {OWNER_LEVELS} owners" in snapshot.obstacles[0].cause
    above = {each.parent for each in snapshot.owners}
    assert len(above) > 1000


def test_a_chain_that_is_as_deep_as_any_real_one_is_whole() -> None:
    chain = [
        a_workload(f"r{at}", namespace="tenant", **owned_by("ReplicaSet", f"r{at + 1}", namespace="tenant"))
        for at in range(OWNER_LEVELS - 1)
    ]
    top = a_workload(f"r{OWNER_LEVELS - 1}", namespace="tenant")
    snapshot = beside(replicasets=[*chain, top], pods=[pod_of("p", "r0")])
    assert snapshot.obstacles == ()
    assert str(snapshot.pod(snapshot.pods.names.index("p")).service) == f"tenant/r{OWNER_LEVELS - 1}"


def test_a_uid_that_was_copied_from_another_namespace_names_nothing_there() -> None:
    copied = {"metadata": owned_by("Job", "web-1", "uid-shop-web-1", api="batch/v1")}
    more = {"metadata": owned_by("ReplicaSet", "web-1", "uid-shop-web-1")}
    stolen = a_workload("mine", namespace="a-tenant", **owned_by("Deployment", "web", "uid-shop-web"))
    pods = [
        a_pod("a", namespace="a-tenant", **copied),
        a_pod("b", namespace="a-tenant", **more),
        a_pod("c", namespace="a-tenant", metadata=owned_by("ReplicaSet", "mine", namespace="a-tenant")),
    ]
    assert facts(beside(pods=pods, replicasets=[stolen])) == CLEAN


def test_a_workload_that_cannot_be_read_keeps_its_pods() -> None:
    odd = a_workload("odd", namespace="tenant", spec={"replicas": "two"})
    pods = [a_pod("p", namespace="tenant", metadata=owned_by("Deployment", "odd", namespace="tenant"))]
    snapshot = beside(deployments=[odd], pods=pods)
    assert facts(snapshot) == CLEAN
    assert [each.object for each in snapshot.obstacles] == ["Deployment tenant/odd"]
    assert snapshot.obstacle_of(snapshot.pods.names.index("p")) == snapshot.obstacles[0]


# ---- obstacles of a watched cluster begin and end with their objects


ODD: dict[str, tuple[str, Callable[[], Json]]] = {
    "pod": ("pods", lambda: a_pod("odd", namespace="tenant", cpu="1e400")),
    "pod of a wrong shape": ("pods", lambda: a_pod("odd", namespace="tenant", spec={"containers": 5})),
    "node": ("nodes", lambda: a_node("odd") | {"status": {"allocatable": {"cpu": "1e400"}}}),
    "budget": ("poddisruptionbudgets", lambda: a_budget("odd", "tenant", selector=[])),
    "namespace": ("namespaces", lambda: {"metadata": meta("odd", labels={"a": 1})}),
}


@pytest.mark.parametrize("name", ODD)
def test_an_obstacle_comes_with_an_event_and_goes_with_its_object(name: str) -> None:
    plural, make = ODD[name]
    with watching(a_shop()) as watched:
        before = facts(watched.cluster.snapshot())
        assert watched.cluster.obstacles() == ()
        watched.send(plural, line("ADDED", make(), 8))
        assert [each.name for each in watched.cluster.snapshot().obstacles] == ["odd"]
        assert [each.name for each in watched.cluster.obstacles()] == ["odd"]
        assert facts(watched.cluster.snapshot()) == before
        watched.send(plural, line("DELETED", make(), 9))
        assert watched.cluster.snapshot().obstacles == ()
        assert {each.errors for each in watched.cluster.stats().values()} == {0}
