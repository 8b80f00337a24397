"""One cycle, one story: observe, find, plan, admit, evict, record; then assess.

A dry run is the same story with `evict` left out, so what `plan` prints is what `run` would do.
"""

import uuid
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import CycleLimits
from rebalancer.constraints.guards import GuardView
from rebalancer.daemon.world import World
from rebalancer.model.plan import Answer, CycleReport, Eviction, Move, NodeLine, Outcome, PodRefusal, Trigger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import RecentMove, Usage
from rebalancer.placement.landing import shares
from rebalancer.planner import Planner
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import assign_pools
from rebalancer.strategies import STRATEGIES, Findings, StrategyView

LEASE_MARGIN_SECONDS = 5.0
"""An eviction call must be over before the lease can run out."""

STOPS_THE_CYCLE = (Reason.SERVER_THROTTLED, Reason.SERVER_FORBIDDEN)
"""Answers that the next call would get too."""

MEMORY_WINDOWS = 2.0
"""How far back moves are remembered, in rate windows."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a cycle decides on."""

    snapshot: ClusterSnapshot
    usage: Usage
    pool_of: NDArray[np.int32]
    """(nodes,) index into the policy's pools, -1 for none."""
    recent: tuple[RecentMove, ...]
    now: float


def run_cycle(
    world: World,
    policy: RebalancerPolicy,
    *,
    trigger: Trigger = Trigger.MANUAL,
    dry_run: bool,
    server_dry_run: bool = False,
) -> CycleReport:
    """Run one cycle and record it. Raises ConnectError, ConfigError or UnsafeDataError when it can't even observe.

    Data that is readable but not safe to act on ends in `report.stopped`, with nothing planned.
    """
    report = CycleReport(
        id=uuid.uuid4().hex,
        cluster=policy.cluster,
        trigger=trigger,
        dry_run=dry_run,
        started_at=world.clock.now(),
    )
    seen = observe(world, policy)
    world.records.begin(report)
    report.stopped = unsafe(seen, policy)
    found = [] if report.stopped else find(seen, policy)
    planner = plan(world, seen, found, policy)
    admission = planner.admission
    while (move := planner.next_move()) is not None:
        if (refusal := admission.reserve(move)) is not None:
            planner.reject(move, refusal)
            continue
        answer = evict(world, report, seen, move, dry_run=dry_run, server_dry_run=server_dry_run)
        if answer.outcome in (Outcome.REFUSED, Outcome.FAILED):
            admission.refund(move)
            planner.reject(move, answer.refusal or Refusal.of(Reason.SERVER_ERROR))
            if answer.refusal is not None and answer.refusal.code in (*STOPS_THE_CYCLE, Reason.LEASE_LOST):
                report.notes.append(f"stopped before the plan was done: {answer.refusal.message}")
                planner.stop(answer.refusal)
            continue
        planner.accept(move)
    describe(report, seen, found, planner, policy)
    report.finished_at = world.clock.now()
    world.records.finish(report)
    return report


def observe(world: World, policy: RebalancerPolicy) -> Observation:
    """Read the cluster, its usage and what we did lately."""
    snapshot = world.cluster.snapshot()
    pool_of = assign_pools(policy.pools, snapshot.nodes.names, snapshot.nodes.labels)
    usage = world.usage.read(snapshot)
    since = world.clock.now() - MEMORY_WINDOWS * usage.window_seconds
    recent = tuple(world.records.recent_moves(since))
    return Observation(snapshot=snapshot, usage=usage, pool_of=pool_of, recent=recent, now=world.clock.now())


def unsafe(seen: Observation, policy: RebalancerPolicy) -> Refusal | None:
    """Why nothing may be decided on what was read."""
    if seen.usage.warnings:
        return Refusal.of(Reason.PARTIAL_USAGE, "; ".join(seen.usage.warnings))
    known = np.isfinite(seen.usage.node_cpu_millicores[seen.pool_of >= 0])
    coverage, wanted = known.mean() if len(known) else 1.0, policy.usage.min_coverage / 100
    if coverage < wanted:
        counts = f"{np.count_nonzero(known)} of {len(known)} nodes in pools, at least {wanted:.0%} are needed"
        return Refusal.of(Reason.COVERAGE_TOO_LOW, counts)
    return None


