"""Ask the strategies that empty nodes what they find, with cordons, peaks and earlier moves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.peaks import Peaks
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings, strategy_for
from tests.builders import NOW, ANode, APod, a_policy, carry_out, cluster, planner_for, replicas, usage_of, view_of
from tests.strategies.builders.finding import names_of

DAY = 86_400.0


def pods_on(**counts: int) -> list[APod]:
    """So many pods of a service of its own on each node."""
    return [pod for node, count in counts.items() for pod in replicas(f"on-{node}", {node: count}, used=100.0)]


def hoarders(node: str, count: int = 14, **fields: Any) -> list[APod]:
    """Old pods of 1,000 millicores that use 100: 14 of them make a node full (87.5%) and idle (8.75%)."""
    return replicas(f"old-{node}", {node: count}, **{"cpu": 1_000, "used": 100.0, "age": 60 * DAY, **fields})


class Found:
    """Findings by the names of nodes and pods."""

    def __init__(self, findings: Findings, snapshot: ClusterSnapshot) -> None:
        self.findings, self.snapshot = findings, snapshot

    @property
    def nodes(self) -> list[str]:
        return [self.snapshot.nodes.names[each.node] for each in self.findings.findings]

    def pods(self, node: str) -> list[str]:
        (finding,) = (each for each in self.findings.findings if self.snapshot.nodes.names[each.node] == node)
        return names_of(finding, self.snapshot)

    def landings(self, node: str) -> list[str]:
        """Where the node's pods may land, by the finding."""
        (finding,) = (each for each in self.findings.findings if self.snapshot.nodes.names[each.node] == node)
        assert finding.landing.only is not None
        return sorted(self.snapshot.nodes.names[index] for index in np.flatnonzero(finding.landing.only))

    @property
    def cordons(self) -> dict[str, str]:
        return {self.snapshot.nodes.names[node]: value for node, value in self.findings.cordons.items()}

    @property
    def skipped(self) -> dict[str, str]:
        return {self.snapshot.nodes.names[node]: refusal.message for node, refusal in self.findings.skipped.items()}


def found_in_view(
    name: str,
    nodes: Sequence[ANode],
    pods: Sequence[APod],
    args: Mapping[str, Any] | None = None,
    *,
    cordons: Mapping[str, tuple[str, float]] | None = None,
    only: Sequence[str] | None = None,
    recent: Sequence[Eviction] = (),
    peaks: Mapping[str, float] | None = None,
    usage: Mapping[str, Any] | None = None,
    in_pools: Sequence[str] | None = None,
    **policy: Any,
) -> Found:
    """`cordons` by node: why, and how many seconds ago. `peaks` are nodes' expected millicores."""
    strategy = {"name": name, "args": dict(args or {})} | ({} if in_pools is None else {"pools": list(in_pools)})
    made, wording = cluster(nodes, pods), a_policy(strategies=[strategy], **policy)
    index = made.node_index
    view = view_of(
        made,
        usage_of(made, nodes, pods, **(usage or {})),
        wording,
        recent=recent,
        only=None if only is None else frozenset(index[each] for each in only),
        cordons={index[node]: (why, NOW - ago) for node, (why, ago) in (cordons or {}).items()},
        peaks=None if peaks is None else peaks_of(made, peaks),
    )
    return Found(strategy_for(view.strategy)(view), made)


def peaks_of(made: ClusterSnapshot, nodes: Mapping[str, float]) -> Peaks:
    """Nodes' peaks; a pod brings as much at the peak as it requests."""
    node = np.array([nodes.get(name, np.nan) for name in made.nodes.names])
    return Peaks(
        made_at=NOW,
        starts_at=NOW,
        expected=np.repeat(node[:, None], 2, axis=1).astype(np.float32),
        node_millicores=node,
        node_at=np.full(len(node), NOW + 3_600.0),
        relief_millicores=made.pods.cpu_request_millicores,
        pod_millicores=made.pods.cpu_request_millicores,
    )


class Plan:
    """A simulation, as the daemon does it, and then the plan with the taints and cordons that it asks for."""

    def __init__(
        self,
        nodes: Sequence[ANode],
        pods: Sequence[APod],
        policy: RebalancerPolicy,
        *,
        steered_at_most: int = 1,
        usage: Mapping[str, Any] | None = None,
        peaks: Callable[[ClusterSnapshot], Peaks] | None = None,
        **fields: Any,
    ) -> None:
        """`steered_at_most` nodes of each pool; `fields` are the cluster's."""
        made = cluster(nodes, pods, **fields)
        measured = usage_of(made, nodes, pods, **(usage or {}))
        view = view_of(made, measured, policy, peaks=None if peaks is None else peaks(made))
        found = [strategy_for(view.strategy)(view)]
        base, pool_of = view.base, view.node_pools.of_node
        budget = SoftTaintBudget(
            pool_of=np.where(made.nodes.unschedulable, -1, pool_of),
            left=[steered_at_most] * len(policy.pools),
            hot=np.zeros(len(nodes), dtype=np.bool_),
        )
        theirs = made.nodes.unschedulable
        simulation = planner_for(
            made, measured, policy, found=found, base=base, soft_tainted=budget.mask, cordoned=theirs, steering=budget
        )
        self.simulated = carry_out(simulation, made)
        cordoned = simulation.cordoned
        planner = planner_for(
            made,
            measured,
            policy,
            found=found,
            base=base,
            soft_tainted=budget.mask | cordoned,
            cordoned=theirs | cordoned,
        )
        self.snapshot = made
        self.outcome = carry_out(planner, made)
        self.refusals = {each.name: each.message for each in planner.outcome.refusals()}
        self.cordoned = sorted(made.nodes.names[node] for node in np.flatnonzero(cordoned))

    @property
    def pods(self) -> list[str]:
        return sorted(self.outcome.pods)

    def most_cpu(self, before: Mapping[str, float]) -> dict[str, float]:
        """Node -> millicores after the plan, in all but one of a hundred courses of the draws. `before`: node ->
        millicores."""
        names, placed = self.snapshot.nodes.names, self.outcome.planner.outcome
        loads = np.array([before[name] for name in names])
        _, most = placed.planned_cpu(loads, self.outcome.accepted)
        return dict(zip(names, most.tolist(), strict=True))

    @property
    def moves(self) -> list[tuple[str, str, str]]:
        """(pod, from, likeliest landing)"""
        return self.outcome.moves
