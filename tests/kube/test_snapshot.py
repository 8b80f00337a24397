import math
from datetime import UTC, datetime
from typing import Any

import pytest

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, PENDING, RUNNING
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConnectError
from tests.kube.builders import Cluster, Json, a_node, a_pod, a_workload, meta, owned_by, read, reading
from tests.kube.fakes.api import Reply

AT_THREE = 1_795_230_000.0
"""2026-11-21T03:00:00Z"""


def test_nodes_become_columns() -> None:
    taints = [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-21T03:00:00Z"}]
    snapshot = read(Cluster(nodes=[a_node("n1"), a_node("n2", ready=False, unschedulable=True, taints=taints)]))
    nodes = snapshot.nodes
    assert nodes.names == ("n1", "n2")
    assert nodes.cpu_capacity_millicores.tolist() == [16000, 16000]
    assert nodes.cpu_allocatable_millicores.tolist() == [15500, 15500]
    assert nodes.memory_allocatable_bytes[0] == 60 * 2**30
    assert nodes.pods_allocatable[0] == 110
    assert nodes.ready.tolist() == [True, False]
    assert nodes.unschedulable.tolist() == [False, True]
    assert nodes.created[0] == AT_THREE
    assert nodes.taints[1][0].key == "k"
    assert nodes.addresses[0] == ("10.0.0.7", "n1")
    assert nodes.extended[0] == {"nvidia.com/gpu": 2.0}


def test_pods_become_columns() -> None:
    snapshot = read(
        Cluster(
            pods=[
                a_pod("a", node="n2"),
                a_pod("b", node="", status={"phase": "Pending", "conditions": None, "startTime": None}),
                a_pod("c", node="gone", metadata={"deletionTimestamp": "2026-11-21T04:00:00Z"}),
                a_pod("d", status={"phase": "Failed"}, spec={"priority": -5}, namespace="new"),
                a_pod("e", status={"conditions": [{"type": "Ready", "status": "False"}]}),
            ]
        )
    )
    pods = snapshot.pods
    assert pods.names == ["a", "b", "c", "d", "e"]
    assert pods.uids[0] == "uid-shop-a"
    assert pods.node.tolist() == [1, -1, -1, 0, 0]
    assert pods.owner.tolist() == [-1] * 5
    assert pods.phase.tolist() == [RUNNING, PENDING, RUNNING, FAILED, RUNNING]
    assert pods.ready.tolist() == [True, False, True, True, False]
    assert pods.terminating.tolist() == [False, False, True, False, False]
    assert pods.created[0] == AT_THREE
    assert pods.started[0] == AT_THREE + 5
    assert math.isnan(pods.started[1])
    assert pods.priority.tolist() == [0, 0, 0, -5, 0]
    assert pods.cpu_request_millicores.tolist() == [250.0] * 5
    # A namespace that was created after its list was read is known by its pods.
    assert snapshot.namespaces == ("shop", "new")
    assert snapshot.namespace_labels == {"shop": {"team": "a"}}


def test_an_empty_cluster_has_empty_columns() -> None:
    snapshot = read(Cluster(nodes=[]))
    assert len(snapshot.nodes) == len(snapshot.pods) == len(snapshot.pod_templates) == 0
    assert snapshot.pods.cpu_request_millicores.shape == (0,)


def test_pods_of_one_template_share_a_shape_whatever_their_token_is_called() -> None:
    def volumes(token: str) -> list[Json]:
        return [{"name": f"kube-api-access-{token}", "projected": {"sources": []}}]

    snapshot = read(
        Cluster(
            pods=[
                a_pod("a", spec={"volumes": volumes("x")}, metadata={"annotations": {"cni/podIP": "1"}}),
                a_pod("b", node="n2", spec={"volumes": volumes("y")}, metadata={"annotations": {"cni/podIP": "2"}}),
                a_pod("c", cpu="300m", spec={"volumes": volumes("z")}),
            ]
        )
    )
    assert snapshot.pods.template.tolist() == [0, 0, 1]


def test_daemonset_pods_share_a_shape_although_each_is_pinned_to_its_node() -> None:
    def pinned(node: str) -> Json:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return {"affinity": {"nodeAffinity": required}}

    pods = [
        a_pod(f"d-{node}", node=node, spec=pinned(node), metadata=owned_by("DaemonSet", "d")) for node in ("n1", "n2")
    ]
    snapshot = read(Cluster(pods=[*pods, a_pod("own", spec=pinned("n1"))]))
    assert snapshot.pods.template.tolist() == [0, 0, 1]
    affinity = snapshot.pod_templates[1].affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.required is not None


def test_a_shape_holds_what_guards_and_placement_read() -> None:
    pod = a_pod(
        "a",
        metadata={
            "labels": {"app": "web", "x": 'quo"te'},
            "annotations": {
                "karpenter.sh/do-not-disrupt": "true",
                "rebalancer.dev/evict": "false",
                "checksum/config": "abc",
            },
        },
        spec={
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}],
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
                {"topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1},
            ],
            "volumes": [
                {"name": "a", "hostPath": {"path": "/x", "type": ""}},
                {"name": "b", "emptyDir": {}},
                {"name": "c", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": {"creationTimestamp": None}}}},
                {"name": "f", "configMap": {"name": "x"}},
            ],
            "containers": [
                {
                    "image": "app:1",
                    "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
                    "ports": [{"hostPort": 80, "containerPort": 80}, {"hostPort": 53, "protocol": "UDP"}],
                }
            ],
            "initContainers": [
                {"image": "init:1", "ports": [{"hostPort": 9}]},
                {"image": "side:1", "restartPolicy": "Always", "ports": [{"hostPort": 81, "protocol": "TCP"}]},
            ],
            "priorityClassName": "high",
            "schedulerName": "other",
        },
    )
    template = read(Cluster(pods=[pod])).pod_templates[0]
    assert template.labels == {"app": "web", "x": 'quo"te'}
    assert template.annotations == {"karpenter.sh/do-not-disrupt": "true", "rebalancer.dev/evict": "false"}
    assert template.node_selector == {"disk": "ssd"}
    assert template.tolerations[0].operator == "Exists"
    assert [(each.topology_key, each.when_unsatisfiable) for each in template.topology_spread] == [
        ("zone", "DoNotSchedule"),
        ("host", "ScheduleAnyway"),
    ]
    assert [volume.host_path is not None for volume in template.volumes] == [True, False, False, False, False]
    assert [volume.empty_dir for volume in template.volumes[1:3]] == [{}, {"medium": "Memory", "sizeLimit": "1Gi"}]
    assert template.volumes[3].persistent_volume_claim == {"claimName": "data", "readOnly": True}
    assert template.volumes[4].ephemeral is not None
    assert template.host_ports == (("TCP", 80, "0.0.0.0"), ("TCP", 81, "0.0.0.0"), ("UDP", 53, "0.0.0.0"))
    assert template.cpu_request_millicores == 1000
    assert template.cpu_scored_millicores == 1000 + 100
    assert template.extended_requests == {"nvidia.com/gpu": 1.0}
    assert template.images == ("app:1", "init:1", "side:1")
    assert (template.priority_class, template.scheduler_name, template.qos) == ("high", "other", "Burstable")


