"""Makes odd objects by a seed, as their authors could."""

import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
INT32 = (-(2**31), -1, 0, 1, 100, 2**31 - 1)
NAMESPACES = ("tenant", "tenant-b", "shop")


NODES = ("n1", "n2", "n3")


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
