"""Decisions of a real kube-scheduler, written down one after the other, and the snapshots from before each of them.

A recording is JSON: the API server's nodes, namespaces, ReplicaSets and volumes, the pods as they were created, and
the steps in order. A step is either a decision on one pod or a change of one that was bound before.
"""

import gzip
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from tests.kube.builders import Cluster
from tests.kube.fakes.api import FakeClock, serving
from tests.real.builders.random_cluster import CSI_DRIVER, NAMESPACES, RUNTIME_CLASS, RandomCluster
from tests.real.servers.api_server import ApiServer, api_server
from tests.real.servers.scheduler import Scheduler, assets_with_scheduler, kube_scheduler, scheduler_version

Json = dict[str, Any]

DECISIONS = Path(__file__).parents[2] / "placement" / "decisions"
"""Where recordings for tests without programs are."""
TERMINATING, FINISHED, RESIZED = "terminating", "finished", "resized"
CHANGED_SHARE = 0.12


class Step(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What happened to pod number `pod` of the recording's `pods`.

    With `change` it is not a decision: TERMINATING, FINISHED or RESIZED, then with the pod as it `became`. Otherwise it
    was bound to `node`, or nothing fitted and it was deleted afterwards. Scores are normalised and weighted, as the
    scheduler adds them up.
    """

    pod: int
    change: str = ""
    became: Json | None = None
    node: str | None = None
    labels: dict[str, str] | None = None
    """Its labels once bound: the API server copies the node's zone and region into them."""
    message: str = ""
    evaluated: int = 0
    feasible: int = 0
    scores: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}

    @property
    def feasible_nodes(self) -> set[str]:
        """Those that were scored, or the only one. Of a sample, its feasible nodes."""
        return set(self.totals) or ({self.node} if self.node is not None else set())

    @property
    def ties(self) -> set[str]:
        """The best nodes; one of them was chosen at random."""
        best = max(self.totals.values(), default=0)
        return {name for name, total in self.totals.items() if total == best} or self.feasible_nodes


class Recording(msgspec.Struct, kw_only=True):
    """See the module."""

    kubernetes: str
    seed: int
    profiles: list[Json] = []
    """Of its KubeSchedulerConfiguration; empty = its defaults."""
    nodes: list[Json]
    namespaces: list[Json]
    replica_sets: list[Json]
    volumes: list[Json]
    claims: list[Json]
    services: list[Json] = []
    csi_drivers: list[Json] = []
    csi_nodes: list[Json] = []
    pods: list[Json]
    steps: list[Step]

    def write(self, path: Path) -> None:
        # no time and no name in the header: the same recording is the same file
        path.write_bytes(gzip.compress(msgspec.json.encode(self), mtime=0))

    @classmethod
    def read(cls, path: Path) -> "Recording":
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=cls)


def record(*, seed: int, nodes: int, pods: int, profiles: list[Json]) -> Recording:
    """Start the real programs, create `pods` pods one after the other and write down what becomes of each."""
    names = tuple(profile["schedulerName"] for profile in profiles) or ("default-scheduler",)
    cluster = RandomCluster(seed, nodes=nodes, schedulers=names)
    kubernetes = scheduler_version(assets_with_scheduler())
    with api_server() as server:
        # first, so that the scheduler knows it all from its beginning
        _prepare(server, cluster)
        with kube_scheduler(server, config={"profiles": profiles} if profiles else {}) as scheduler:
            recording = Recording(
                kubernetes=kubernetes, seed=seed, profiles=profiles, pods=[], steps=[], **_listed(server)
            )
            _run(server, scheduler, cluster, recording, pods)
    return recording


def _listed(server: ApiServer) -> dict[str, list[Json]]:
    return {
        name: [_without_history(each) for each in server.call("GET", path)["items"]] for name, path in _LISTS.items()
    }


