"""Random clusters and pods that mix everything kube-scheduler looks at. The same seed makes the same ones."""

import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/rack"
GPU = "example.com/gpu"
MIB = 1024 * 1024
NAMESPACES: dict[str, dict[str, str]] = {
    "shop": {"team": "red", "env": "prod"},
    "mail": {"team": "blue", "env": "prod"},
    "batch": {"team": "blue"},
}
IMAGES = {
    "docker.io/library/nginx:1.27": 190 * MIB,
    "nginx:1.27": 190 * MIB,
    "registry.example/models:latest": 5200 * MIB,
    "registry.example/app:2": 820 * MIB,
    "registry.example/sidecar:1": 40 * MIB,
    "registry.example/base@sha256:" + "ab" * 32: 1500 * MIB,
    "registry.example/tiny:1": 3 * MIB,
    "registry.example:5000/port:latest": 1300 * MIB,
}
RUNTIME_CLASS: Json = {
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "120m", "memory": "77Mi"}},
    "scheduling": {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "old", "operator": "Exists"}],
    },
}
DRIVER = "disk.example"
NFS: Json = {"nfs": {"server": "nfs.example", "path": "/"}}
RESTARTS_ALL: Json = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}],
}
"""Of a container: its pod needs a feature that not every node declares."""
CSI_DRIVER: Json = {"metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": True}}
WRITTEN_IMAGES = (
    "nginx:1.27", "registry.example/models", "registry.example/models:latest", "registry.example/app:2",
    "registry.example/sidecar:1", "registry.example/base@sha256:" + "ab" * 32, "registry.example/tiny:1",
    "registry.example:5000/port", "registry.example/nowhere:1",
)  # fmt: skip
CUSTOM_OWNERS = (1, 5, 7, 11, 13)
"""Numbers of the services whose pods belong to a kind that kube-scheduler doesn't know."""
TIERS, COLOURS = ("web", "db", "cache"), ("red", "green", "blue")


