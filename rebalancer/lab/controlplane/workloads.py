"""Workloads of the short form: their objects, and pods that run from the start."""

from collections.abc import Iterator

from rebalancer.lab.clock import timestamp
from rebalancer.lab.controlplane.controllers import daemon_runs_on
from rebalancer.lab.controlplane.deployments import replica_set_of
from rebalancer.lab.controlplane.kubelet import Kubelet
from rebalancer.lab.controlplane.owned import daemon_affinity
from rebalancer.lab.controlplane.stateful_sets import pod_labels
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.scenarios import build
from rebalancer.lab.scenarios.specs import WorkloadSpec


class Workloads:
    """Adds workloads. The caller holds the lock."""

    def __init__(self, store: Store, kubelet: Kubelet) -> None:
        self._store, self._kubelet = store, kubelet

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it is there."""
        if self._store.find("namespaces", "", name) is None:
            created = timestamp(self._store.clock.now() - 30 * 86400)
            meta = {"name": name, "labels": {"kubernetes.io/metadata.name": name}, "creationTimestamp": created}
            self._store.create("namespaces", {"metadata": meta, "spec": {}, "status": {"phase": "Active"}})

    def add(self, spec: WorkloadSpec) -> None:
        """Its objects, and its pods that have a place."""
        self.ensure_namespace(spec.namespace)
        now = self._store.clock.now()
        placed = sum(spec.place.values())
        replicas = (placed or int(bool(spec.schedule))) if spec.replicas is None else spec.replicas
        created = now - 2 * spec.age_seconds
        template = build.template(spec)
        owner: Obj | None = None
        if spec.kind not in ("Pod", "Mirror"):
            plural, obj = build.workload_object(spec, replicas=replicas, created=created)
            if spec.kind == "CronJob":
                obj = self._cron_job(spec, obj)
            if spec.kind != "CronJob" or not spec.schedule:
                owner = self._store.create(plural, obj)
            if spec.kind == "Deployment" and owner is not None:
                owner = self._store.create(
                    "replicasets", replica_set_of(owner, replicas, created=owner["metadata"]["creationTimestamp"])
                )
                template = owner["spec"]["template"]
        if spec.pdb is not None:
            self._store.create("poddisruptionbudgets", build.pdb_object(spec, spec.pdb, created))
        if spec.hpa is not None:
            self._store.create("horizontalpodautoscalers", build.hpa_object(spec, spec.hpa, created))
        for claim, volume in build.claims(spec, created):
            self._store.create("persistentvolumes", volume)
            self._store.create("persistentvolumeclaims", claim)
        for number, node in enumerate(self._places(spec, template)):
            self._place(spec, template, owner, number, node)

    def _cron_job(self, spec: WorkloadSpec, job: Obj) -> Obj:
        cron = {
            "metadata": job["metadata"],
            "spec": {
                "schedule": spec.schedule or "0 * * * *",
                "suspend": not spec.schedule,
                "jobTemplate": {"spec": job["spec"]},
            },
        }
        parent = self._store.create("cronjobs", cron)
        meta = {**job["metadata"], "name": f"{spec.name}-29000000", "ownerReferences": [build.owner_reference(parent)]}
        return {**job, "metadata": meta}

    def _places(self, spec: WorkloadSpec, template: Obj) -> Iterator[str]:
        if spec.kind == "DaemonSet" and not spec.place:
            for node in self._store.sorted("nodes"):
                if daemon_runs_on(template, node):
                    yield node["metadata"]["name"]
        for node_name, count in spec.place.items():
            yield from [node_name] * count

    def _place(self, spec: WorkloadSpec, template: Obj, owner: Obj | None, number: int, node: str) -> None:
        now = self._store.clock.now()
        name, prefix = "", f"{(owner or {'metadata': {'name': spec.name}})['metadata']['name']}-"
        if spec.kind == "StatefulSet":
            name = f"{spec.name}-{number}"
        elif spec.kind == "Mirror":
            name = f"{spec.name}-{node}"
        elif spec.kind == "Pod":
            name = spec.name if sum(spec.place.values()) == 1 else f"{spec.name}-{number}"
        pod = build.complete_pod(
            build.pod_object(template, namespace=spec.namespace, name=name, prefix=prefix, owner=owner)
        )
        pod["metadata"]["creationTimestamp"] = timestamp(now - spec.age_seconds)
        if spec.kind == "StatefulSet":
            pod["metadata"]["labels"].update(
                pod_labels(self._store.get("statefulsets", spec.namespace, spec.name), name)
            )
        if spec.kind == "DaemonSet":
            pod["spec"]["affinity"] = daemon_affinity(node)
        if spec.kind == "Mirror":
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "mirror"
            pod["metadata"]["annotations"]["kubernetes.io/config.source"] = "file"
            pod["metadata"]["ownerReferences"] = [build.owner_reference(self._store.get("nodes", "", node))]
        pod["spec"]["nodeName"] = node
        self._kubelet.keep_image(pod)
        self._kubelet.start(pod, now - spec.age_seconds, ready=spec.ready, restarts=spec.restarts)
        self._store.create("pods", pod)