def _run(server: ApiServer, scheduler: Scheduler, cluster: RandomCluster, recording: Recording, pods: int) -> None:
    chooser = random.Random(recording.seed)
    uids = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["metadata"]["uid"]
        for each in recording.replica_sets
    }
    bound: list[int] = []
    for number in range(pods):
        made = cluster.pod(uids)
        space, name = made["metadata"]["namespace"], made["metadata"]["name"]
        path = f"/api/v1/namespaces/{space}/pods"
        recording.pods.append(_without_history(server.call("POST", path, made)))
        if made["spec"].get("schedulingGates"):
            continue
        decision = scheduler.decision(f"{space}/{name}")
        step = Step(pod=number, **{key: value for key, value in asdict(decision).items() if key != "pod"})
        recording.steps.append(step)
        if decision.node is None:
            server.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
        else:
            step.labels = server.call("GET", f"{path}/{name}")["metadata"].get("labels", {})
            bound.append(number)
        if bound and chooser.random() < CHANGED_SHARE:
            changed = bound[chooser.randrange(len(bound))]
            step = _change(server, scheduler, recording.pods[changed], changed, chooser)
            recording.steps.append(step)
            if step.change != RESIZED:
                bound.remove(changed)


_LISTS = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "replica_sets": "/apis/apps/v1/replicasets",
    "volumes": "/api/v1/persistentvolumes",
    "claims": "/api/v1/persistentvolumeclaims",
    "services": "/api/v1/services",
    "csi_drivers": "/apis/storage.k8s.io/v1/csidrivers",
    "csi_nodes": "/apis/storage.k8s.io/v1/csinodes",
}


_BOUND = {"status": {"phase": "Bound"}}


def _prepare(server: ApiServer, cluster: RandomCluster) -> None:
    """Create everything but the pods."""
    for name, labels in NAMESPACES.items():
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    server.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
    for node in cluster.nodes:
        server.call("POST", "/api/v1/nodes", node)
    for replica_set in cluster.replica_sets():
        space = replica_set["metadata"]["namespace"]
        server.call("POST", f"/apis/apps/v1/namespaces/{space}/replicasets", replica_set)
    for service in cluster.kube_services():
        server.call("POST", f"/api/v1/namespaces/{service['metadata']['namespace']}/services", service)
    server.call("POST", "/apis/storage.k8s.io/v1/csidrivers", CSI_DRIVER)
    for csi_node in cluster.csi_nodes():
        server.call("POST", "/apis/storage.k8s.io/v1/csinodes", csi_node)
    for volume in cluster.volumes:
        server.call("POST", "/api/v1/persistentvolumes", volume)
        server.call("PATCH", f"/api/v1/persistentvolumes/{volume['metadata']['name']}/status", _BOUND)
    for claim in cluster.claims():
        path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/persistentvolumeclaims"
        server.call("POST", path, claim)
        server.call("PATCH", f"{path}/{claim['metadata']['name']}/status", _BOUND)