class RandomCluster:
    """Nodes, ReplicaSets and pods as one would send them to the API server."""

    def __init__(
        self, seed: int, *, nodes: int = 30, services: int = 24, schedulers: tuple[str, ...] = ("default-scheduler",)
    ) -> None:
        self._random = random.Random(seed)
        self._made = 0
        self._schedulers = schedulers
        self.nodes = [self._node(index) for index in range(nodes)]
        self.node_names: list[str] = [node["metadata"]["name"] for node in self.nodes]
        self.services = [self._service(index) for index in range(services)] + 2 * _spread_services()
        self.volumes = [self._volume(index) for index in range(15)]

    def claims(self) -> list[Json]:
        """Each is bound to the volume of its name."""
        return [
            {
                "metadata": {
                    **volume["spec"]["claimRef"],
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {
                    "accessModes": volume["spec"]["accessModes"],
                    "resources": {"requests": volume["spec"]["capacity"]},
                    "storageClassName": "",
                    "volumeName": volume["metadata"]["name"],
                },
            }
            for volume in self.volumes
        ]

    def kube_services(self) -> list[Json]:
        """Services of some services, and others that select by tier."""
        chosen = [each for at, each in enumerate(self.services) if at % 2 or at % 5 == 0]
        selectors = [(each["namespace"], {"app": each["labels"]["app"]}) for each in chosen]
        selectors += [("shop", {"tier": "web"}), ("batch", {"tier": "db", "colour": "red"}), ("mail", {"no": "pod"})]
        return [
            {
                "metadata": {"name": f"service-{at}", "namespace": namespace},
                "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": selector},
            }
            for at, (namespace, selector) in enumerate(selectors)
        ]

    def csi_nodes(self) -> list[Json]:
        """Of most nodes, of which most have the driver."""
        drivers = [{"name": DRIVER, "nodeID": "n", "topologyKeys": []}]
        return [
            {"metadata": {"name": name}, "spec": {"drivers": drivers if at % 4 else []}}
            for at, name in enumerate(self.node_names)
            if at % 7
        ]

    def replica_sets(self) -> list[Json]:
        """One for about every second service."""
        return [service["replica_set"] for service in self.services if service["replica_set"]]

    def pod(self, uids: dict[str, str]) -> Json:
        """The next pod: another one of a service or one of its own. `uids` gives a ReplicaSet's (`namespace/name`)."""
        self._made += 1
        name = f"p{self._made:04d}"
        if self._chance(0.15):
            labels = {"tier": self._pick(TIERS), "colour": self._pick(COLOURS)}
            namespace, spec = self._pick(tuple(NAMESPACES)), self._pod_spec(labels)
            if self._chance(0.4):
                claims = [each["metadata"] for each in self.claims() if each["metadata"]["namespace"] == namespace]
                claim = {"name": "data", "persistentVolumeClaim": {"claimName": self._pick(claims)["name"]}}
                spec["volumes"] = [*spec.get("volumes", ()), claim]
            return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}
        service = self._pick(self.services)
        meta: Json = {"name": name, "namespace": service["namespace"], "labels": service["labels"]}
        if owner := service["replica_set"]:
            full = f"{service['namespace']}/{owner['metadata']['name']}"
            meta["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner["metadata"]["name"],
                    "uid": uids[full],
                    "controller": True,
                }
            ]
        elif kind := service.get("kind"):
            name = service["labels"]["app"]
            owner = {"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": f"uid-{name}"}
            meta["ownerReferences"] = [owner | {"controller": True}]
        return {"metadata": meta, "spec": service["spec"]}

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, among: Any) -> Any:
        return self._random.choice(among)

    def _node(self, index: int) -> Json:
        name = f"n{index:03d}"
        labels = {"kubernetes.io/os": "linux"}
        if not self._chance(0.03):
            labels[HOST] = name
        if not self._chance(0.06):
            labels[ZONE] = self._pick("abc")
        if self._chance(0.8):
            labels[RACK] = f"r{self._random.randrange(6)}"
        if self._chance(0.7):
            labels["disk"] = self._pick(("ssd", "hdd"))
        if self._chance(0.6):
            labels["rank"] = str(self._random.randrange(10)) if self._chance(0.9) else "high"
        taints: list[Json] = []
        if self._chance(0.12):
            taints.append({"key": "dedicated", "value": self._pick(COLOURS), "effect": "NoSchedule"})
        if self._chance(0.06):
            taints.append({"key": "draining", "effect": "NoExecute"})
        for key in ("hot", "old", "noisy"):
            if self._chance(0.15):
                taints.append({"key": key, "value": self._pick(("a", "b")), "effect": "PreferNoSchedule"})
        amounts = {
            "cpu": f"{self._random.randrange(2000, 12000)}m",
            "memory": f"{self._random.randrange(4, 33) * 1024 * 1024 - 1205}Ki",
            "pods": str(self._pick((8, 20, 110, 110))),
            "ephemeral-storage": f"{self._random.randrange(5, 50)}Gi",
        }
        if self._chance(0.3):
            amounts[GPU] = str(self._random.randrange(1, 5))
        spec: Json = {"taints": taints} if taints else {}
        if self._chance(0.07):
            spec["unschedulable"] = True
        images = [{"names": [name], "sizeBytes": size} for name, size in IMAGES.items() if self._chance(0.4)]
        if self._chance(0.5):
            size = IMAGES["registry.example/app:2"]
            images = [image for image in images if image["names"] != ["registry.example/app:2"]]
            names = ["registry.example/app@sha256:" + "cd" * 32, "registry.example/app:2"]
            images.append({"names": names, "sizeBytes": size})
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": images,
        }
        if self._chance(0.5):
            status["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
        else:
            labels["features"] = "none"
        return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}

    def _volume(self, index: int) -> Json:
        """Bound; three in each namespace, of which one is for one pod at a time."""
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOncePod" if index < 3 else "ReadWriteMany"],
            **(NFS if index < 9 else {"csi": {"driver": DRIVER, "volumeHandle": f"handle-{index}"}}),
            "claimRef": {"namespace": tuple(NAMESPACES)[index % 3], "name": f"claim-{index}"},
        }
        where: Json | None = None
        if index % 4 == 1:
            where = {"key": ZONE, "operator": "In", "values": [self._pick("abc")]}
        elif index % 4 == 2:
            where = {"key": HOST, "operator": "In", "values": self._random.sample(self.node_names, 4)}
        if where:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
        return {"metadata": {"name": f"volume-{index}"}, "spec": spec}

    def _service(self, index: int) -> Json:
        labels = {"app": f"s{index:02d}", "tier": self._pick(TIERS), "colour": self._pick(COLOURS)}
        namespace = self._pick(tuple(NAMESPACES))
        # every third is plain: the system's own spreading is only for pods without constraints
        custom = index in CUSTOM_OWNERS
        spec = self._pod_spec(labels, spread=bool(index % 3) and not custom)
        replica_set: Json | None = None
        if index % 2 == 0 or index % 3 == 0:
            labels = {**labels, "pod-template-hash": f"{index:x}f"}
            selector: Json = {"matchLabels": {key: labels[key] for key in ("app", "pod-template-hash")}}
            template = {"metadata": {"labels": labels}, "spec": spec}
            replica_set = {
                "metadata": {"name": f"s{index:02d}", "namespace": namespace, "labels": labels},
                "spec": {"replicas": 1, "selector": selector, "template": template},
            }
        kind = "Fleet" if custom else ""
        return {"namespace": namespace, "labels": labels, "spec": spec, "replica_set": replica_set, "kind": kind}

    def _pod_spec(self, labels: Json, *, spread: bool = True) -> Json:
        spec: Json = {"containers": [self._container(n) for n in range(self._pick((1, 1, 2, 3)))]}
        spec["schedulerName"] = self._pick(self._schedulers)
        if self._chance(0.3):
            spec["initContainers"] = [self._init(n) for n in range(self._pick((1, 2)))]
        parts: list[tuple[float, Callable[[Json], None]]] = [
            (0.15, self._add_ports),
            (0.6, self._add_tolerations),
            (0.2, self._add_node_selector),
            (0.4, self._add_node_affinity),
            (0.2, lambda spec: self._add_pod_affinity(spec, "podAffinity", 0.35)),
            (0.3, lambda spec: self._add_pod_affinity(spec, "podAntiAffinity", 0.5)),
        ]
        for share, add in parts:
            if self._chance(share):
                add(spec)
        if spread and self._chance(0.7):
            constraints = [self._spread(labels) for _ in range(self._pick((1, 1, 2)))]
            # the API server wants each (topologyKey, whenUnsatisfiable) once
            one_each = {(each["topologyKey"], each["whenUnsatisfiable"]): each for each in constraints}
            spec["topologySpreadConstraints"] = list(one_each.values())
        if self._chance(0.06):
            spec["runtimeClassName"] = RUNTIME_CLASS["metadata"]["name"]
        if self._chance(0.06):
            spec["volumes"] = [{"name": "model", "image": {"reference": self._pick(WRITTEN_IMAGES)}}]
        if self._chance(0.06):
            spec["resources"] = {"requests": {"cpu": "2700m", "memory": "9000Mi"}}
        if self._chance(0.12):
            spec["containers"][0] |= RESTARTS_ALL
        if self._chance(0.04):
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        return spec

    def _requests(self) -> Json:
        requests: Json = {}
        if self._chance(0.75):
            requests["cpu"] = f"{self._random.randrange(1, 900)}m"
        if self._chance(0.7):
            requests["memory"] = f"{self._random.randrange(1, 2000)}Mi"
        if self._chance(0.1):
            requests["ephemeral-storage"] = f"{self._random.randrange(1, 3000)}Mi"
        return requests

    def _container(self, number: int) -> Json:
        resources: Json = {"requests": self._requests()}
        if self._chance(0.08):
            resources["requests"][GPU] = "1"
            resources["limits"] = {GPU: "1"}
        return {"name": f"c{number}", "image": self._pick(WRITTEN_IMAGES), "resources": resources}

    def _init(self, number: int) -> Json:
        container = {
            "name": f"i{number}",
            "image": self._pick(WRITTEN_IMAGES),
            "resources": {"requests": self._requests()},
        }
        if self._chance(0.5):
            container["restartPolicy"] = "Always"
        return container

    def _add_ports(self, spec: Json) -> None:
        port: Json = {"containerPort": 80, "hostPort": self._pick((8080, 9090))}
        if self._chance(0.5):
            port["hostIP"] = self._pick(("127.0.0.1", "10.0.0.1", "0.0.0.0"))
        if self._chance(0.3):
            port["protocol"] = "UDP"
        sidecars = [each for each in spec.get("initContainers", ()) if each.get("restartPolicy")]
        self._pick(spec["containers"] + sidecars)["ports"] = [port]

    def _add_tolerations(self, spec: Json) -> None:
        choices: list[Json] = [
            {"operator": "Exists"},
            {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "dedicated", "value": self._pick(COLOURS)},
            {"key": "draining", "operator": "Exists"},
            {"key": "hot", "operator": "Equal", "value": "a", "effect": "PreferNoSchedule"},
            {"key": "old", "operator": "Exists"},
            {"key": "noisy", "value": "b", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        ]
        spec["tolerations"] = self._random.sample(choices, self._pick((1, 2, 3)))

    def _add_node_selector(self, spec: Json) -> None:
        key, values = self._pick((("disk", ("ssd", "hdd")), ("kubernetes.io/os", ("linux",)), (ZONE, "abc")))
        spec["nodeSelector"] = {key: self._pick(values)}

    def _expression(self) -> Json:
        choices: list[Json] = [
            {"key": "disk", "operator": "In", "values": [self._pick(("ssd", "hdd"))]},
            {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
            {"key": ZONE, "operator": "In", "values": self._random.sample("abc", 2)},
            {"key": ZONE, "operator": "NotIn", "values": [self._pick("abc")]},
            {"key": "rank", "operator": "Exists"},
            {"key": "rank", "operator": "DoesNotExist"},
            {"key": "rank", "operator": "Gt", "values": [str(self._random.randrange(7))]},
            {"key": "rank", "operator": "Lt", "values": [str(self._random.randrange(3, 10))]},
            {"key": RACK, "operator": "In", "values": [f"r{n}" for n in range(4)]},
        ]
        return dict(self._pick(choices))

    def _node_term(self) -> Json:
        term: Json = {"matchExpressions": [self._expression() for _ in range(self._pick((1, 1, 2)))]}
        if self._chance(0.2):
            names = self._random.sample(self.node_names, 1)
            term["matchFields"] = [{"key": "metadata.name", "operator": "NotIn", "values": names}]
        if self._chance(0.1):
            return {
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._pick(self.node_names)]}]
            }
        return term

    def _add_node_affinity(self, spec: Json) -> None:
        rules: Json = {}
        if self._chance(0.5):
            terms = [self._node_term() for _ in range(self._pick((1, 2, 3)))]
            rules["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self._chance(0.7):
            rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self._random.randrange(1, 101), "preference": self._node_term()}
                for _ in range(self._pick((1, 2, 3)))
            ]
        if rules:
            spec.setdefault("affinity", {})["nodeAffinity"] = rules

    def _label_selector(self) -> Json:
        choices: list[Json] = [
            {"matchLabels": {"tier": self._pick(TIERS)}},
            {"matchLabels": {"tier": self._pick(TIERS), "colour": self._pick(COLOURS)}},
            {"matchLabels": {"app": f"s{self._random.randrange(24):02d}"}},
            {"matchExpressions": [{"key": "colour", "operator": "In", "values": self._random.sample(COLOURS, 2)}]},
            {"matchExpressions": [{"key": "colour", "operator": "NotIn", "values": ["red"]}]},
            {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "app", "operator": "Exists"}], "matchLabels": {"tier": "db"}},
            {},
        ]
        return dict(self._pick(choices))

    def _pod_term(self) -> Json:
        term: Json = {"labelSelector": self._label_selector(), "topologyKey": self._pick((ZONE, HOST, HOST, RACK))}
        if self._chance(0.3):
            choices: list[Json] = [{}, {"matchLabels": {"team": "blue"}}, {"matchLabels": {"env": "prod"}}]
            term["namespaceSelector"] = self._pick(choices)
        if self._chance(0.2):
            term["namespaces"] = self._random.sample(tuple(NAMESPACES), 2)
        if self._chance(0.1):
            key = "pod-template-hash" if "colour" in str(term["labelSelector"]) else "colour"
            term[self._pick(("matchLabelKeys", "mismatchLabelKeys"))] = [key]
        return term

    def _add_pod_affinity(self, spec: Json, kind: str, required: float) -> None:
        rules: Json = {}
        if self._chance(required):
            rules["requiredDuringSchedulingIgnoredDuringExecution"] = [self._pod_term()]
        if self._chance(0.7):
            rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self._random.randrange(1, 101), "podAffinityTerm": self._pod_term()}
                for _ in range(self._pick((1, 2)))
            ]
        if rules:
            spec.setdefault("affinity", {})[kind] = rules

    def _spread(self, labels: Json) -> Json:
        own = {"matchLabels": {"app": labels["app"]}} if "app" in labels else {"matchLabels": {"tier": labels["tier"]}}
        hard = self._chance(0.5)
        constraint: Json = {
            "maxSkew": self._pick((1, 2, 3)),
            "topologyKey": self._pick((ZONE, HOST, HOST, RACK)),
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": own if self._chance(0.6) else self._label_selector(),
        }
        if hard and self._chance(0.5):
            constraint["minDomains"] = self._pick((2, 4, 7))
        if self._chance(0.5):
            constraint["nodeAffinityPolicy"] = self._pick(("Honor", "Ignore"))
        if self._chance(0.6):
            constraint["nodeTaintsPolicy"] = self._pick(("Honor", "Ignore"))
        if self._chance(0.25) and "colour" not in str(constraint["labelSelector"]):
            constraint["matchLabelKeys"] = ["colour"]
        return constraint