def find(seen: Observation, policy: RebalancerPolicy) -> list[Findings]:
    """What each strategy of the policy finds."""
    return [
        STRATEGIES[strategy.name](
            StrategyView(
                snapshot=seen.snapshot,
                usage=seen.usage,
                pools=policy.pools,
                pool_of=seen.pool_of,
                strategy=strategy,
                source=policy.usage,
                recent=seen.recent,
                now=seen.now,
            )
        )
        for strategy in policy.strategies
    ]


def plan(world: World, seen: Observation, found: list[Findings], policy: RebalancerPolicy) -> Planner:
    """A planner over everything that was found."""
    view = GuardView.of(snapshot=seen.snapshot, guards=policy.guards, now=seen.now, own_pod=world.own_pod)
    return Planner(
        snapshot=seen.snapshot,
        found=found,
        view=view,
        admission=CycleLimits(policy.limits),
        cpu_millicores=seen.usage.pod_cpu_millicores,
    )


def evict(
    world: World, report: CycleReport, seen: Observation, move: Move, *, dry_run: bool, server_dry_run: bool
) -> Answer:
    """Write the decision, make the call, write its outcome. A dry run only writes."""
    if not dry_run and (world.lease is None or not world.lease.holds(LEASE_MARGIN_SECONDS)):
        return Answer(outcome=Outcome.FAILED, refusal=Refusal.of(Reason.LEASE_LOST))
    eviction = Eviction(move=move, landings=shares(move.landings, seen.snapshot.nodes.names), outcome=Outcome.PLANNED)
    eviction.record = world.records.planned(report, eviction)
    report.evictions.append(eviction)
    if dry_run and not server_dry_run:
        return Answer(outcome=Outcome.PLANNED)
    answer = world.evictor.evict(move, server_dry_run=dry_run)
    eviction.outcome = answer.outcome
    eviction.code = answer.refusal.code if answer.refusal else None
    eviction.detail = answer.refusal.message if answer.refusal else ""
    if dry_run and answer.outcome is Outcome.PLANNED:
        eviction.detail = "the API server would accept it, probed alone"
    world.records.outcome(eviction)
    return answer


def describe(
    report: CycleReport, seen: Observation, found: list[Findings], planner: Planner, policy: RebalancerPolicy
) -> None:
    """Fill the report with what was seen, found and refused."""
    snapshot, names = seen.snapshot, seen.snapshot.nodes.names
    room = snapshot.nodes.cpu_capacity_millicores
    planned = seen.usage.node_cpu_millicores.copy()
    for eviction in report.evictions:
        if eviction.outcome in (Outcome.PLANNED, Outcome.EVICTED, Outcome.UNKNOWN):
            cpu = np.nan_to_num(eviction.move.cpu_millicores)
            planned[eviction.move.node] -= cpu
            planned[eviction.move.landings[0].node] += cpu
    hot = np.zeros(len(names), dtype=bool)
    for findings in found:
        hot |= (findings.loads.node > findings.loads.high).any(axis=1)
        report.findings += [(finding, names[finding.node]) for finding in findings.findings]
        report.refusals += [
            PodRefusal(node=names[node], namespace="", name="", code=refusal.code, message=refusal.message)
            for node, refusal in sorted(findings.skipped.items())
        ]
    report.refusals += planner.refusals()
    for index in sorted(range(len(names)), key=lambda node: names[node]):
        pool = int(seen.pool_of[index])
        report.nodes.append(
            NodeLine(
                name=names[index],
                pool=policy.pools[pool].name if pool >= 0 else "",
                cpu_before=_share(seen.usage.node_cpu_millicores[index], room[index]),
                cpu_planned=_share(planned[index], room[index]),
                hot=bool(hot[index]),
            )
        )


def _share(millicores: float, room: float) -> float | None:
    return float(millicores / room) if np.isfinite(millicores) and room > 0 else None
