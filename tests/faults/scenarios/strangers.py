"""Odd objects that a real API server accepts: every value is valid for itself, few are what anyone expects.

They are drawn part by part, so that odd parts meet. `tests/faults/test_strangers.py` has a real API server accept a
sample. Whole objects of `tests/faults/data/odd_objects.jsonl` are mixed in, where there is that file.
"""

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from rebalancer.lab.objects import kinds
from rebalancer.lab.objects.kinds import Obj
from tests.faults.scenarios.odd_values import (
    ANNOTATIONS,
    BYTES,
    COUNTS,
    CPUS,
    INT32,
    INT64,
    KEYS,
    MIRROR,
    OWNERS,
    PHASES,
    TEXTS,
    TIMES,
    VALUES,
)

KNOWN = Path(__file__).parents[1] / "data" / "odd_objects.jsonl"
KNOWN_SHARE = 0.2
SPACES = tuple(f"strange-{number}" for number in range(8))
QUOTA_SPACE = "strange-quotas"
"""A quota would keep an API server from creating the pods of its namespace."""
GIVEN: dict[str, int] = {
    "pods": 60,
    "replicasets": 8,
    "nodes": 5,
    "poddisruptionbudgets": 6,
    "persistentvolumes": 5,
    "persistentvolumeclaims": 3,
    "deployments": 3,
    "statefulsets": 2,
    "jobs": 2,
    "daemonsets": 2,
    "horizontalpodautoscalers": 2,
    "resourcequotas": 2,
}
"""Plural -> parts of all."""


