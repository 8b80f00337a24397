"""Odd objects that a real Kubernetes API server accepts, kept as data for tests that have none.

`KUBEBUILDER_ASSETS=... python -m tests.faults.programs.odd_objects` makes objects by a seed, sends them to an API
server 1.36, and writes what it stored to tests/faults/data/odd_objects.jsonl: one object a line, without managedFields.
What it refuses is counted. Nothing runs beside the server, so the objects are as their authors can make them.
"""

import argparse
import json
import random
import sys
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.real.servers.api_server import ApiServer, api_server

Json = dict[str, Any]
DATA = Path(__file__).parent.parent / "data" / "odd_objects.jsonl"
SEED = 31
NAMESPACES = ("tenant", "tenant-b", "shop")
NODES = ("n1", "n2", "n3")
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
AMOUNTS = (
    "0", "1n", "1u", "1m", "100m", "1", "64", "1k", "1Ki", "1E", "1Ei", "9E", "8Ei", "1e3", "1e18", "1e30",
    "1e308", "1e400", "0.0000000001", "9223372036854775807", "9223372036854775808", "99999999999999999999999999999999",
    "+1", "1.5e-3", "1e-400",
)  # fmt: skip
LONG = "a" * 63
KEYS = (
    "app",
    "a.b/c",
    f"{LONG}.example.com/{LONG}",
    "kubernetes.io/hostname",
    "pod-template-hash",
    "rebalancer.dev/evict",
)
VALUES = ("", "0", "true", "false", "None", "1.0", LONG, "A_b-c.d")
TEXTS = (
    "",
    "\u0000\u0001",
    "\u202e\U0001f600",
    "{}",
    '{"a":' * 50,
    "x" * 600,
    "../../etc/passwd",
    "<script>alert(1)</script>",
)
ANNOTATIONS = (
    "rebalancer.dev/change-window", "rebalancer.dev/evict", "kubernetes.io/config.source",
    "kubernetes.io/config.mirror",
    "cluster-autoscaler.kubernetes.io/safe-to-evict", "descheduler.alpha.kubernetes.io/evict", "example.com/a",
    "descheduler.alpha.kubernetes.io/eviction-in-progress", "vpaUpdates", "rebalancer.dev/service-level",
)  # fmt: skip
TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2026-11-21T03:00:00+14:00")
INT32 = (-(2**31), -1, 0, 1, 100, 2**31 - 1)


