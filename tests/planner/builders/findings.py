"""Findings made by hand, and the plans that come of them: no strategy has to be there for that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Evenness, Finding, Goal, LandingRule, Loads
from rebalancer.planner import PlanInput, Planner, PlanProgress
from rebalancer.planner.candidates.jobs import Job
from rebalancer.planner.landings.landings import Landings
from rebalancer.planner.landings.soft_taints import SoftTaintBudget
from rebalancer.planner.plan.state import PlanState
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings
from tests.builders import ANode, APod, a_door, a_model, a_policy, cluster, planner_for, pool_names, usage_of, view_of
from tests.planner.builders.plans import ANY_REPLICAS

STRATEGY = "Tidy"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A cluster with its usage and policy, and a few words to make findings and plans of it."""

    nodes: Sequence[ANode]
    pods: Sequence[APod]
    policy: RebalancerPolicy
    snapshot: ClusterSnapshot
    usage: Any

    @property
    def base(self) -> Loads:
        return view_of(self.snapshot, self.usage, self.policy).base

    def mask(self, *names: str) -> NDArray[np.bool_]:
        """(nodes,) these."""
        return np.array([name in names for name in self.snapshot.nodes.names], dtype=np.bool_)

    def even(self, domain_of: Mapping[str, int], count: Sequence[float], skew: int = 1) -> Evenness:
        """`domain_of` node; one that isn't named has none."""
        domain = np.array([domain_of.get(name, -1) for name in self.snapshot.nodes.names], dtype=np.int32)
        return Evenness(domain=domain, count=np.array(count, dtype=float), skew=skew)

    def finding(self, node: str, *pods: str, goal: Goal = Goal.REMOVE, rule: Any = None, **fields: Any) -> Finding:
        """The candidates are these pods in this order; all of the node's when none is named."""
        index = self.snapshot.node_index[node]
        names = self.snapshot.pods.names
        candidates = [names.index(pod) for pod in pods] if pods else self.snapshot.pods_on(index).tolist()
        return Finding(
            strategy=STRATEGY,
            node=index,
            pool="general",
            reason=f"{node} is untidy",
            candidates=np.array(candidates, dtype=np.int32),
            goal=goal,
            landing=LandingRule(**(rule or {})),
            **fields,
        )

    def planner(
        self,
        *findings: Finding,
        loads: Loads | None = None,
        empty_at_most: int | None = None,
        base: bool = True,
        found: Sequence[Findings] | None = None,
        **options: Any,
    ) -> Planner:
        """Before its first move. `found` instead of `findings`."""
        findings_of = [Findings(findings=findings, loads=loads, empty_at_most=empty_at_most)]
        return planner_for(
            self.snapshot,
            self.usage,
            self.policy,
            found=findings_of if found is None else found,
            base=self.base if base else None,
            reserve=None,
            **options,
        )

    def state(self, *findings: Finding, cools: bool = False, progress: PlanProgress | None = None) -> PlanState:
        """Of a plan, with nothing counted but the progress. `cools`: the findings' strategy balances real CPU."""
        loads = self.base if cools else None
        plan_input = PlanInput(
            snapshot=self.snapshot,
            found=[Findings(findings=findings, loads=loads)],
            cpu_millicores=self.usage.pod_cpu_millicores,
            pools=pool_names(self.snapshot, self.policy),
            base=self.base,
        )
        model = a_model(self.snapshot, found=plan_input.found)
        landings = Landings(snapshot=self.snapshot, model=model, found=plan_input.found, base=self.base, steering=None)
        return PlanState(plan_input, a_door(self.snapshot, self.policy), landings, progress or PlanProgress())

    def job(self, state: PlanState, at: int = 0, **fields: Any) -> Job:
        """One finding of the state's in progress, with all its candidates."""
        finding = state.input.found[0].findings[at]
        left = [self.snapshot.pod(index) for index in finding.candidates.tolist()]
        return Job(finding=finding, headroom=state.landings.headrooms[0], left=left, **fields)

    def plan(self, *findings: Finding, steering: int | None = None, **options: Any) -> "Plan":
        """Carry out everything. `steering`: a simulation that may steer away from so many nodes."""
        budget = None
        if steering is not None:
            size = len(self.snapshot.nodes)
            none = np.zeros(size, dtype=np.bool_)
            budget = SoftTaintBudget(pool_of=np.zeros(size, dtype=np.int32), left=[steering], hot=none)
            options = {"soft_tainted": none, **options}
        return Plan(self.planner(*findings, steering=budget, **options), self.snapshot, budget)

    def simulated(self, *findings: Finding, steering: int = 2, **options: Any) -> tuple["Plan", "Plan"]:
        """The simulation, and the plan with the taints and cordons that it asks for; cordons that are there stay."""
        before = options.pop("cordoned", np.zeros(len(self.snapshot.nodes), dtype=np.bool_))
        simulation = self.plan(*findings, steering=steering, cordoned=before, **options)
        assert simulation.budget is not None
        real = self.plan(
            *findings, soft_tainted=simulation.budget.mask, cordoned=before | simulation.planner.cordoned, **options
        )
        return simulation, real


class Plan:
    """A plan carried to its end."""

    def __init__(self, planner: Planner, snapshot: ClusterSnapshot, budget: SoftTaintBudget | None) -> None:
        self.planner, self.snapshot, self.budget = planner, snapshot, budget
        self.moves: list[Eviction] = []
        while (move := planner.next_move()) is not None:
            if (refusal := planner.admission.reserve(move)) is not None:
                planner.reject(move, refusal)
                continue
            planner.accept(move)
            self.moves.append(move)
        self.refused = {each.name: each for each in planner.outcome.refusals()}

    @property
    def pods(self) -> list[str]:
        return [move.pod for move in self.moves]

    @property
    def landings(self) -> dict[str, set[str]]:
        """Pod -> where it may land."""
        return {move.pod: {each.node for each in move.target_nodes} for move in self.moves}

    @property
    def codes(self) -> dict[str, str]:
        return {name: str(each.code) for name, each in self.refused.items()}

    @property
    def cordoned(self) -> list[str]:
        """By the planner's word."""
        return [self.snapshot.nodes.names[node] for node in np.flatnonzero(self.planner.cordoned)]


def scene(
    nodes: Sequence[ANode], pods: Sequence[APod], policy: Mapping[str, Any] | None = None, **fields: Any
) -> Scene:
    """`policy` replaces whole sections; `fields` are the cluster's. By default a service's only pod may move."""
    snapshot = cluster(nodes, pods, **fields)
    return Scene(
        nodes=nodes,
        pods=pods,
        policy=a_policy(**(ANY_REPLICAS | dict(policy or {}))),
        snapshot=snapshot,
        usage=usage_of(snapshot, nodes, pods),
    )
