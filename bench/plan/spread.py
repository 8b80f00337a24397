"""CPU of one plan for a service that is spread over zones by a hard constraint, by the number of its moves.

Prints one JSON object a line; exit code 1 when an aim is missed. Each move changes what the next one sees, and where
the replacements before it landed is left to chance: a move costs as much after a hundred as after ten.
"""

import argparse
import json
from collections.abc import Mapping

import numpy as np

from bench.plan.find_and_plan import planning
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import Usage
from rebalancer.policy import RebalancerPolicy
from rebalancer.testing import NOW, FakePod, node, policy, replicas, snapshot, usage

ZONE = "topology.kubernetes.io/zone"
ZONES = 3
NODES, HOT_SHARE = 60, 1 / 3
ON_HOT, ON_OTHERS = 14, 1
"""Pods of the service on each node."""
USED = 0.06
"""CPU that a pod uses, as a share of its node."""
CORES = 16_000.0
MOVES = (10, 30, 100)
AIMS: Mapping[int, float] = {10: 0.5, 30: 0.5, 100: 0.9}
"""CPU seconds at `NODES`."""
AIM_GROWTH = 1.5
"""CPU of a move in the longest plan, by that in the shortest."""


def a_cluster(nodes: int = NODES, *, max_skew: int = 1) -> tuple[ClusterSnapshot, Usage]:
    """A third of the nodes is hot by the pods of one service, which are balanced over three zones."""
    hot = int(nodes * HOT_SHARE)
    machines = [node(f"n{at:02d}", labels={"pool": "general", ZONE: f"z{at % ZONES}"}) for at in range(nodes)]
    spread = {
        "topologyKey": ZONE,
        "maxSkew": max_skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    on = {each.name: ON_HOT if at < hot else ON_OTHERS for at, each in enumerate(machines)}
    pods: list[FakePod] = replicas("web", on, used=USED * CORES, template={"topologySpread": [spread]})
    made = snapshot(machines, pods)
    return made, usage(made, machines, pods)


def a_policy() -> RebalancerPolicy:
    """Moves are limited by nothing but the nodes' targets."""
    thresholds = {"high": 75, "target": 45, "low": 30}
    pool = {"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": thresholds}
    return policy(pools=[pool], guards={"minAge": "1s", "minReplicas": 1})


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--max-skew", type=int, default=1)
    nodes, max_skew = (args := parser.parse_args()).nodes, args.max_skew
    missed = False

    def say(figure: str, value: float, unit: str, aim: float | None) -> None:
        nonlocal missed
        holds = aim is None or value <= aim
        missed |= not holds
        line = {"bench": "spread", "figure": figure, "value": round(value, 3), "unit": unit, "aim": aim, "holds": holds}
        print(json.dumps(line), flush=True)

    each_move: list[float] = []
    for most in MOVES:
        made, used = a_cluster(nodes, max_skew=max_skew)
        found = planning(made, used, a_policy(), now=NOW, most=most)
        seconds, moves = found["plan_seconds"], int(found["moves"])
        each_move.append(seconds / max(moves, 1))
        full = nodes == NODES and max_skew == 1
        say(f"{moves} moves, {nodes} nodes, {len(made.pods)} pods", seconds, "s", AIMS[most] if full else None)
    growth = float(np.divide(each_move[-1], each_move[0]))
    say("a move of the longest plan by one of the shortest", growth, "x", AIM_GROWTH)
    return int(missed)