def _change(server: ApiServer, scheduler: Scheduler, pod: Json, number: int, chooser: random.Random) -> Step:
    """Let a bound pod finish or terminate (without a kubelet it does so for ever)."""
    space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{space}/pods/{name}"
    scheduler.forget_events()
    if chooser.random() < 0.6 and (resizable := _resizable(pod)):
        return _resize(server, scheduler, pod, number, resizable, chooser)
    if chooser.random() < 0.5:
        server.call("DELETE", path)
        scheduler.wait_for_event("Update", f"{space}/{name}")
        return Step(pod=number, change=TERMINATING)
    server.call("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}})
    # finished pods are filtered out of what the scheduler watches
    scheduler.wait_for_event("Delete", f"{space}/{name}")
    return Step(pod=number, change=FINISHED)


def _resizable(pod: Json) -> list[Json]:
    """Its containers, where one of them requests CPU and the pod as a whole requests nothing."""
    containers: list[Json] = pod["spec"]["containers"]
    found = any("cpu" in each["resources"].get("requests", {}) for each in containers)
    return containers if found and "resources" not in pod["spec"] else []


def _resize(
    server: ApiServer, scheduler: Scheduler, pod: Json, number: int, containers: list[Json], chooser: random.Random
) -> Step:
    """Resize its CPU in place, within what any node has; what the kubelet has made of that so far is anything."""
    space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    path, full = f"/api/v1/namespaces/{space}/pods/{name}", f"{space}/{name}"

    def sizes() -> list[Json]:
        asked = [each["resources"].get("requests", {}) for each in containers]
        return [each | {"cpu": f"{chooser.randrange(1, 600)}m"} if "cpu" in each else each for each in asked]

    patch = [
        each | {"resources": each["resources"] | {"requests": size}}
        for each, size in zip(containers, sizes(), strict=True)
    ]
    server.call("PATCH", f"{path}/resize", {"spec": {"containers": patch}})
    scheduler.wait_for_event("Update", full)
    scheduler.forget_events()
    statuses: list[Json] = []
    for each, actual, allocated in zip(containers, sizes(), sizes(), strict=True):
        about = {"name": each["name"], "image": each["image"], "imageID": "", "ready": True, "restartCount": 0}
        if chooser.random() < 0.8:
            about |= {"resources": {"requests": actual}}
        if chooser.random() < 0.8:
            about |= {"allocatedResources": allocated}
        statuses.append(about)
    reason = chooser.choice(("", "Deferred", "Infeasible"))
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    status = {"phase": "Running", "containerStatuses": statuses, "conditions": conditions}
    became = server.call("PATCH", f"{path}/status", {"status": status})
    scheduler.wait_for_event("Update", full)
    return Step(pod=number, change=RESIZED, became=_without_history(became))


def _without_history(item: Json) -> Json:
    item["metadata"].pop("managedFields", None)
    return item


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The cluster just before a decision, and that decision with the next ones."""

    snapshot: ClusterSnapshot
    decisions: list[tuple[Step, int]]
    """With the index of the pod in the snapshot, where it is pending."""


def replay(recording: Recording, *, longest: int = 1) -> Iterator[Stretch]:
    """A recording in stretches of up to `longest` decisions without other changes between them.

    Each snapshot is read through the Kubernetes API as the program reads it.
    """
    lists = Cluster(
        page_size=100_000,
        version=recording.kubernetes,
        nodes=recording.nodes,
        namespaces=recording.namespaces,
        replicasets=recording.replica_sets,
        persistentvolumes=recording.volumes,
        persistentvolumeclaims=recording.claims,
        services=recording.services,
        csidrivers=recording.csi_drivers,
        csinodes=recording.csi_nodes,
    )
    decided = {step.pod for step in recording.steps}
    known: dict[int, Json] = {}
    with serving(lists) as (_, client):
        reader = KubeCluster(client=client, clock=FakeClock())
        for steps in _stretches(recording.steps, longest):
            if steps[0].change:
                known[steps[0].pod] = steps[0].became or _changed(known[steps[0].pod], steps[0].change)
                continue
            gated = [number for number in range(steps[-1].pod) if number not in decided]
            pending = {number: recording.pods[number] for number in (*gated, *(step.pod for step in steps))}
            now = {**known, **pending}
            lists.lists["pods"] = list(now.values())
            index = {number: place for place, number in enumerate(now)}
            yield Stretch(snapshot=reader.snapshot(), decisions=[(step, index[step.pod]) for step in steps])
            known |= {step.pod: _bound(recording.pods[step.pod], step) for step in steps if step.node is not None}


def _stretches(steps: list[Step], longest: int) -> Iterator[list[Step]]:
    held: list[Step] = []
    for step in steps:
        if held and (step.change or len(held) == longest):
            yield held
            held = []
        if step.change:
            yield [step]
        else:
            held.append(step)
    if held:
        yield held


def _bound(pod: Json, step: Step) -> Json:
    return {
        **pod,
        "metadata": {**pod["metadata"], "labels": step.labels or {}},
        "spec": {**pod["spec"], "nodeName": step.node},
    }


def _changed(pod: Json, change: str) -> Json:
    if change == TERMINATING:
        return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": pod["metadata"]["creationTimestamp"]}}
    return {**pod, "status": {**pod["status"], "phase": "Succeeded"}}
