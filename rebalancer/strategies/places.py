"""Which nodes are places for new pods, by what their template asks for."""

from rebalancer.model.objects import PodTemplate
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.placement.filters import StaticFilter, leaving
from rebalancer.placement.nodes import Bools, NodeTable


class Places:
    """Nodes that let pods of a template in, however full they are."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        nodes = snapshot.nodes
        self.rules = StaticFilter(nodes, NodeTable(nodes), nodes.taints)
        self._open = nodes.ready & ~nodes.unschedulable & ~leaving(nodes)
        self._masks: dict[tuple[int, int], Bools] = {}

    def of(self, template: PodTemplate) -> Bools:
        """(nodes,) Ready, not cordoned, not leaving, and let in by node affinity and hard taints. Templates with the
        same rules share one mask."""
        fits, tolerated = self.rules.node_affinity(template), self.rules.tolerated(template.tolerations)
        key = (id(fits), id(tolerated))  # the filter keeps its masks
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = self._open & fits & tolerated
        return mask
