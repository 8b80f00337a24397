"""What pods request, what is requested on nodes, and what nodes have."""

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Floats
from rebalancer.placement.cluster.kinds import POD_COUNT


class Requests:
    """See the module; in millicores, bytes, pods and pieces. A column is made when it is read first."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._amounts: dict[str, Floats] = {}

    def of(self, pod: int) -> dict[str, float]:
        """Resource -> what a pod requests; those that it requests nothing of are left out."""
        pods, template = self._snapshot.pods, self._snapshot.pod_templates[int(self._snapshot.pods.template[pod])]
        plain = {"cpu": pods.cpu_request_millicores[pod], "memory": pods.memory_request_bytes[pod], POD_COUNT: 1.0}
        asked = {**plain, **template.extended_requests}
        return {name: float(amount) for name, amount in asked.items() if amount > 0}

    def allocatable(self, resource: str) -> Floats:
        """(nodes,)"""
        nodes = self._snapshot.nodes
        plain = {
            "cpu": nodes.cpu_allocatable_millicores,
            "memory": nodes.memory_allocatable_bytes,
            POD_COUNT: nodes.pods_allocatable,
        }
        if resource in plain:
            return plain[resource]
        return np.fromiter((each.get(resource, 0.0) for each in nodes.extended), np.float64, len(nodes))

    def amount(self, resource: str) -> Floats:
        """(pods,) what each requests. Of an extended resource only pods on nodes that have it."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        plain = {"cpu": pods.cpu_request_millicores, "memory": pods.memory_request_bytes}
        if resource in plain:
            return plain[resource]
        if resource == POD_COUNT:
            return np.ones(len(pods))
        if resource not in self._amounts:
            out = self._amounts[resource] = np.zeros(len(pods))
            has = np.append(self.allocatable(resource) > 0, False)  # -1, on no node, selects the last
            there = np.flatnonzero(snapshot.active & has[pods.node])
            for template in np.unique(pods.template[there]).tolist():
                asked = snapshot.pod_templates[template].extended_requests.get(resource, 0.0)
                out[there[pods.template[there] == template]] = asked
        return self._amounts[resource]

    def on_nodes(self, resource: str, *, staying: bool = False) -> Floats:
        """(nodes,) what the pods there request; with `staying` without the terminating ones."""
        amounts = self.amount(resource)
        return self._snapshot.per_node(np.where(self._snapshot.pods.terminating, 0.0, amounts) if staying else amounts)