class Strangers:
    """Draws objects by a seed. `nodes` are names that pods may stand on, `uids` those of owners that they may name."""

    def __init__(self, draw: random.Random, *, nodes: Sequence[str], uids: Sequence[str]) -> None:
        self._draw = draw
        self._nodes = [*nodes, "strange-node-1", "strange-node-2", "no-such-node"]
        self._uids = [*uids, "u", "0" * 36]
        self._made = 0
        self._known = _known_objects()

    def uid(self, uid: str) -> None:
        """From now on strangers may name it as owner."""
        if len(self._uids) > 500:
            self._uids[self._draw.randrange(len(self._uids))] = uid
        else:
            self._uids.append(uid)

    def object(self) -> tuple[str, Obj]:
        """(plural, object with its status)."""
        self._made += 1
        if self._known and self._draw.random() < KNOWN_SHARE:
            return self._known_one()
        (plural,) = self._draw.choices(list(GIVEN), list(GIVEN.values()))
        return plural, self.of(plural)

    def of(self, plural: str) -> Obj:
        """A new object of this kind."""
        self._made += 1
        make: dict[str, Callable[[], Obj]] = {
            "pods": self._pod,
            "nodes": self._node,
            "poddisruptionbudgets": self._budget,
            "persistentvolumes": self._volume,
            "persistentvolumeclaims": self._claim,
            "jobs": self._job,
            "horizontalpodautoscalers": self._autoscaler,
            "resourcequotas": self._quota,
        }
        made = make.get(plural, lambda: self._workload(plural))()
        new = {"metadata": self._meta(plural), **made}
        if plural == "pods":
            self._fit_to_node(new)
        return new

    def changed(self, plural: str, obj: Obj) -> Obj:
        """The object after an update that an API server takes: other metadata and status."""
        other, new = self.of(plural), deepcopy(obj)
        for field in ("labels", "annotations", "ownerReferences"):
            new["metadata"].pop(field, None)
            if field in other["metadata"] and (field != "labels" or plural in ("pods", "nodes")):
                new["metadata"][field] = other["metadata"][field]
        if self._draw.random() < 0.1 and plural not in ("nodes", "persistentvolumes"):
            # its own owner
            (version, kind), meta = ("apps/v1", "ReplicaSet"), new["metadata"]
            new["metadata"]["ownerReferences"] = [
                {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
            ]
        if "status" in other:
            new["status"] = other["status"]
        if plural == "pods":
            self._fit_to_node(new)
            self._keep_mirror(obj, new)
        return new

    def _keep_mirror(self, before: Obj, pod: Obj) -> None:
        """The annotation of a mirror pod can't be changed."""
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations.pop(MIRROR, None)
        if (value := (before["metadata"].get("annotations") or {}).get(MIRROR)) is not None:
            annotations[MIRROR] = value

    def _fit_to_node(self, pod: Obj) -> None:
        """Drop what an API server refuses of a pod with a node, or without one."""
        if "nodeName" in pod["spec"]:
            pod["status"].pop("nominatedNodeName", None)
        else:
            pod["metadata"].get("annotations", {}).pop(MIRROR, None)

    # ---- parts

    def _some(self, *values: Any) -> Any:
        return self._draw.choice(values)

    def _may(self, share: float = 0.3) -> bool:
        return self._draw.random() < share

    def _parts(self, **makers: Callable[[], Any]) -> Obj:
        """Each of the fields, or not."""
        return {name: make() for name, make in makers.items() if self._may()}

    def _map(self, keys: Sequence[str], values: Sequence[str], most: int = 4) -> dict[str, str]:
        count = self._draw.randint(0, most) if self._may(0.97) else 200
        found = {self._some(*keys): self._some(*values) for _ in range(min(count, most))}
        return found | {f"example.com/k{number}": self._some(*values) for number in range(count - most)}

    def _meta(self, plural: str) -> Obj:
        named = {"name": f"odd-{self._made}"} if self._may(0.9) else {"name": f"{'n' * 40}-{self._made}"}
        if kinds.by_plural(plural).namespaced:
            named["namespace"] = QUOTA_SPACE if plural == "resourcequotas" else self._some(*SPACES)
        return named | self._parts(
            labels=lambda: self._map(KEYS, VALUES),
            annotations=lambda: self._map(ANNOTATIONS, TEXTS),
            ownerReferences=self._owners,
        )

    def _owners(self) -> list[Obj]:
        count = self._draw.choice([1, 1, 1, 2, 5])
        controller = self._draw.randrange(count) if self._may(0.8) else -1
        found = []
        for number in range(count):
            version, kind = self._some(*OWNERS)
            one = {
                "apiVersion": version,
                "kind": kind,
                "name": self._some("x", "odd-1"),
                "uid": self._some(*self._uids),
            }
            found.append(one | ({"controller": True} if number == controller else {}))
        return found

    def _selector(self) -> Obj:
        return self._some(
            {},
            {"matchLabels": {"app": self._some(*VALUES)}},
            {"matchExpressions": [{"key": self._some(*KEYS[:4]), "operator": self._some("Exists", "DoesNotExist")}]},
            {
                "matchExpressions": [
                    {"key": "app", "operator": self._some("In", "NotIn"), "values": ["a", "b", "", "a"]}
                ]
            },
        )

    def _term(self) -> Obj:
        key = self._some("kubernetes.io/hostname", "topology.kubernetes.io/zone", "no/such-key")
        term: Obj = {"topologyKey": key, "labelSelector": self._selector()}
        return term | self._parts(
            namespaceSelector=lambda: self._some({}, {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}),
            namespaces=lambda: self._some(["shop"], ["shop", "default", "no-such"]),
        )

    def _requirement(self) -> Obj:
        return self._some(
            {
                "key": "kubernetes.io/hostname",
                "operator": self._some("Gt", "Lt"),
                "values": [self._some("a", "", "9" * 40)],
            },
            {"key": self._some(*KEYS[:4]), "operator": self._some("Exists", "DoesNotExist")},
            {"key": "kubernetes.io/hostname", "operator": self._some("In", "NotIn"), "values": ["warm-1", "nowhere"]},
        )

    def _affinity(self) -> Obj:
        required, preferred = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
        return self._parts(
            podAntiAffinity=lambda: {required: [self._term() for _ in range(self._some(1, 1, 3))]},
            podAffinity=lambda: {
                required: [self._term()],
                preferred: [{"weight": self._some(1, 100), "podAffinityTerm": self._term()}],
            },
            nodeAffinity=lambda: {
                required: {"nodeSelectorTerms": [{"matchExpressions": [self._requirement()]}, self._some({}, {})]},
                preferred: [{"weight": 100, "preference": {"matchExpressions": [self._requirement()]}}],
            },
        )

    def _amounts(self) -> Obj:
        return self._parts(
            cpu=lambda: self._some(*CPUS),
            memory=lambda: self._some(*BYTES),
            **{
                "ephemeral-storage": lambda: self._some(*BYTES),
                "example.com/gpu": lambda: self._some(*COUNTS),
            },
        )

    def _container(self, number: int) -> Obj:
        requests = self._amounts()
        # of extended resources limits and requests must be the same
        limits = {
            name: amount for name, amount in requests.items() if name.startswith("example.com/") or self._may(0.1)
        }
        found: Obj = {"name": f"c{number}", "image": self._some("a", "registry.example.com:5000/x/y:z", "x" * 200)}
        if requests:
            found["resources"] = {"requests": requests, **({"limits": limits} if limits else {})}
        if number == 0 and self._may(0.1):
            port = self._some(1, 80, 65535)
            found["ports"] = [{"containerPort": port, "hostPort": port, "protocol": self._some("TCP", "UDP", "SCTP")}]
        return found

    def _pod_spec(self) -> Obj:
        count = 1 if self._may(0.9) else self._some(2, 40)
        spec: Obj = {"containers": [self._container(number) for number in range(count)]}
        if self._may(0.85):
            spec["nodeName"] = self._some(*self._nodes)
        return spec | self._parts(
            affinity=self._affinity,
            tolerations=lambda: [
                self._some(
                    {"operator": "Exists"},
                    {"key": "a", "operator": "Equal", "value": "", "effect": "NoSchedule"},
                    {
                        "key": "b",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": self._some(-1, INT64),
                    },
                )
            ],
            nodeSelector=lambda: self._map(KEYS[:4], VALUES),
            terminationGracePeriodSeconds=lambda: self._some(0, 1, INT64, 10**15),
            schedulerName=lambda: self._some("default-scheduler", "no-such-scheduler"),
            topologySpreadConstraints=lambda: [
                {
                    "maxSkew": self._some(1, INT32),
                    "topologyKey": self._some("kubernetes.io/hostname", "no/such-key"),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": self._selector(),
                    **self._parts(minDomains=lambda: self._some(1, INT32)),
                }
            ],
            volumes=lambda: [
                {"name": f"v{number}", **self._volume_source()} for number in range(self._some(1, 1, 2, 60))
            ],
            initContainers=lambda: [
                {**self._container(100), **self._some({}, {"restartPolicy": "Always"})},
            ],
            priorityClassName=lambda: self._some("system-node-critical", "system-cluster-critical"),
        )

    def _volume_source(self) -> Obj:
        return self._some(
            {"emptyDir": {}},
            {"emptyDir": {"sizeLimit": self._some(*BYTES)}},
            {"hostPath": {"path": "/"}},
            {"persistentVolumeClaim": {"claimName": self._some("data", "no-such-claim")}},
            {"configMap": {"name": "no-such-map"}},
        )

    def _conditions(self, *types: str) -> list[Obj]:
        made = self._some("True", "False", "Unknown")
        return [{"type": kind, "status": made, "reason": self._some("A", "")} for kind in types if self._may(0.7)]

    def _pod(self) -> Obj:
        status = {"phase": self._some(*PHASES)} | self._parts(
            conditions=lambda: self._conditions("Ready", "PodScheduled", "DisruptionTarget", "example.com/Odd"),
            startTime=lambda: self._some(*TIMES),
            reason=lambda: self._some("Evicted", "", "x" * 500),
            nominatedNodeName=lambda: self._some(*self._nodes),
            containerStatuses=lambda: [
                {
                    "name": "c0",
                    "ready": False,
                    "image": "",
                    "imageID": "",
                    "restartCount": self._some(0, 1, INT32),
                    "state": self._some(
                        {"waiting": {"reason": "CrashLoopBackOff"}},
                        {"terminated": {"exitCode": self._some(0, 137, INT32), "reason": "OOMKilled"}},
                        {},
                    ),
                }
            ],
        )
        return {"spec": self._pod_spec(), "status": status}

    def _node(self) -> Obj:
        amounts = self._parts(
            cpu=lambda: self._some(*CPUS),
            memory=lambda: self._some(*BYTES),
            pods=lambda: self._some("0", "110", str(INT64)),
        )
        taint = {"key": "a", "effect": self._some("NoSchedule", "PreferNoSchedule", "NoExecute")}
        return {
            "spec": self._parts(unschedulable=lambda: True, taints=lambda: [taint]),
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": self._conditions("Ready", "MemoryPressure", "example.com/Odd"),
                **self._parts(
                    addresses=lambda: [{"type": "InternalIP", "address": self._some("", "::1", "not an address")}],
                    images=lambda: [{"names": ["a", "a"], "sizeBytes": self._some(0, INT64)}],
                ),
            },
        }

    def _budget(self) -> Obj:
        bound = self._some(
            {"minAvailable": self._some(0, INT32, "0%", "100%")},
            {"maxUnavailable": self._some(0, INT32, "0%", "100%")},
        )
        count = self._some(0, 1, INT32)
        status = {
            "disruptionsAllowed": count,
            "currentHealthy": count,
            "desiredHealthy": self._some(0, INT32),
            "expectedPods": self._some(0, INT32),
            "observedGeneration": self._some(0, INT64),
        }
        return {"spec": {**bound, "selector": self._selector()}, "status": status}

    def _volume(self) -> Obj:
        space, name = self._some(*SPACES, "shop"), self._some("data", "no-such-claim")
        terms = [{"matchExpressions": [self._requirement()]}]
        return {
            "spec": {
                "capacity": {"storage": self._some("1", "1e308", "1Ei")},
                "accessModes": self._some(["ReadWriteOnce"], ["ReadWriteMany", "ReadOnlyMany"], ["ReadWriteOncePod"]),
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": space, "name": name, "uid": "u"},
                "local": {"path": "/"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                "storageClassName": "odd",
            },
            "status": {"phase": self._some("Bound", "Available", "Released", "Failed")},
        }

    def _claim(self) -> Obj:
        amount = {"requests": {"storage": self._some("1", "1e308", "1Ei")}}
        return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": amount}, "status": {"phase": "Pending"}}

    def _template(self) -> Obj:
        spec = self._pod_spec()
        for field in ("nodeName", "priorityClassName"):
            spec.pop(field, None)
        return {"metadata": {"labels": {"app": "odd"}}, "spec": spec}

    def _workload(self, plural: str) -> Obj:
        replicas = {"replicas": self._some(0, 1, 3, INT32)}
        spec: Obj = {"selector": {"matchLabels": {"app": "odd"}}, "template": self._template()}
        if plural == "daemonsets":
            zero = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
            return {"spec": spec, "status": dict.fromkeys(zero, 0)}
        return {"spec": {**spec, **replicas}, "status": {"replicas": self._some(0, 1, INT32)}}

    def _job(self) -> Obj:
        template = self._template()
        template["spec"]["restartPolicy"] = "Never"
        for each in template["spec"].get("initContainers", ()):
            each.pop("restartPolicy", None)
        counts = {"parallelism": self._some(0, 1, INT32), "completions": self._some(1, INT32)}
        return {"spec": {"template": template, **counts}}

    def _autoscaler(self) -> Obj:
        target = {
            "apiVersion": "apps/v1",
            "kind": self._some("Deployment", "Unicorn"),
            "name": self._some("x", "svc-1"),
        }
        status = {"currentReplicas": self._some(0, INT32), "desiredReplicas": self._some(0, INT32), "conditions": []}
        return {
            "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": self._some(1, INT32)},
            "status": status,
        }

    def _quota(self) -> Obj:
        hard = {name: self._some(*CPUS) for name in ("requests.cpu", "limits.cpu") if self._may(0.6)}
        hard |= {name: self._some(*COUNTS) for name in ("pods", "count/jobs.batch") if self._may(0.6)}
        return {"spec": {"hard": hard}, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}

    def _known_one(self) -> tuple[str, Obj]:
        plural, obj = self._draw.choice(self._known)
        new = deepcopy(obj)
        meta = new["metadata"]
        meta["name"] = f"known-{self._made}"
        for field in ("uid", "resourceVersion", "generateName", "managedFields", "selfLink"):
            meta.pop(field, None)
        if kinds.by_plural(plural).namespaced:
            meta["namespace"] = QUOTA_SPACE if plural == "resourcequotas" else self._some(*SPACES)
        return plural, new


def _known_objects() -> list[tuple[str, Obj]]:
    if not KNOWN.exists():
        return []
    plurals = {kind.kind: kind.plural for kind in reversed(kinds.KINDS)}
    found = [json.loads(line) for line in KNOWN.read_text().splitlines()]
    # the labels of a Job's pods have its own UID
    wanted = GIVEN.keys() - {"jobs"}
    return [(plural, obj) for obj in found if (plural := plurals.get(obj["kind"], "")) in wanted]
