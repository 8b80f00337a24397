"""Searches for the best plan of a cluster, as a cycle makes them: one placement model, one budget of soft taints."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import LedgerState
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.usage import Usage
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner import Choice, PlanInput, Planner, PlanningTime
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.search import Simulated, search
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.limits import resolve
from rebalancer.strategies import Findings
from tests.builders import ANode, APod, a_door, a_model, a_policy, cluster, found_in, pool_names, usage_of, view_of
from tests.planner.builders.plans import ANY_REPLICAS

PATIENCE = 120.0
URGENT = 0.95
"""Both as by default."""


class Watched(Planner):
    """A planner that remembers when its replacements landed."""

    resumed: Sequence[int] = ()
    """How many moves had been made at each wait that ended with replacements."""

    def resume(self, landed: Collection[Eviction], *, now: float = 0.0, counts: bool = True) -> None:
        if landed:
            self.resumed = (*self.resumed, len(self.state.planned))
        super().resume(landed, now=now, counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best plan, with what it counted when it was found."""

    plan: Simulated
    taints: dict[int, str]

    @property
    def moves(self) -> tuple[Eviction, ...]:
        return self.plan.moves

    @property
    def resumed(self) -> Sequence[int]:
        """As in `Watched`."""
        assert isinstance(self.plan.planner, Watched)
        return self.plan.planner.resumed

    @property
    def pods(self) -> list[str]:
        return [move.pod for move in self.moves]

    @property
    def waits(self) -> dict[str, str]:
        """Pod -> what its move waits for."""
        return {move.pod: move.waits_for for move in self.moves if move.waits_for}


@dataclass(kw_only=True)
class Searched:
    """A cluster before its search."""

    snapshot: ClusterSnapshot
    usage: Usage
    policy: RebalancerPolicy
    found: list[Findings]
    steers: bool = True
    young_seconds: float = 300.0
    closed: NDArray[np.bool_] | None = None
    recent: Sequence[Eviction] = ()
    standing: LedgerState | None = None
    _model: PlacementModel | None = field(default=None, init=False)

    @cached_property
    def budget(self) -> SoftTaintBudget:
        """What the policy allows in each pool."""
        pool_of = NodePools.of(self.policy.pools, self.snapshot.nodes).of_node
        sizes = np.bincount(pool_of[pool_of >= 0], minlength=len(self.policy.pools)).tolist()
        limits = self.policy.soft_taint
        base = self.view.base
        return SoftTaintBudget(
            pool_of=pool_of,
            left=[resolve(limits.max_nodes, size, limits.max_nodes_at_least) if self.steers else 0 for size in sizes],
            hot=base.hot,
        )

    @property
    def view(self) -> Any:
        return view_of(self.snapshot, self.usage, self.policy, recent=self.recent)

    def planner(
        self,
        choice: Choice,
        *,
        patience: float = PATIENCE,
        simulation: bool = True,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> Watched:
        """Undoes what an earlier planner counted."""
        none = np.zeros(len(self.snapshot.nodes), dtype=np.bool_)
        self.budget.start_over()
        if self._model is None:
            self._model = a_model(
                self.snapshot, found=self.found, soft_tainted=none, closed=self.closed, young_seconds=self.young_seconds
            )
        else:
            self._model.start_over(soft_tainted=none, closed=self.closed)
        share = self.usage.node_cpu_millicores / self.snapshot.nodes.cpu_capacity_millicores
        plan_input = PlanInput(
            snapshot=self.snapshot,
            found=self.found,
            cpu_millicores=self.usage.pod_cpu_millicores,
            pools=pool_names(self.snapshot, self.policy),
            base=self.view.base,
            urgent=np.nan_to_num(share) >= URGENT,
        )
        return Watched(
            plan_input,
            placement=self._model,
            admission=a_door(self.snapshot, self.policy, self.standing),
            steering=self.budget if simulation and self.steers else None,
            time=PlanningTime(spent=out_of_time),
            patience=patience,
            choice=choice,
        )

    def best(self, *, patience: float = PATIENCE, out_of_time: Callable[[], bool] = lambda: False) -> Found:
        """The last of the plans that the search gives."""
        return self.plans(patience=patience, out_of_time=out_of_time)[-1]

    def plans(self, *, patience: float = PATIENCE, out_of_time: Callable[[], bool] = lambda: False) -> list[Found]:
        """All of them, each better than the one before."""
        found = search(
            lambda choice: self.planner(choice, patience=patience, out_of_time=out_of_time),
            out_of_time,
            patient=patience > 0,
        )
        return [Found(plan=each, taints=dict(self.budget.chosen)) for each in found]

    def followed(self, plan: Simulated, *, patience: float = PATIENCE) -> Watched:
        """The planner of the real run: nothing is tainted but by the moves of the plan."""
        return self.planner(plan.followed, patience=patience, simulation=False)


def searched(
    nodes: Sequence[ANode],
    pods: Sequence[APod],
    *,
    policy: RebalancerPolicy | None = None,
    budgets: Collection[DisruptionBudget] = (),
    recent: Sequence[Eviction] = (),
    steers: bool = True,
    standing: LedgerState | None = None,
    usage: dict[str, Any] | None = None,
    **fields: Any,
) -> Searched:
    """`fields` are the cluster's; by default a service's only pod may move."""
    policy = policy or a_policy(**ANY_REPLICAS)
    snapshot = cluster(nodes, pods, budgets=list(budgets), **fields)
    measured = usage_of(snapshot, nodes, pods, **(usage or {}))
    return Searched(
        snapshot=snapshot,
        usage=measured,
        policy=policy,
        found=found_in(snapshot, measured, policy, recent),
        recent=recent,
        steers=steers,
        standing=standing,
    )