def _spread_services() -> list[Json]:
    """Small services whose hard spreading decides alone: what chance would seldom bring together."""

    def service(name: str, key: str, spec: Json, **constraint: Any) -> Json:
        labels = {"app": name}
        spread = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
            **constraint,
        }
        whole = {"containers": [{"name": "c0", "image": "nginx:1.27"}], "topologySpreadConstraints": [spread], **spec}
        return {"namespace": "shop", "labels": labels, "spec": whole, "replica_set": None}

    needs = {
        "containers": [{"name": "c0", "image": "nginx:1.27", **RESTARTS_ALL}],
        "nodeSelector": {"features": "none"},
    }
    low_rank = {"key": "rank", "operator": "Lt", "values": ["2"]}
    few = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [low_rank]}]}}
    return [
        service("more-zones-than-there-are", ZONE, {}, minDomains=5),
        service("a-feature-that-no-node-has", HOST, needs, maxSkew=99),
        service(
            "few-nodes-of-all",
            HOST,
            {"affinity": {"nodeAffinity": few}},
            nodeAffinityPolicy="Ignore",
            nodeTaintsPolicy="Honor",
        ),
        service("few-nodes", HOST, {"affinity": {"nodeAffinity": few}}, nodeTaintsPolicy="Honor"),
    ]
