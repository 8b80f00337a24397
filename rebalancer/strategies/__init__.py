"""One file a strategy: snapshot and usage to findings. A strategy never evicts, counts or asks about limits."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rebalancer.strategies import (
    failed_pods,
    high_node_utilization,
    inter_pod_anti_affinity,
    interference,
    low_node_utilization,
    node_affinity,
    node_maintenance,
    node_taints,
    pod_life_time,
    remove_duplicates,
    service_spread,
    too_many_restarts,
    topology_spread,
)
from rebalancer.strategies.view import Findings, StrategyView

Find = Callable[[StrategyView], Findings]

STRATEGIES: Mapping[str, Find] = MappingProxyType(
    {
        low_node_utilization.NAME: low_node_utilization.find,
        high_node_utilization.NAME: high_node_utilization.find,
        remove_duplicates.NAME: remove_duplicates.find,
        inter_pod_anti_affinity.NAME: inter_pod_anti_affinity.find,
        node_affinity.NAME: node_affinity.find,
        node_maintenance.NAME: node_maintenance.find,
        node_taints.NAME: node_taints.find,
        topology_spread.NAME: topology_spread.find,
        too_many_restarts.NAME: too_many_restarts.find,
        pod_life_time.NAME: pod_life_time.find,
        failed_pods.NAME: failed_pods.find,
        service_spread.NAME: service_spread.find,
        interference.NAME: interference.find,
    }
)

__all__ = ["STRATEGIES", "Find", "Findings", "StrategyView"]
