"""One plan after the other, carried out: cycles of the product over a cluster that moves its pods.

A round is a periodic cycle, with its waits, and the time until the next period.
"""

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.plan.bound import lower_bound
from bench.plan.cluster import Cluster
from bench.plan.families import Family, policy_of
from bench.plan.ports import ClusterPorts, context_over
from rebalancer.cycle.run import run_cycle
from rebalancer.model.decisions.plan import CycleReport

PERIOD_SECONDS = 360.0
"""From one periodic cycle to the next: a rate window has passed, so that nothing is settling."""


@dataclass(slots=True, kw_only=True)
class Result:
    """One cluster after its rounds. All but the texts are counts."""

    family: str
    seed: int
    hot: int = 0
    coolable: int = 0
    cooled: int = 0
    """Coolable nodes at or under their target, or under `high` by `Family.until_target`."""
    no_longer_hot: int = 0
    """Coolable nodes at or under `high`."""
    evictions: int = 0
    bound: int = 0
    """Least evictions for the nodes that became cool."""
    bound_of_all: int = 0
    """Least evictions for all coolable nodes."""
    landings: int = 0
    returned: int = 0
    over_target: int = 0
    made_hot: int = 0
    pending: int = 0
    """Replacements that found no node."""
    cycles: int = 0
    cpu_seconds: float = 0.0
    """Of all cycles, observing and recording included."""
    left: list[str] = field(default_factory=list)
    """A line for each coolable node that was not cooled."""


def carry_out(name: str, family: Family, seed: int) -> Result:
    """Cycles until every node is cool, or the rounds are over."""
    cluster = family.make(seed)
    policy = policy_of(family, cluster)
    ports = ClusterPorts(cluster)
    bound = lower_bound(cluster)
    result = Result(family=name, seed=seed, hot=int(bound.hot.sum()), coolable=int(bound.coolable.sum()))
    reports: list[CycleReport] = []
    with context_over(ports, policy) as context:
        for _ in range(family.rounds):
            end = cluster.now + PERIOD_SECONDS
            began = time.process_time()
            report = run_cycle(context, policy, dry_run=False).report
            result.cpu_seconds += time.process_time() - began
            reports.append(report)
            if report.stopped is not None:
                raise RuntimeError(report.stopped.message)
            cluster.advance(max(end - cluster.now, 0.0))
            if not (bound.coolable & ~_cooled(family, cluster)).any() and not cluster.in_flight():
                break
    cooled = bound.coolable & _cooled(family, cluster)
    result.cooled = int(cooled.sum())
    result.no_longer_hot = int((bound.coolable & ~cluster.hot).sum())
    result.bound, result.bound_of_all = int(bound.fewest[cooled].sum()), int(bound.fewest[bound.coolable].sum())
    result.evictions = cluster.evictions
    result.landings, result.returned = cluster.landings.placed, cluster.landings.returned
    result.over_target, result.made_hot = cluster.landings.over_target, len(cluster.landings.made_hot)
    result.pending = int((cluster.alive & (cluster.left_node >= 0) & (cluster.node < 0)).sum())
    result.cycles = len(reports)
    result.left = _why_left(ports, reports, np.flatnonzero(bound.coolable & ~cooled).tolist())
    return result


def _cooled(family: Family, cluster: Cluster) -> NDArray[np.bool_]:
    """(nodes,)"""
    return cluster.cooled if family.until_target else ~cluster.hot


def _why_left(ports: ClusterPorts, reports: list[CycleReport], nodes: list[int]) -> list[str]:
    """For each node its load and the codes that its pods were refused with when it was last found, the commonest
    first."""
    cluster, names = ports.cluster, ports.node_names
    codes: dict[str, Counter[str]] = {}
    for report in reports:
        last: dict[str, Counter[str]] = {}
        for refusal in report.refusals:
            if refusal.name:  # of a pod, not of the node itself
                last.setdefault(refusal.node, Counter())[str(refusal.code)] += 1
        codes |= last
    share = cluster.load / cluster.machines.cpu_capacity
    return [
        f"{names[node]} at {share[node]:.1%}: "
        + (
            ", ".join(f"{code} {count}" for code, count in codes.get(names[node], Counter()).most_common(3))
            or "never found"
        )
        for node in nodes
    ]