def chain(snapshot: ClusterSnapshot) -> list[str]:
    """Kinds from the first pod's controller up to the top."""
    kinds, at = [], int(snapshot.pods.owner[0])
    while at >= 0:
        kinds.append(snapshot.owners[at].kind)
        at = snapshot.owners[at].parent
    return kinds


def top_of(cluster: Cluster) -> Owner:
    snapshot = read(cluster)
    return snapshot.owners[int(snapshot.top_owner[snapshot.pods.owner[0]])]


def test_owners_go_up_to_the_deployment() -> None:
    of_web = owned_by("Deployment", "web")
    snapshot = read(
        Cluster(
            pods=[a_pod(f"p{i}", metadata=owned_by("ReplicaSet", f"web-{i}")) for i in range(2)],
            replicasets=[a_workload(f"web-{i}", **of_web) for i in range(2)],
            deployments=[a_workload("web")],
        )
    )
    assert chain(snapshot) == ["ReplicaSet", "Deployment"]
    assert str(snapshot.service_of(int(snapshot.pods.owner[1]))) == "shop/web"
    assert snapshot.replicas(int(snapshot.pods.owner[0])) == (2, 2)
    assert [owner.kind for owner in snapshot.owners].count("Deployment") == 1


def test_owners_go_up_to_the_cronjob() -> None:
    cluster = Cluster(
        pods=[a_pod("a", metadata=owned_by("Job", "nightly-1", api="batch/v1"))],
        jobs=[a_workload("nightly-1", **owned_by("CronJob", "nightly", api="batch/v1"))],
    )
    snapshot = read(cluster)
    assert chain(snapshot) == ["Job", "CronJob"]
    assert [owner.desired for owner in snapshot.owners] == [None, None]


def test_unknown_kinds_stay_as_they_are() -> None:
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by("CloneSet", "x", api="apps.kruise.io/v1alpha1"))]))
    assert (top.kind, top.namespace, top.name, top.desired, top.parent) == ("CloneSet", "shop", "x", None, -1)


def test_a_job_of_another_api_is_not_kubernetes_job() -> None:
    cluster = Cluster(
        pods=[a_pod("a", metadata=owned_by("Job", "x", api="batch.volcano.sh/v1alpha1"))], jobs=[a_workload("x")]
    )
    assert top_of(cluster).kind == "Job.batch.volcano.sh"


