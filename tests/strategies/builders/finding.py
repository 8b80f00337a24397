"""Ask one strategy what it finds, in a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.constraints.admission import LedgerState
from rebalancer.cycle.observe.observation import Observation
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Finding
from rebalancer.strategies import Findings, StrategyView
from tests.builders import NOW, ANode, APod, a_policy, cluster, found_in, usage_of


def strategy_policy(name: str, args: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    """A policy with this strategy alone."""
    return a_policy(strategies=[{"name": name, "args": dict(args or {})}], **fields)


def found_by(
    name: str, nodes: Sequence[ANode], pods: Sequence[APod], args: Mapping[str, Any] | None = None, **fields: Any
) -> tuple[Findings, ClusterSnapshot]:
    """What the strategy finds in a cluster; `fields` are the cluster's."""
    made = cluster(nodes, pods, **fields)
    return found_in(made, usage_of(made, nodes, pods), strategy_policy(name, args))[0], made


def names_of(finding: Finding, snapshot: ClusterSnapshot) -> list[str]:
    """The candidates' names, in order."""
    return [snapshot.pods.names[pod] for pod in finding.candidates.tolist()]


def observation_of(view: StrategyView, *, now: float = NOW) -> Observation:
    """What a cycle has observed, where nothing has happened yet."""
    seen = {"snapshot": view.snapshot, "usage": view.usage, "node_pools": view.node_pools, "cpu": view.cpu}
    seen |= {"projection": view.projection}
    return Observation(**seen, loads=view.base, recent=(), ledger_state=LedgerState(), now=now)


def pods_found(found: Findings, snapshot: ClusterSnapshot) -> list[str]:
    """The names of all candidates, in order."""
    return [name for finding in found.findings for name in names_of(finding, snapshot)]
