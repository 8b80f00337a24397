"""What happens to a practice cluster at a stated time: `steps` of a scenario."""

from typing import TYPE_CHECKING, Literal

import msgspec

from rebalancer.lab.loads.cpu import Breaks
from rebalancer.lab.scenarios.specs import NodeSpec, WorkloadSpec

if TYPE_CHECKING:
    from rebalancer.lab.controlplane.cluster import Cluster


class _Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Base: `at_seconds` after the lab's start."""

    at_seconds: float


class Cordon(_Step, frozen=True, kw_only=True, tag="cordon"):
    node: str

    def run(self, cluster: "Cluster") -> None:
        cluster.cordon(self.node)


class Uncordon(_Step, frozen=True, kw_only=True, tag="uncordon"):
    node: str

    def run(self, cluster: "Cluster") -> None:
        cluster.cordon(self.node, on=False)


class Taint(_Step, frozen=True, kw_only=True, tag="taint"):
    """Running pods stay; NoExecute alone drives out those that don't tolerate it."""

    node: str
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"

    def run(self, cluster: "Cluster") -> None:
        cluster.taint(self.node, self.key, value=self.value, effect=self.effect)


class Untaint(_Step, frozen=True, kw_only=True, tag="untaint"):
    node: str
    key: str

    def run(self, cluster: "Cluster") -> None:
        cluster.untaint(self.node, self.key)


class LabelNode(_Step, frozen=True, kw_only=True, tag="label-node"):
    """A label that is null is taken off."""

    node: str
    labels: dict[str, str | None]

    def run(self, cluster: "Cluster") -> None:
        cluster.label_node(self.node, self.labels)


class LabelPods(_Step, frozen=True, kw_only=True, tag="label-pods"):
    """All pods that the workload has then."""

    workload: str
    namespace: str = "default"
    labels: dict[str, str | None]

    def run(self, cluster: "Cluster") -> None:
        for pod in cluster.pods(namespace=self.namespace, workload=self.workload):
            cluster.label_pod(self.namespace, pod["metadata"]["name"], self.labels)


class EndContainers(_Step, frozen=True, kw_only=True, tag="end-containers"):
    """Of the workload's running pods, of those on `node` where one is named."""

    workload: str
    namespace: str = "default"
    node: str = ""
    how: Breaks = Breaks(after_seconds=0.0)

    def run(self, cluster: "Cluster") -> None:
        for pod in cluster.pods(namespace=self.namespace, workload=self.workload, node=self.node):
            if pod["status"]["phase"] == "Running":
                cluster.end_containers(self.namespace, pod["metadata"]["name"], self.how)


class AddNode(_Step, frozen=True, kw_only=True, tag="add-node"):
    node: NodeSpec

    def run(self, cluster: "Cluster") -> None:
        cluster.add_node(self.node)


class RemoveNode(_Step, frozen=True, kw_only=True, tag="remove-node"):
    node: str

    def run(self, cluster: "Cluster") -> None:
        cluster.remove_node(self.node)


class AddWorkload(_Step, frozen=True, kw_only=True, tag="add-workload"):
    workload: WorkloadSpec

    def run(self, cluster: "Cluster") -> None:
        cluster.add_workload(self.workload)


Step = (
    Cordon | Uncordon | Taint | Untaint | LabelNode | LabelPods | EndContainers | AddNode | RemoveNode | AddWorkload
)  # fmt: skip