def test_an_owner_that_is_not_listed_is_made_from_its_reference() -> None:
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by("StatefulSet", "new"))]))
    assert (top.kind, top.name, top.uid, top.desired, top.rolling_out) == (
        "StatefulSet", "new", "uid-shop-new", None, False,
    )  # fmt: skip


def test_a_static_pod_belongs_to_its_node() -> None:
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by("Node", "n1", api="v1"))]))
    assert (top.kind, top.namespace, top.name) == ("Node", "", "n1")


def test_an_owner_that_is_no_controller_does_not_count() -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}
    snapshot = read(Cluster(pods=[a_pod("a", metadata={"ownerReferences": [reference]})]))
    assert snapshot.pods.owner.tolist() == [-1]


def test_replicasets_are_asked_for_metadata_only_unless_one_stands_alone() -> None:
    controlled = Cluster(
        pods=[a_pod("a", metadata=owned_by("ReplicaSet", "web-1"))],
        replicasets=[a_workload("web-1", **owned_by("Deployment", "web")), a_workload("unused")],
        deployments=[a_workload("web")],
    )
    alone = Cluster(
        pods=[a_pod("a", metadata=owned_by("ReplicaSet", "solo"))],
        replicasets=[a_workload("solo", state={"readyReplicas": 1})],
    )
    for cluster, lists in ((controlled, 1), (alone, 2)):
        with reading(cluster) as (api, reader):
            snapshot = reader.snapshot()
            assert api.count("GET", "/replicasets") == lists
            assert api.count("GET", "/daemonsets") == 0
    assert snapshot.replicas(0) == (2, 1)


ROLLING: dict[str, tuple[str, Json, Json, bool]] = {
    "a settled Deployment": ("Deployment", {}, {}, False),
    "a Deployment whose newest spec was not seen": ("Deployment", {}, {"observedGeneration": 1}, True),
    "a Deployment with old pods": ("Deployment", {}, {"updatedReplicas": 1}, True),
    "a Deployment with a surge": ("Deployment", {}, {"replicas": 3}, True),
    "a Deployment scaled to zero": (
        "Deployment", {"replicas": 0}, {"replicas": 0, "updatedReplicas": 0, "readyReplicas": 0}, False,
    ),
    "a settled StatefulSet": ("StatefulSet", {}, {"currentRevision": "a", "updateRevision": "a"}, False),
    "a StatefulSet between revisions": ("StatefulSet", {}, {"currentRevision": "a", "updateRevision": "b"}, True),
    "a StatefulSet that is updated by hand": (
        "StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, {"currentRevision": "a", "updateRevision": "b"}, False,
    ),
    "a StatefulSet that has reached its partition": (
        "StatefulSet",
        {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
        {"currentRevision": "a", "updateRevision": "b", "updatedReplicas": 1},
        False,
    ),
    "a StatefulSet on its way to its partition": (
        "StatefulSet",
        {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
        {"currentRevision": "a", "updateRevision": "b", "updatedReplicas": 0},
        True,
    ),
    "a settled DaemonSet": (
        "DaemonSet", {}, {"desiredNumberScheduled": 4, "updatedNumberScheduled": 4, "numberReady": 3}, False,
    ),
    "a DaemonSet with old pods": ("DaemonSet", {}, {"desiredNumberScheduled": 4, "updatedNumberScheduled": 3}, True),
    "a DaemonSet that is updated by hand": (
        "DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, {"desiredNumberScheduled": 4}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROLLING.values(), ids=ROLLING.keys())
def test_a_rollout_is_seen(case: tuple[str, Json, Json, bool]) -> None:
    kind, spec, state, expected = case
    lists: dict[str, Any] = {f"{kind.lower()}s": [a_workload("x", spec=spec, state=state)]}
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by(kind, "x"))], **lists))
    assert top.rolling_out is expected
    if kind == "DaemonSet":
        assert top.desired == 4


@pytest.mark.parametrize(
    ("kind", "strategy", "revision"),
    [
        ("StatefulSet", {"type": "OnDelete"}, "b"),
        ("StatefulSet", {"type": "RollingUpdate"}, ""),
        ("DaemonSet", {"type": "OnDelete"}, ""),
    ],
)
def test_the_next_revision_is_that_of_a_statefulset_that_is_updated_by_hand(
    kind: str, strategy: Json, revision: str
) -> None:
    listed = a_workload("x", spec={"updateStrategy": strategy}, state={"currentRevision": "a", "updateRevision": "b"})
    lists: dict[str, Any] = {f"{kind.lower()}s": [listed]}
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by(kind, "x"))], **lists))
    assert top.next_revision == revision


