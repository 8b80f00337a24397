"""Cycle after cycle in a few lines: each makes the first move of a fresh plan; it lands on some likely node."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from tests.builders import ANode, APod, cluster, planner_for, usage_of

MOST_CYCLES = 60


def planner_of(nodes: Sequence[ANode], pods: Sequence[APod], policy: RebalancerPolicy, **fields: Any) -> Planner:
    made = cluster(nodes, pods, **fields)
    return planner_for(made, usage_of(made, nodes, pods), policy)


def moves_of(planner: Planner) -> list[Eviction]:
    """What one plan moves, all of it accepted."""
    out = []
    while (move := planner.next_move()) is not None:
        out.append(move)
        planner.accept(move)
    return out


def until_nothing_moves(
    nodes: Sequence[ANode], pods: Sequence[APod], policy: RebalancerPolicy, draws: random.Random, **fields: Any
) -> tuple[list[APod], dict[str, str], int]:
    """The pods at the end, why others stay (pod -> code), and how many moved. Fails when it never ends."""
    pods = list(pods)
    for moved in range(MOST_CYCLES):
        planner = planner_of(nodes, pods, policy, **fields)
        move = planner.next_move()
        if move is None:
            return pods, {each.name: str(each.code) for each in planner.outcome.refusals()}, moved
        at = next(index for index, pod in enumerate(pods) if (pod.namespace, pod.name) == (move.namespace, move.pod))
        landing = draws.choice(move.target_nodes).node
        pods[at] = replace(pods[at], name=f"{move.pod.split('+')[0]}+{moved}", node=landing)
    raise AssertionError(f"still moving after {MOST_CYCLES} cycles")


def shuffled(nodes: Sequence[ANode], pods: Sequence[APod], draws: random.Random) -> tuple[list[ANode], list[APod]]:
    """The same cluster, listed in another order."""
    return draws.sample(nodes, len(nodes)), draws.sample(pods, len(pods))
