"""From findings to a planner that knows where everything lands: which nodes to steer away from, and for how long to
think."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.door import Door
from rebalancer.daemon.observation import Observation
from rebalancer.daemon.steer import our_taints
from rebalancer.daemon.world import World
from rebalancer.model.plan import PEAK, CycleReport, Loads
from rebalancer.model.steering import PREDICTED_HOT
from rebalancer.planner import Planner
from rebalancer.planner.steering import SteeringBudget
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.limits import resolve
from rebalancer.strategies import Findings

PLAN_SECONDS_AT_MOST = 20.0
"""What is not decided by then is left for the next cycle."""


def steer(
    world: World,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    report: CycleReport,
) -> NDArray[np.bool_]:
    """(nodes,) that carry our soft taint while this plan runs: put there in a real run, assumed in a dry one.

    The plan is rehearsed, so that everything is tainted before the first eviction. What earlier plans left and this one
    doesn't want is removed, also when nothing can be planned.
    """
    steerer, names = world.steerer, seen.snapshot.nodes.names
    steerer.see(seen.snapshot)
    wanted: dict[str, str] = {}
    if policy.steering.mode == "Taint" and found and not steerer.only_clears:
        wanted = kept(seen, found, policy)
        if any(each.findings for each in found):
            if steerer.granted():
                wanted = rehearse(world, seen, found, policy, wanted, TimeLimit(PLAN_SECONDS_AT_MOST))
            else:
                report.notes.append("nodes may not be patched, so none is steered away from: only sure landings count")
    held = set(wanted) if report.dry_run else steerer.hold(wanted)
    report.steered = {name: wanted[name] for name in sorted(held)}
    return np.fromiter((name in held for name in names), np.bool_, len(names))


def kept(seen: Observation, found: list[Findings], policy: RebalancerPolicy) -> dict[str, str]:
    """Node -> value of our taints that stay from an earlier plan: it hasn't cooled, or what left it hasn't landed.

    None is kept for longer than the policy says, whatever the node does.
    """
    index = seen.snapshot.node_index
    warm = np.logical_or.reduce([_over_target(each.loads, ahead=False) for each in found])
    warm_ahead = np.logical_or.reduce([_over_target(each.loads, ahead=True) for each in found])
    on_their_way = {each.node for each in seen.standing.open_evictions}
    out = {}
    for name, (value, since) in our_taints(seen.snapshot).items():
        is_warm = (warm_ahead if value == PREDICTED_HOT else warm)[index[name]]
        if seen.now - since <= policy.steering.max_age and (is_warm or name in on_their_way):
            out[name] = value
    return out


def _over_target(loads: Loads, *, ahead: bool) -> NDArray[np.bool_]:
    """(nodes,) over the target: now, or with `ahead` also at the peak."""
    counts = [ahead or name != PEAK for name in loads.resources]
    out: NDArray[np.bool_] = np.asarray((loads.node > loads.target)[:, counts].any(axis=1), dtype=np.bool_)
    return out


def rehearse(
    world: World,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    kept: Mapping[str, str],
    out_of_time: Callable[[], bool],
) -> dict[str, str]:
    """Node -> why it is to be steered away from: those that are kept, what stands in the plan's way, then the nodes
    that it relieves."""
    names, index = seen.snapshot.nodes.names, seen.snapshot.node_index
    too_old = our_taints(seen.snapshot).keys() - kept.keys()
    sizes = np.bincount(seen.pool_of[seen.pool_of >= 0], minlength=len(policy.pools)).tolist()
    budget = SteeringBudget(
        # a node that has just lost its taint goes without for this cycle
        pool_of=np.where([name in too_old for name in names], -1, seen.pool_of),
        left=[resolve(policy.steering.max_nodes, size, policy.steering.max_nodes_at_least) for size in sizes],
        hot=np.logical_or.reduce([each.loads.hot for each in found]),
        due=np.logical_or.reduce([each.loads.over & ~each.loads.hot for each in found]),
    )
    for name in sorted(kept):
        budget.take([index[name]])
    planner = plan(world, seen, found, policy, steered=budget.mask, steering=budget, out_of_time=out_of_time)
    sources = []
    while (move := planner.next_move()) is not None:
        if (refusal := planner.door.reserve(move)) is not None:
            planner.reject(move, refusal)
            continue
        planner.accept(move)
        sources.append(move.node)
    if not sources:
        return dict(kept)
    for node in sources:
        budget.take([node])
    return {names[node]: kept.get(names[node], value) for node, value in budget.chosen.items()}


def plan(
    world: World,
    seen: Observation,
    found: list[Findings],
    policy: RebalancerPolicy,
    *,
    steered: NDArray[np.bool_] | None = None,
    steering: SteeringBudget | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Planner:
    """A planner over everything that was found, behind the one door."""
    door = Door(
        policy=policy,
        snapshot=seen.snapshot,
        pool_of=seen.pool_of,
        standing=seen.standing,
        now=seen.now,
        own_pod=world.own_pod,
    )
    names = seen.snapshot.nodes.names
    if steered is None:
        steered = np.zeros(len(seen.pool_of), dtype=np.bool_)
    return Planner(
        snapshot=seen.snapshot,
        found=found,
        door=door,
        cpu_millicores=seen.usage.pod_cpu_millicores,
        pools=[policy.pools[pool].name if pool >= 0 else "" for pool in seen.pool_of],
        config=world.scheduler,
        steered=steered,
        steering=steering,
        out_of_time=out_of_time,
        young_seconds=policy.safety.cooldowns.new_node,
        closed=np.fromiter((name in world.steerer.uncertain for name in names), np.bool_, len(names)),
    )


class TimeLimit:
    """Says whether so much time was spent; the machine's, whatever clock the cluster goes by."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self) -> bool:
        return time.monotonic() > self._end

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time that doesn't count: waiting for a limit, calling the API server."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - began