@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        ([{"type": "Complete", "status": "True"}], True),
        ([{"type": "Failed", "status": "True"}], True),
        ([{"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "True"}], False),
        ([], False),
    ],
)
def test_a_finished_job_is_known_by_its_conditions(conditions: list[Json], finished: bool) -> None:
    job = a_workload("x", state={"conditions": conditions})
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by("Job", "x", api="batch/v1"))], jobs=[job]))
    assert top.finished is finished


@pytest.mark.parametrize(
    ("rules", "spares"),
    [
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], True),
        ([{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}], False),
        ([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}], False),
        (
            [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ],
            True,
        ),
        ([], False),
    ],
)
def test_a_job_spares_disruptions_when_its_policy_ignores_them(rules: list[Json], spares: bool) -> None:
    job = a_workload("j", spec={"podFailurePolicy": {"rules": rules}})
    top = top_of(Cluster(pods=[a_pod("a", metadata=owned_by("Job", "j", api="batch/v1"))], jobs=[job]))
    assert top.spares_disruptions is spares


def test_budgets_say_whether_their_figures_are_up_to_date() -> None:
    def budget(name: str, **spec: Any) -> Json:
        state = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "observedGeneration": 1}
        return {"metadata": meta(name, "shop", generation=1), "spec": spec, "status": state}

    stale = budget("c", selector={})
    stale["metadata"]["generation"] = 2
    a, b, c = read(
        Cluster(
            poddisruptionbudgets=[
                budget("a", selector={"matchLabels": {"app": "web"}}),
                budget("b", unhealthyPodEvictionPolicy="AlwaysAllow"),
                stale,
            ]
        )
    ).budgets
    assert a.selector is not None
    assert a.selector.match_labels == {"app": "web"}
    assert (a.disruptions_allowed, a.current_healthy, a.desired_healthy, a.up_to_date) == (1, 3, 2, True)
    assert b.selector is None
    assert b.evicts_unhealthy
    assert c.selector is not None
    assert not c.up_to_date


def test_priority_classes_are_read() -> None:
    assert read(Cluster(priorityclasses=[{"metadata": meta("high"), "value": 1000}])).priority_classes == {"high": 1000}


def test_a_forbidden_list_names_what_is_missing() -> None:
    cluster = Cluster()
    cluster.refused["poddisruptionbudgets"] = 403
    with pytest.raises(ConnectError, match=r"list poddisruptionbudgets\.policy"):
        read(cluster)


def test_a_quantity_that_is_none_is_an_obstacle() -> None:
    snapshot = read(Cluster(pods=[a_pod("a", cpu="lots"), a_pod("b")]))
    (obstacle,) = snapshot.obstacles
    assert (obstacle.object, "lots" in obstacle.cause) == ("Pod shop/a", True)
    assert snapshot.pods.unreadable.tolist() == [True, False]


def test_pods_are_read_again_one_by_one() -> None:
    cluster = Cluster(
        pods=[a_pod("a"), a_pod("b", metadata={"deletionTimestamp": "2026-11-21T04:00:00Z"}, status={"conditions": []})]
    )
    with reading(cluster) as (_, reader):
        states = reader.pod_states([("shop", "a"), ("shop", "b"), ("shop", "gone")])
    assert set(states) == {("shop", "a"), ("shop", "b")}
    assert (states["shop", "a"].uid, states["shop", "a"].node) == ("uid-shop-a", "n1")
    assert (states["shop", "a"].terminating, states["shop", "a"].ready) == (False, True)
    assert (states["shop", "b"].terminating, states["shop", "b"].ready) == (True, False)


def test_a_pod_that_is_read_again_has_the_time_since_when_it_is_ready() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T04:00:20Z"}
    cluster = Cluster(pods=[a_pod("a", status={"conditions": [ready]}), a_pod("b", status={"conditions": []})])
    with reading(cluster) as (_, reader):
        states = reader.pod_states([("shop", "a"), ("shop", "b")])
    assert states["shop", "a"].ready_since == datetime(2026, 11, 21, 4, 0, 20, tzinfo=UTC).timestamp()
    assert math.isnan(states["shop", "b"].ready_since)


def test_a_broken_pod_list_leaves_nothing_of_the_first_attempt() -> None:
    cluster = Cluster(page_size=1, pods=[a_pod("a"), a_pod("b")])
    broken = iter([Reply(status=410)])

    def script(asked: Any) -> Reply:
        if asked.path.endswith("/pods") and "continue" in asked.query:
            return next(broken, None) or cluster(asked)
        return cluster(asked)

    with reading(script) as (_, reader):
        snapshot = reader.snapshot()
    assert snapshot.pods.names == ["a", "b"]
    assert len(snapshot.pods.node) == 2
