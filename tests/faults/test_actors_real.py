"""The power of tenants with a real API server: it has accepted every object, and it carries out the evictions."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.actions.evict import KubeEvictor
from rebalancer.kube.client.client import ApiClient, connect
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.policy import RebalancerPolicy
from tests.builders import APod, a_node, a_policy, carry_out, planner_for, usage_of
from tests.constraints.test_trust import POLICY, SHIELDED
from tests.kube.builders import Json
from tests.kube.fakes.api import FakeClock
from tests.real.servers.api_server import ApiServer, api_server

pytestmark = pytest.mark.real

Pods = set[tuple[str, str]]
NEVER = 0
EVERYWHERE: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {}, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
UNBOUND = "claim"
"""The shield whose claim would need a volume."""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        for name in ("rack-1", "other", "new"):
            labels = {"pool": "general", "kubernetes.io/hostname": name}
            running.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            resources = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            status = {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            running.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        yield running


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> Iterator[ApiClient]:
    client = connect(str(server.kubeconfig(tmp_path / "kubeconfig")), None, "rebalancer/test")
    yield client
    client.close()


def namespace(server: ApiServer, name: str) -> None:
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})


def service(
    server: ApiServer, space: str, name: str, nodes: Sequence[str], *, ready: bool = True, **fields: Any
) -> None:
    """A ReplicaSet and its pods on these nodes, as controllers, a scheduler and kubelets would leave them."""
    labels = {"app": name, **fields.pop("labels", {})}
    notes = fields.pop("annotations", {})
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "10m"}}}
    meta: Json = {"labels": labels, "annotations": notes}
    template = {"metadata": meta, "spec": {"containers": [container], **fields}}
    path = f"/apis/apps/v1/namespaces/{space}/replicasets"
    spec = {"replicas": len(nodes), "selector": {"matchLabels": {"app": name}}, "template": template}
    made = server.call("POST", path, {"metadata": {"name": name}, "spec": spec})
    count = len(nodes)
    status = {"observedGeneration": made["metadata"]["generation"], "replicas": count, "readyReplicas": count}
    server.call("PATCH", f"{path}/{name}/status", {"status": status})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, "name": name}
    for at, node in enumerate(nodes):
        owned = {**meta, "name": f"{name}-{at}", "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}]}
        pod(server, space, {"metadata": owned, "spec": {**template["spec"], "nodeName": node}}, ready=ready)


def pod(server: ApiServer, space: str, body: Json, *, ready: bool = True) -> None:
    path = f"/api/v1/namespaces/{space}/pods"
    server.call("POST", path, body)
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [condition]}
    server.call("PATCH", f"{path}/{body['metadata']['name']}/status", {"status": status})


def budget(server: ApiServer, space: str, app: str) -> None:
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    spec = {"maxUnavailable": NEVER, "selector": {"matchLabels": {"app": app}}}
    made = server.call("POST", path, {"metadata": {"name": app}, "spec": spec})
    status = {"observedGeneration": made["metadata"]["generation"], "disruptionsAllowed": NEVER}
    status |= {"currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3}
    server.call("PATCH", f"{path}/{app}/status", {"status": status})


def evicted(client: ApiClient, policy: RebalancerPolicy) -> dict[tuple[str, str], Outcome]:
    """What one plan evicts, and how the server answered."""
    made = KubeCluster(client=client, clock=FakeClock()).snapshot()
    nodes = [a_node(name) for name in made.nodes.names]
    pods = [APod(name=name, used=10.0) for name in made.pods.names]
    planned = carry_out(planner_for(made, usage_of(made, nodes, pods), policy), made)
    evictor = KubeEvictor(client=client)
    return {(move.namespace, move.pod): evictor.evict(move).outcome for move in planned.accepted}


def terminating(server: ApiServer) -> Pods:
    pods = [each["metadata"] for each in server.call("GET", "/api/v1/pods")["items"]]
    return {(each["namespace"], each["name"]) for each in pods if "deletionTimestamp" in each}


def test_a_bare_pod_with_anti_affinity_over_all_namespaces_evicts_none_of_others(
    server: ApiServer, client: ApiClient
) -> None:
    namespace(server, "evil")
    for at in range(6):
        namespace(server, f"team-{at}")
        service(server, f"team-{at}", "web", ["rack-1", "other"])
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "10m"}}}
    for node in ("rack-1", "other"):
        spec = {"nodeName": node, "containers": [container], "affinity": EVERYWHERE}
        pod(server, "evil", {"metadata": {"name": f"bare-{node}", "labels": {"app": "bare"}}, "spec": spec})
    policy = a_policy(strategies=[{"name": "RemovePodsViolatingInterPodAntiAffinity"}], guards={"minReplicas": 1})
    assert evicted(client, policy) == {}
    assert terminating(server) == set()
    # with a controller it goes itself, where a node without others' pods takes it
    service(server, "evil", "holder", ["rack-1"], affinity=EVERYWHERE)
    assert evicted(client, policy) == {("evil", "holder-0"): Outcome.EVICTED}
    assert terminating(server) == {("evil", "holder-0")}


def as_spec(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the builders' pods as those of the API."""
    template = dict(fields.get("template", {}))
    out: dict[str, Any] = {"labels": fields.get("labels", {}), "annotations": template.get("annotations", {})}
    out["volumes"] = [{"name": f"v{at}", **each} for at, each in enumerate(template.get("volumes", ()))]
    if "priorityClass" in template or "priority" in fields:
        out["priorityClassName"] = template.get("priorityClass", "high")
    return {**out, "ready": fields.get("ready", True)}


def test_a_tenant_s_shields_keep_no_rack_from_being_drained_where_the_policy_says_so(
    server: ApiServer, client: ApiClient
) -> None:
    namespace(server, "team-a")
    high = {"metadata": {"name": "high"}, "value": POLICY["guards"]["priorityBelow"]}
    server.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", high)
    shields = {name: fields for name, (_, _, fields) in SHIELDED.items() if name != UNBOUND}
    for name, fields in shields.items():
        service(server, "team-a", name.lower().replace(" ", "-"), ["rack-1", "other", "other"], **as_spec(fields))
    service(server, "team-a", "budgeted", ["rack-1", "other", "other"], annotations={"rebalancer.dev/evict": "never"})
    budget(server, "team-a", "budgeted")
    server.call("PATCH", "/api/v1/nodes/rack-1", {"spec": {"unschedulable": True}})
    assert evicted(client, a_policy(**POLICY)) == {}
    trusted = {("team-a", f"{name}-0") for name in ("annotation", "label", "unknown-value")}
    some = evicted(client, a_policy(**POLICY, trust=[{"shields": ["OptOut"]}]))
    assert set(some.values()) == {Outcome.EVICTED}
    assert some.keys().isdisjoint(trusted)
    rest = evicted(client, a_policy(**POLICY, trust=[{"namespaces": ["team-a"], "maintenanceShields": []}]))
    assert rest == dict.fromkeys(trusted, Outcome.EVICTED)
    # the budget holds, whatever is trusted
    assert terminating(server) == {("team-a", f"{name.lower().replace(' ', '-')}-0") for name in shields}
