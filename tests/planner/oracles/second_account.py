"""A plan told step by step, with loads and requests kept by a second account."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import PodRefusal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.strategies import Findings
from tests.builders import cluster, found_in, planner_for, usage_of
from tests.planner.scenarios.described_clusters import LOCAL_CLAIMS, WINDOW, World


@dataclass(kw_only=True)
class Step:
    """One accepted move."""

    move: Eviction
    loads: dict[str, float]
    """By this file's own account just before it: less what has left, without what has landed."""
    landings: list[str]


@dataclass(kw_only=True)
class Story:
    steps: list[Step]
    planned: dict[str, float]
    """The planner's own account at the end."""
    rejected: list[str]
    refusals: list[PodRefusal]
    found: list[Findings]
    snapshot: ClusterSnapshot

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes, by their index."""
        return self.snapshot.nodes.names

    @property
    def told(self) -> Any:
        """All of it under names, comparable between listings."""
        return (
            [
                (s.move.namespace, s.move.pod, s.move.node, s.landings, s.move.reason, str(s.move.service))
                for s in self.steps
            ],
            self.rejected,
            [(each.node, each.namespace, each.name, each.code, each.message) for each in self.refusals],
            [
                (self.snapshot.nodes.names[f.node], f.pool, f.reason, round(f.cpu_share, 9))
                for findings in self.found
                for f in findings.findings
            ],
        )


def tell(world: World, shuffled: random.Random | None = None) -> Story:
    """Plan a world to its end, as a cycle does; `shuffled` lists everything in another order."""
    nodes, pods = list(world.nodes), list(world.pods)
    owners, budgets = list(world.owners.values()), list(world.budgets)
    if shuffled is not None:
        for each in (nodes, pods, owners, budgets):
            shuffled.shuffle(each)
    snapshot = cluster(nodes, pods, owners=owners, budgets=budgets, local_claims=LOCAL_CLAIMS)
    problems = {
        index: Refusal.of(Reason.NO_SAMPLE)
        for index, node in enumerate(nodes)
        if node.used is not None and np.isnan(node.used)
    }
    usage = usage_of(snapshot, nodes, pods, window=WINDOW, problems=problems)
    found = found_in(snapshot, usage, world.policy, world.recent)
    planner = planner_for(snapshot, usage, world.policy, world.recent)
    loads = dict(world.loads)
    steps: list[Step] = []
    rejected: list[str] = []
    while (move := planner.next_move()) is not None:
        assert len(steps) + len(rejected) < len(pods), "the planner proposes for ever"
        assert planner.admission.reserve(move) is None
        if move.pod in world.refused_by_server:
            planner.admission.cancel_reservation(move)
            planner.reject(move, Refusal.of(Reason.SERVER_BUDGET))
            rejected.append(move.pod)
            continue
        landings = [each.node for each in move.target_nodes]
        steps.append(Step(move=move, loads=dict(loads), landings=landings))
        planner.accept(move)
        loads[move.node] -= world.usage[move.pod]
    return Story(
        steps=steps,
        planned=dict(zip(snapshot.nodes.names, planner.outcome.planned_load()[:, 0].tolist(), strict=True)),
        rejected=rejected,
        refusals=planner.outcome.refusals(),
        found=found,
        snapshot=snapshot,
    )
