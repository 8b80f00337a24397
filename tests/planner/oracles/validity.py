"""Whether a plan with waits keeps the rules: a second account over the snapshot."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rebalancer.model.decisions.eviction import Eviction
from tests.planner.builders.searches import Searched

SLACK = 1 + 1e-6
MOST_CHANCE = 0.01


def check_plan(world: Searched, moves: Sequence[Eviction], resumed: Sequence[int]) -> None:
    """No pod twice, limits, budgets between two waits, only hot nodes and not beyond their target, no landing that
    alone goes over a target. `resumed`: after how many moves all replacements had landed."""
    snapshot, pods = world.snapshot, world.snapshot.pods
    cpu, cap = world.usage.pod_cpu_millicores, snapshot.nodes.cpu_capacity_millicores
    assert len({move.uid for move in moves}) == len(moves)
    limits = world.policy.limits
    assert len(moves) <= limits.per_cycle
    per_node = Counter(move.node for move in moves)
    for rate in limits.node.evictions:
        assert max(per_node.values(), default=0) <= int(rate.max)
    ends = [0, *resumed, len(moves)]
    for together in (moves[start:end] for start, end in pairwise(ends)):
        services = Counter(str(move.service) for move in together)
        assert max(services.values(), default=0) <= int(limits.service.in_flight or 0)
        for budget in snapshot.budgets:
            app = budget.selector.match_labels["app"] if budget.selector else ""
            assert services[f"shop/{app}"] <= budget.disruptions_allowed
    load = world.usage.node_cpu_millicores.copy()
    hot = load > 0.75 * cap
    for move in moves:
        source = move.in_plan.node_index
        assert hot[source]
        assert load[source] > 0.65 * cap[source]
        assert pods.node[move.in_plan.pod_index] == source
        load[source] -= cpu[move.in_plan.pod_index]
        for target in move.target_nodes:
            at = snapshot.node_index[target.node]
            if target.probability > MOST_CHANCE:
                assert at != source
                assert not hot[at]
                assert load[at] + cpu[move.in_plan.pod_index] <= 0.65 * cap[at] * SLACK
        certain = [each for each in move.target_nodes if each.probability > 1 - 1e-9]
        for target in certain:
            load[snapshot.node_index[target.node]] += cpu[move.in_plan.pod_index]
    assert np.all(load[~hot] <= np.maximum(world.usage.node_cpu_millicores, 0.65 * cap)[~hot] * SLACK)
