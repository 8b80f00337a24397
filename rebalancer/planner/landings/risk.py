"""How likely a plan's landings may be to end on a node that must not take them."""

from typing import NamedTuple

MAX_RISK = 0.01
"""Probability of a landing that doesn't hold."""

MAX_NODE_RISK = 0.03
"""The same of all landings of a plan on one node: the sum, which is more than the probability that any doesn't hold."""

SIMULATED_RISK = 0.3
"""Share of MAX_NODE_RISK that a simulation allows, and of MAX_RISK twice as much: the soft taints that it chooses later
change earlier landings a little."""

UNTAINTED_RISK = 0.1
"""Share of MAX_RISK that soft taints may leave: the more barring nodes are left out, the fewer taints."""


class AllowedRisk(NamedTuple):
    """What a plan allows."""

    landing: float
    """Of MAX_RISK."""
    node: float
    """Of MAX_NODE_RISK."""

    @classmethod
    def of(cls, *, simulated: bool) -> "AllowedRisk":
        """Of a simulation, or of the plan that is carried out."""
        if simulated:
            return cls(2 * SIMULATED_RISK * MAX_RISK, SIMULATED_RISK * MAX_NODE_RISK)
        return cls(MAX_RISK, MAX_NODE_RISK)
