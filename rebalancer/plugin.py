"""Public names for strategies of other packages; those for their tests are in `rebalancer.testing`. Every other module
may change between minor versions.

`docs/contributing/add-a-strategy.md` shows a strategy that uses them.
"""

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.pods import Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Evenness, Finding, Goal, LandingRule, Loads
from rebalancer.model.measured.usage import Usage
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.strategies.base import Need, PodArgs
from rebalancer.policy.schema.types import Count, Duration, NonEmpty, Percent, Section
from rebalancer.strategies.interface.selection import (
    cheapest_first,
    chosen_pods,
    nodes_in_scope,
    one_pod,
    pods_in_scope,
    some_pods,
)
from rebalancer.strategies.interface.view import Findings, StrategyView

__all__ = [
    "ClusterSnapshot",
    "Count",
    "Duration",
    "Evenness",
    "Finding",
    "Findings",
    "Goal",
    "LandingRule",
    "Loads",
    "Need",
    "Nodes",
    "NonEmpty",
    "Percent",
    "PodArgs",
    "Pods",
    "Reason",
    "Refusal",
    "Section",
    "StrategyView",
    "Usage",
    "cheapest_first",
    "chosen_pods",
    "nodes_in_scope",
    "one_pod",
    "pods_in_scope",
    "some_pods",
]
