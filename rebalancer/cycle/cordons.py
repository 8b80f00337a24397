"""Which nodes shall be cordoned by us while a plan runs.

A strategy says which cordons it needs (`Findings.cordons`); a node that is only to be begun with is cordoned when the
rehearsal says that it can be emptied. What nobody asks for is lifted. Where nothing may be decided (metrics that can't
be trusted, say) nobody can ask: then a cordon for maintenance stays, and that of a drain until it is too old.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.cycle.observation import Observation
from rebalancer.cycle.steering import our_cordons
from rebalancer.model.plan import Goal
from rebalancer.model.steering import DRAINING, MAINTENANCE
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonRequests:
    """What the strategies ask for."""

    sure: dict[str, str]
    """Node -> value, whatever the rehearsal says."""
    drained: dict[str, str]
    """The same of nodes that are being drained: only as long as the rehearsal still says that it can be done."""
    value_of: dict[str, str]
    """Node that may be begun with, or gone on with -> value of its cordon."""


def asked(seen: Observation, found: Sequence[Findings]) -> CordonRequests:
    """Read it from all findings. Nodes that somebody else has cordoned are not ours to mark."""
    names, theirs = seen.snapshot.nodes.names, cordoned_by_others(seen)
    value_of: dict[str, str] = {}
    wanted: dict[str, str] = {}
    for findings in found:
        for finding in findings.findings:
            if finding.goal is Goal.EMPTY and not theirs[finding.node]:
                _want(value_of, names[finding.node], findings.cordons.get(finding.node, DRAINING))
        for node, value in findings.cordons.items():
            if not theirs[node]:
                _want(wanted, names[node], value)
    drained = {name: value for name, value in wanted.items() if value == DRAINING and name in value_of}
    return CordonRequests(
        sure={name: value for name, value in wanted.items() if name not in drained}, drained=drained, value_of=value_of
    )


def _want(wanted: dict[str, str], name: str, value: str) -> None:
    """The one that lasts longer counts."""
    if wanted.get(name) != MAINTENANCE:
        wanted[name] = value


def lasting(seen: Observation, policy: RebalancerPolicy) -> dict[str, str]:
    """Node -> value of our cordons that stay where no strategy could be asked."""
    return {
        name: value
        for name, (value, since) in our_cordons(seen.snapshot).items()
        if value == MAINTENANCE or seen.now - since <= policy.soft_taint.max_age
    }


def cordoned_by_others(seen: Observation) -> Bools:
    """(nodes,) unschedulable without our mark."""
    out: Bools = seen.snapshot.nodes.unschedulable & ~mask(seen, our_cordons(seen.snapshot))
    return out


def mask(seen: Observation, names: Iterable[str]) -> Bools:
    """(nodes,) those with these names."""
    chosen = set(names)
    return np.fromiter((name in chosen for name in seen.snapshot.nodes.names), np.bool_, len(seen.snapshot.nodes))
