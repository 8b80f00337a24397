"""Odd objects that a real Kubernetes API server accepts, kept as data for tests that have none.

`KUBEBUILDER_ASSETS=... python -m tests.faults.programs.odd_objects` makes objects by a seed, sends them to an API
server 1.36, and writes what it stored to tests/faults/data/odd_objects.jsonl: one object a line, without managedFields.
What it refuses is counted. Nothing runs beside the server, so the objects are as their authors can make them.
"""

import argparse
import json
import sys
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.programs.odd_maker import AMOUNTS, NAMESPACES, NODES, Json, Maker
from tests.real.servers.api_server import ApiServer, api_server

DATA = Path(__file__).parent.parent / "data" / "odd_objects.jsonl"
SEED = 31
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
}


SHARES = {
    "Pod": 190, "Node": 60, "ReplicaSet": 60, "Deployment": 20, "StatefulSet": 20, "DaemonSet": 10, "Job": 20,
    "PodDisruptionBudget": 40, "PersistentVolumeClaim": 15, "PersistentVolume": 25, "ResourceQuota": 20,
    "HorizontalPodAutoscaler": 15, "Namespace": 10, "PriorityClass": 5, "CSINode": 8,
}  # fmt: skip
"""Kind -> how many are tried."""
HAVE_STATUS = ("Pod", "Node", "PodDisruptionBudget", "ResourceQuota", "HorizontalPodAutoscaler", "PersistentVolume")


def status_of(maker: Maker, kind: str) -> Json:
    """A status as a component with the right to write it could send."""
    match kind:
        case "Pod":
            return maker.pod_status()
        case "Node":
            return maker.node_status()
        case "PodDisruptionBudget":
            names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
            return {
                **{name: maker.one((0, 1, 2**31 - 1)) for name in names},
                "observedGeneration": maker.one((0, 1, 2**62)),
            }
        case "ResourceQuota":
            figures = ("pods", "requests.cpu", "limits.memory")
            return {"hard": maker.amounts(*figures), "used": maker.amounts(*figures)}
        case "HorizontalPodAutoscaler":
            current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": maker.one(AMOUNTS)}}}
            return {"currentReplicas": maker.one((0, 2**31 - 1)), "desiredReplicas": 5, "currentMetrics": [current]}
    return {"phase": maker.one(("Available", "Bound", "Released", "Failed", "Odd"))}


def objects(server: ApiServer, seed: int) -> Iterator[tuple[str, Json | None, str]]:
    """(kind, the object as stored or None, why it was refused)."""
    maker = Maker(seed)
    there = {each["metadata"]["name"] for each in server.call("GET", PATHS["Namespace"])["items"]}
    for name in NAMESPACES:
        if name not in there:
            server.call("POST", PATHS["Namespace"], {"metadata": {"name": name}})
    for name in NODES:
        server.call("POST", PATHS["Node"], {"metadata": {"name": name}})
    made: list[tuple[str, Json]] = []
    kinds = [kind for kind, count in SHARES.items() if kind != "ResourceQuota" for _ in range(count)]
    maker.random.shuffle(kinds)
    # quotas last: they would refuse the others
    for kind in [*kinds, *["ResourceQuota"] * SHARES["ResourceQuota"]]:
        path = PATHS[kind].format(maker.one(NAMESPACES[:2]))
        try:
            found = server.call("POST", path, maker.body(kind))
            made.append((path, found))
            if kind in HAVE_STATUS and maker.chance(80):
                at = f"{path}/{found['metadata']['name']}"
                server.call("PATCH", f"{at}/status", {"status": status_of(maker, kind)})
        except urllib.error.HTTPError as error:
            with error:
                yield kind, None, str(json.load(error).get("message", error.code))
    tie(server, maker, made)
    for kind, path in PATHS.items():
        spaces = NAMESPACES if "{}" in path else ("",)
        for space in spaces:
            for each in server.call("GET", path.format(space))["items"]:
                yield kind, {"kind": kind, **trimmed(each)}, ""


def tie(server: ApiServer, maker: Maker, made: list[tuple[str, Json]]) -> None:
    """Make owners of each other, of themselves, in long chains, and across kinds and namespaces."""
    controllers = [
        (path, each) for path, each in made if each["kind"] in ("ReplicaSet", "Job", "Deployment", "StatefulSet")
    ]
    for at, (path, each) in enumerate(made):
        if each["kind"] not in ("Pod", "ReplicaSet", "Job") or maker.chance(20):
            continue
        _, owner = maker.one(controllers)
        if each["kind"] != "Pod" and maker.chance(30):
            owner = each
        elif each["kind"] == "ReplicaSet" and maker.chance(50):
            owner = next((other for _, other in made[at + 1 :] if other["kind"] == "ReplicaSet"), owner)
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        if maker.chance(10):
            reference |= maker.one(
                ({"kind": "Odd"}, {"apiVersion": "odd/v1"}, {"uid": "copied"}, {"kind": "Node", "apiVersion": "v1"})
            )
        try:
            server.call("PATCH", f"{path}/{each['metadata']['name']}", {"metadata": {"ownerReferences": [reference]}})
        except urllib.error.HTTPError as error:
            error.close()


def trimmed(found: Json) -> Json:
    """An object without what only the server reads."""
    meta = {key: value for key, value in found["metadata"].items() if key not in ("managedFields", "selfLink")}
    return {**found, "metadata": meta}


def kept() -> list[Json]:
    """The objects of the data file."""
    return [json.loads(line) for line in DATA.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.programs.odd_objects", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=DATA)
    args = parser.parse_args()
    refused: Counter[str] = Counter()
    accepted: list[Json] = []
    with api_server() as server:
        for kind, found, why in objects(server, args.seed):
            if found is None:
                refused[f"{kind}: {why[:100]}"] += 1
            else:
                accepted.append(found)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text("".join(json.dumps(each, sort_keys=True, separators=(",", ":")) + "\n" for each in accepted))
    for text, count in refused.most_common(30):
        print(f"{count:4d} refused  {text}", file=sys.stderr)
    kinds = Counter(each["kind"] for each in accepted)
    size = args.out.stat().st_size
    print(f"seed {args.seed}: {len(accepted)} accepted, {refused.total()} refused, {size} bytes: {dict(kinds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