class Maker:
    """Makes objects by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return self.random.choice((f"{kind.lower()}-{self.count}", f"{self.count}-{LONG}"[:63], f"x{self.count}"))

    def one(self, values: Any) -> Any:
        return self.random.choice(list(values))

    def some(self, values: Any, most: int = 3) -> list[Any]:
        values = list(values)
        return self.random.sample(values, self.random.randint(0, min(most, len(values))))

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def labels(self) -> Json:
        return {key: self.one(VALUES) for key in self.some(KEYS)}

    def meta(self, kind: str, **more: Any) -> Json:
        annotations = {key: self.one((*TEXTS, *VALUES)) for key in self.some(ANNOTATIONS)}
        return {"name": self.name(kind), "labels": self.labels(), "annotations": annotations, **more}

    def amounts(self, *names: str) -> Json:
        return {name: self.one(AMOUNTS) for name in self.some(names, len(names))}

    def resources(self) -> Json:
        requests = self.amounts("cpu", "memory", "ephemeral-storage")
        limits = {name: requests[name] for name in self.some(requests)}
        if self.chance(20):
            limits["example.com/gpu"] = requests["example.com/gpu"] = self.one(("0", "1", "1e18", "1E"))
        return {"requests": requests, "limits": limits}

    def selector(self) -> Json:
        rules = [
            {"key": self.one(KEYS), "operator": "In", "values": self.some(VALUES) or [""]},
            {"key": self.one(KEYS), "operator": self.one(("Exists", "DoesNotExist"))},
            {"key": self.one(KEYS), "operator": "NotIn", "values": [""]},
        ]
        return self.one(({}, {"matchLabels": self.labels()}, {"matchExpressions": self.some(rules)}))

    def term(self) -> Json:
        out: Json = {"topologyKey": self.one(("kubernetes.io/hostname", "topology.kubernetes.io/zone", "no.such/key"))}
        out["labelSelector"] = self.one((None, self.selector()))
        if self.chance(50):
            out["namespaceSelector"] = self.one(({}, self.selector()))
        if self.chance(30):
            out["namespaces"] = self.some((*NAMESPACES, "none"))
        return out

    def affinity(self) -> Json:
        def both(term: Callable[[], Json], weight: str) -> Json:
            return {
                "requiredDuringSchedulingIgnoredDuringExecution": [term() for _ in range(self.random.randint(0, 2))],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": self.one((1, 50, 100)), weight: term()} for _ in range(self.random.randint(0, 2))
                ],
            }

        out: Json = {}
        for name in self.some(("podAffinity", "podAntiAffinity")):
            out[name] = both(self.term, "podAffinityTerm")
        if self.chance(40):
            rule = {
                "key": self.one(KEYS),
                "operator": self.one(("Gt", "Lt")),
                "values": [self.one(("5", "-1", str(2**62)))],
            }
            field = {
                "key": "metadata.name",
                "operator": self.one(("In", "NotIn")),
                "values": [self.one((*NODES, "none"))],
            }
            term = {"matchExpressions": self.some((rule,)), "matchFields": self.some((field,))}
            out["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}],
            }
        return out

    def volumes(self) -> list[Json]:
        kinds: list[Json] = [
            {"emptyDir": {"medium": self.one(("", "Memory", "HugePages"))}},
            {"emptyDir": {"sizeLimit": self.one(AMOUNTS)}},
            {"hostPath": {"path": self.one(("/", "/var/lib"))}},
            {"persistentVolumeClaim": {"claimName": self.one(("data", "missing", "claim-1"))}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": self.claim_spec()}}},
            {"configMap": {"name": "none", "optional": True}},
        ]
        return [{"name": f"v{at}", **each} for at, each in enumerate(self.some(kinds))]

    def container(self, name: str) -> Json:
        out: Json = {
            "name": name,
            "image": self.one(("app:1", "a@sha256:" + "0" * 64, "x" * 200)),
            "resources": self.resources(),
        }
        if self.chance(20):
            out["ports"] = [
                {"containerPort": 80, "hostPort": self.one((80, 65535)), "protocol": self.one(("TCP", "UDP", "SCTP"))}
            ]
        return out

    def pod_spec(self) -> Json:
        spec: Json = {"containers": [self.container(f"c{at}") for at in range(self.random.randint(1, 3))]}
        if self.chance(30):
            spec["initContainers"] = [{**self.container("i"), **self.one(({}, {"restartPolicy": "Always"}))}]
        if self.chance(50):
            spec["affinity"] = self.affinity()
        if self.chance(40):
            spec["volumes"] = self.volumes()
        if self.chance(30):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": self.one((1, 2**31 - 1)),
                    "topologyKey": self.one(("zone", "kubernetes.io/hostname")),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": self.selector(),
                    **self.one(({}, {"minDomains": 2**31 - 1})),
                }
            ]
        if self.chance(30):
            spec["tolerations"] = [self.one(({"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": ""}))]
        if self.chance(20):
            spec["schedulerName"] = self.one(("none", LONG))
        if self.chance(20):
            spec["terminationGracePeriodSeconds"] = self.one((0, 1, 2**62))
        if self.chance(10):
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        if self.chance(10):
            spec["nodeSelector"] = self.labels()
        if self.chance(10):
            spec["resources"] = {"requests": self.amounts("cpu", "memory")}
        return spec

    def claim_spec(self) -> Json:
        return {
            "accessModes": [self.one(("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod", "ReadOnlyMany"))],
            "resources": {"requests": {"storage": self.one(("1", "1Gi", "1e30", "1e400"))}},
            **self.one(({}, {"volumeName": "none"}, {"storageClassName": ""})),
        }

    def pod_status(self) -> Json:
        states: tuple[Json, ...] = (
            {"waiting": {"reason": self.one(TEXTS)[:1000]}},
            {"terminated": {"exitCode": self.one(INT32), "reason": self.one(("", "OOMKilled", "\u202e"))}},
            {"running": {}},
        )
        container = {
            "name": "c0",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": self.one((0, 1, 2**31 - 1)),
        }
        return {
            "phase": self.one(("Pending", "Running", "Succeeded", "Failed", "Unknown", "Odd")),
            "reason": self.one(("", "Evicted", "x" * 500)),
            "startTime": self.one(TIMES),
            "conditions": [
                {
                    "type": kind,
                    "status": self.one(("True", "False", "Unknown", "odd")),
                    "lastTransitionTime": self.one(TIMES),
                }
                for kind in self.some(("Ready", "PodScheduled", "PodResizeInProgress", "Odd"))
            ],
            "containerStatuses": [{**container, "state": self.one(states)}],
            **self.one(({}, {"nominatedNodeName": self.one((*NODES, "none"))})),
        }

    def node_status(self) -> Json:
        figures = ("cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")
        return {
            "capacity": self.amounts(*figures),
            "allocatable": self.amounts(*figures),
            "conditions": [{"type": "Ready", "status": self.one(("True", "False", "odd"))}],
            "addresses": [
                {"type": self.one(("InternalIP", "Hostname", "Odd")), "address": self.one(("10.0.0.1", "", "x"))}
            ],
            "images": [{"names": self.some(("app:1", "", "x" * 200)), "sizeBytes": self.one((0, -1, 2**62))}],
        }

    def workload(self, kind: str) -> Json:
        labels = {"app": f"w{self.count}"}
        template: Json = {"metadata": {"labels": labels}, "spec": self.pod_spec()}
        spec: Json = {"selector": {"matchLabels": labels}, "template": template}
        if kind != "DaemonSet":
            spec["replicas"] = self.one((0, 1, 2**31 - 1))
        if kind == "StatefulSet":
            spec["serviceName"] = "none"
            spec["updateStrategy"] = self.one(
                ({"type": "OnDelete"}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 2**31 - 1}})
            )
        if kind == "Job":
            template["spec"]["restartPolicy"] = "Never"
            spec = {"template": {"spec": template["spec"]}, "parallelism": self.one((0, 1, 2**31 - 1))}
            if self.chance(50):
                rule = {
                    "action": self.one(("Ignore", "Count")),
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }
                spec["podFailurePolicy"] = {"rules": [rule]}
        return spec

    def body(self, kind: str) -> Json:
        """An object of a kind."""
        more: Json = {}
        if kind == "Namespace":
            return {"metadata": self.meta(kind, name=f"ns-{self.count}-{self.random.randrange(10**6)}")}
        if kind == "Node":
            taint = {"key": self.one(KEYS), "value": self.one(VALUES), "effect": self.one(("NoSchedule", "NoExecute"))}
            return {
                "metadata": self.meta(kind),
                "spec": {"taints": self.some((taint,)), "unschedulable": self.chance(30)},
            }
        if kind == "Pod":
            if self.chance(60):
                more["nodeName"] = self.one((*NODES, "none"))
            return {"metadata": self.meta(kind), "spec": {**self.pod_spec(), **more}}
        if kind == "PersistentVolumeClaim":
            return {"metadata": self.meta(kind), "spec": self.claim_spec()}
        if kind == "PersistentVolume":
            where = {"key": self.one(("kubernetes.io/hostname", "zone")), "operator": "In", "values": ["n1"]}
            return {
                "metadata": self.meta(
                    kind, labels={"topology.kubernetes.io/zone": self.one(("a", "a__b", "__", "a____b"))}
                ),
                "spec": {
                    "capacity": {"storage": self.one(("1", "1e400"))},
                    "accessModes": ["ReadWriteOnce"],
                    "claimRef": {"namespace": self.one(NAMESPACES), "name": self.one(("data", "claim-1"))},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
                    **self.one(
                        (
                            {"hostPath": {"path": "/x"}},
                            {"csi": {"driver": "d", "volumeHandle": "h"}},
                            {"local": {"path": "/x"}},
                        )
                    ),
                },
            }
        if kind == "PodDisruptionBudget":
            bound = self.one(
                (
                    {"minAvailable": self.one((0, 2**31 - 1, "0%", "100%", "1000%"))},
                    {"maxUnavailable": self.one((0, "50%"))},
                )
            )
            policy = self.one(({}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}))
            return {
                "metadata": self.meta(kind),
                "spec": {**bound, **policy, **self.one(({}, {"selector": self.selector()}))},
            }
        if kind == "ResourceQuota":
            return {
                "metadata": self.meta(kind),
                "spec": {"hard": self.amounts("pods", "requests.cpu", "limits.memory", "count/pods")},
            }
        if kind == "HorizontalPodAutoscaler":
            metric = {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": self.one(AMOUNTS)}},
            }
            return {
                "metadata": self.meta(kind),
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": self.one(("apps/v1", "odd/v1")),
                        "kind": self.one(("Deployment", "HorizontalPodAutoscaler", "Odd")),
                        "name": self.one(("w1", "x")),
                    },
                    "maxReplicas": self.one((1, 2**31 - 1)),
                    "metrics": [metric],
                },
            }
        if kind == "PriorityClass":
            return {"metadata": self.meta(kind), "value": self.one((-(2**31), 0, 10**9))}
        if kind == "CSINode":
            driver = {"name": "d", "nodeID": "i", "allocatable": {"count": self.one((0, 2**31 - 1))}}
            return {"metadata": self.meta(kind), "spec": {"drivers": self.some((driver,))}}
        return {"metadata": self.meta(kind), "spec": self.workload(kind)}


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
