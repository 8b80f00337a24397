"""Our cordons while a plan runs.

Strategies request them (`Findings.cordons`). A node on which draining hasn't begun is cordoned when the simulation can
empty it. Cordons that no strategy requests are lifted. In a cycle that is stopped, cordons for maintenance stay, and
those of a drain until `softTaint.maxAge`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.soft_taints import our_cordons
from rebalancer.model.cluster.steering import DRAINING, MAINTENANCE
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.notation.arrays import Bools
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonRequests:
    """The strategies' requests."""

    sure: dict[str, str]
    """Node -> value, whatever the result of the simulation."""
    drained: dict[str, str]
    """The same for nodes that are being drained: only while the simulation can empty them."""
    value_of: dict[str, str]
    """Node whose draining may begin or continue -> value of its cordon."""


def cordon_requests(seen: Observation, found: Sequence[Findings]) -> CordonRequests:
    """The requests in all findings. Nodes that others have cordoned are left out."""
    names, others = seen.snapshot.nodes.names, cordoned_by_others(seen)
    value_of: dict[str, str] = {}
    requested: dict[str, str] = {}
    for findings in found:
        for finding in findings.findings:
            if finding.goal is Goal.EMPTY and not others[finding.node]:
                _request(value_of, names[finding.node], findings.cordons.get(finding.node, DRAINING))
        for node, value in findings.cordons.items():
            if not others[node]:
                _request(requested, names[node], value)
    drained = {name: value for name, value in requested.items() if value == DRAINING and name in value_of}
    return CordonRequests(
        sure={name: value for name, value in requested.items() if name not in drained},
        drained=drained,
        value_of=value_of,
    )


def _request(requested: dict[str, str], name: str, value: str) -> None:
    """Of two requests the one that lasts longer counts."""
    if requested.get(name) != MAINTENANCE:
        requested[name] = value


def lasting(seen: Observation, policy: RebalancerPolicy) -> dict[str, str]:
    """Node -> value of our cordons that stay in a cycle that is stopped."""
    return {
        name: value
        for name, (value, since) in our_cordons(seen.snapshot).items()
        if value == MAINTENANCE or seen.now - since <= policy.soft_taint.max_age
    }


def cordoned_by_others(seen: Observation) -> Bools:
    """(nodes,) unschedulable without our taint."""
    out: Bools = seen.snapshot.nodes.unschedulable & ~mask(seen, our_cordons(seen.snapshot))
    return out


def mask(seen: Observation, names: Iterable[str]) -> Bools:
    """(nodes,) True for these names."""
    index = seen.snapshot.node_index
    chosen = np.zeros(len(seen.snapshot.nodes), dtype=np.bool_)
    chosen[[index[name] for name in names if name in index]] = True
    return chosen
