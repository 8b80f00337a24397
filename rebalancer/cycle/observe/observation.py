"""A cycle's input: snapshot, usage and ledger state; whether it is safe to use; and the strategies' findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import LedgerState
from rebalancer.constraints.pauses.backoff import REMEMBERED_SECONDS, emptied_in_vain
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.isolation import failed_parts, isolated, read_part
from rebalancer.cycle.observe.isolated_strategies import findings_of
from rebalancer.cycle.observe.ledger_state import load_ledger_state
from rebalancer.cycle.observe.past import read_past
from rebalancer.cycle.soft_taints import our_cordons
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.past import Past
from rebalancer.model.decisions.plan import PREDICTED, Loads
from rebalancer.model.measured.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.parts import FailedParts
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.projection.projection import Projection
from rebalancer.strategies import Findings, StrategyView, needs
from rebalancer.strategies.interface.loads import CpuLoads, base_loads, effective_cpu
from rebalancer.strategies.interface.resources import (
    GROWING_SECONDS,
    expected_by_resource,
    memory_reserve,
    with_resources,
)

ANY = CycleRequest()
"""All strategies, all nodes."""

MEMORY_WINDOWS = 2.0
"""How far back recent moves are read, in rate windows; longer where a strategy needs them for longer."""
REPLACED_SECONDS = 2 * GROWING_SECONDS
"""At least so far back: a replacement that takes long is Ready long after its eviction, and grows for an hour then."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A cycle's input."""

    snapshot: ClusterSnapshot
    usage: Usage
    node_pools: NodePools
    recent: tuple[Eviction, ...]
    ledger_state: LedgerState
    projection: Projection
    peaks: Peaks | None = None
    days: ServiceDayProfiles | None = None
    """Services' usual days; None where no strategy needs them or they aren't known."""
    past: Past | None = None
    """None where no strategy reads it, and where it can't be read."""
    past_unknown: tuple[str, ...] = ()
    """Why it can't be read."""
    cpu: CpuLoads
    """Effective CPU of nodes and pods."""
    loads: Loads
    """Real CPU of all nodes, with the thresholds of their pools: what every landing is checked against."""
    reserve: Loads | None = None
    """Real memory of all nodes and what must stay available of it; None where it isn't known."""
    drains: tuple[DrainedNode, ...] = ()
    """Nodes emptied in the last days, and what became of them."""
    relief_factor: Mapping[str, float] = field(default_factory=dict)
    """Pool -> measured relief / planned relief of earlier evictions; 1 for a pool that isn't there."""
    now: float

    @property
    def pool_of(self) -> NDArray[np.int32]:
        """(nodes,) index into the policy's pools, -1 for none."""
        return self.node_pools.of_node

    @cached_property
    def base(self) -> Loads:
        """The loads, with relief as measured after earlier evictions."""
        return _with_measured_relief(self.loads, self)


def observe(
    context: CycleContext, policy: RebalancerPolicy, *, writes: bool, snapshot: ClusterSnapshot | None = None
) -> Observation:
    """Read the cluster, its usage and the ledger; with `writes`, reconcile open evictions."""
    if writes and context.ledger is not None:
        # before anything is counted: it refunds what did not happen
        context.ledger.reconcile_outcomes(context.cluster)
    if writes and context.surges is not None:
        context.surges.turn()
    if snapshot is None:
        snapshot = context.cluster.snapshot()
    node_pools = NodePools.of(policy.pools, snapshot.nodes)
    usage = read_part(context.parts, "usage", partial(context.usage.read, snapshot))
    context.record_usage(snapshot, usage)
    # the ledger's clock where there is one: its rows were dated by it
    now = context.ledger.now() if context.ledger is not None else context.clock.now()
    memory = max(
        [MEMORY_WINDOWS * usage.window_seconds, REPLACED_SECONDS, *(each.memory_seconds for each in policy.strategies)]
    )
    ledger_state = load_ledger_state(context.ledger, policy, snapshot, writes=writes, cluster=context.cluster)
    # after the ledger: it has just recorded which evictions in the background have left their node
    recent = tuple(context.records.recent_moves(now - memory))
    feedback = context.feedback()
    if feedback is not None:
        useless = {
            pool: Refusal.of(Reason.CIRCUIT_BREAKER_OPEN, each.reason, next_at=each.until)
            for pool, each in feedback.open_breakers.items()
            if each.until > now
        }
        ledger_state = replace(ledger_state, useless=useless)
    share = usage.node_cpu_millicores / snapshot.nodes.cpu_capacity_millicores
    projection = Projection.of(
        snapshot,
        policy.safety,
        now=now,
        pools=node_pools.names,
        urgent=np.nan_to_num(share) * 100 >= policy.planner.urgent,
    )
    past, past_unknown = isolated(
        "the past of the nodes is not known", lambda: read_past(context, policy, projection, node_pools, now=now)
    )
    evacuated = {each.uid for each in ledger_state.open_evictions if each.answered.in_background}
    in_flight = (*ledger_state.open_evictions, *ledger_state.landed)
    cpu = effective_cpu(
        snapshot,
        usage,
        recent,
        now,
        in_flight=in_flight,
        in_background=evacuated,
        ending=projection.ending,
        generation=policy.forecast.generation,
    )
    expected = expected_by_resource(snapshot, node_pools, usage, (*recent, *in_flight))
    peaks = context.forecasts.peaks(snapshot, now) if policy.forecast.mode == "Act" else None
    return Observation(
        snapshot=snapshot,
        usage=usage,
        node_pools=node_pools,
        cpu=cpu,
        loads=with_resources(
            base_loads(snapshot, node_pools, cpu, peaks),
            snapshot,
            node_pools,
            usage,
            expected,
            now=now,
            occupied=True,
            peaks=peaks,
        ),
        reserve=memory_reserve(
            snapshot, usage, expected, least=policy.guards.min_memory_available / 100, now=now, peaks=peaks
        ),
        recent=recent,
        ledger_state=ledger_state,
        projection=projection,
        peaks=peaks,
        days=context.forecasts.service_day_profiles(snapshot, now) if Need.DAYS in needs(policy.strategies) else None,
        past=past,
        past_unknown=past_unknown,
        relief_factor=feedback.relief_factor if feedback is not None else {},
        drains=tuple(context.records.drains(now - REMEMBERED_SECONDS)),
        now=now,
    )


def unsafe(seen: Observation, policy: RebalancerPolicy) -> Refusal | None:
    """Why the input is not safe to use, or None."""
    if seen.usage.warnings:
        return Refusal.of(Reason.PARTIAL_USAGE, "; ".join(seen.usage.warnings))
    # a node that is not Ready sends no samples, and is neither evicted from nor a target
    judged = (seen.pool_of >= 0) & seen.snapshot.nodes.ready
    known = np.isfinite(seen.usage.node_cpu_millicores[judged])
    coverage, wanted = known.mean() if len(known) else 1.0, policy.usage.min_coverage / 100
    if coverage < wanted:
        counts = f"{np.count_nonzero(known)} of {len(known)} Ready nodes in pools, at least {wanted:.0%} are needed"
        return Refusal.of(Reason.COVERAGE_TOO_LOW, counts)
    return None


def find(
    seen: Observation, policy: RebalancerPolicy, request: CycleRequest = ANY, *, parts: FailedParts | None = None
) -> list[Findings]:
    """The findings of each strategy on the nodes of the request. One that fails unexpectedly finds nothing, with a
    note."""
    parts = parts or failed_parts()
    index = seen.snapshot.node_index
    cordons = {index[name]: cordon for name, cordon in our_cordons(seen.snapshot).items()}
    in_vain = {
        index[node]: each
        for node, each in emptied_in_vain(seen.drains, policy.safety.cooldowns.backoff).items()
        if node in index
    }
    found = []
    for strategy in policy.strategies:
        # a strategy outside of the request finds nothing, but its targets hold for the others' replacements
        nodes = request.nodes_for(strategy.name, seen.node_pools.by_node, triggers=strategy.triggers)
        view = StrategyView(
            snapshot=seen.snapshot,
            usage=seen.usage,
            node_pools=seen.node_pools,
            cpu=seen.cpu,
            base=seen.loads,
            strategy=strategy,
            source=policy.usage,
            recent=seen.recent,
            now=seen.now,
            only=None if nodes is None else frozenset(index[node] for node in nodes),
            overrides={
                (index[mark.node], mark.resource): mark
                for mark in request.thresholds.values()
                if mark.strategy == strategy.name and mark.node in index
            },
            projection=seen.projection,
            peaks=seen.peaks,
            due=frozenset(
                (index[node], resource)
                for (node, resource), until in request.due.items()
                if node in index and seen.now < until and "Forecast" in strategy.triggers
            ),
            cordons=cordons,
            in_vain=in_vain,
            days=seen.days if Need.DAYS in needs([strategy]) else None,
            past=seen.past if strategy.past_seconds else None,
            backoff=policy.safety.cooldowns.backoff,
        )
        findings = findings_of(view, parts, drained_seconds=policy.soft_taint.max_age)
        if strategy.by_cpu and findings.loads is not None:
            findings = replace(findings, loads=_with_measured_relief(findings.loads, seen))
        found.append(findings)
    return found


def _with_measured_relief(loads: Loads, seen: Observation) -> Loads:
    """The loads with each pod's relief times the factor measured in its pool. The factor is of single evictions: it
    doesn't tell what would be left without all pods."""
    if not seen.relief_factor:
        return loads
    of_pool = np.array([*(seen.relief_factor.get(pool.name, 1.0) for pool in seen.node_pools.pools), 1.0])
    of_node = np.append(of_pool[seen.pool_of], 1.0)  # pods on no node come last
    by_cpu = np.array([name in (CPU, *PREDICTED) for name in loads.resources])
    relief = loads.relieved * np.where(by_cpu, of_node[seen.snapshot.pods.node][:, None], 1.0)
    return replace(loads, relief=relief, of_all=loads.relieved_by_all)


def high_thresholds(
    seen: Observation, found: list[Findings], policy: RebalancerPolicy, request: CycleRequest = ANY
) -> NDArray[np.float64]:
    """(nodes,) share of real CPU over which a strategy would have found the node; NaN where none evaluated it."""
    names = seen.snapshot.nodes.names
    lowest = np.full(len(names), np.nan)
    for strategy, findings in zip(policy.strategies, found, strict=bool(found)):
        if not strategy.by_cpu or findings.loads is None:
            continue
        asked = request.nodes_for(strategy.name, seen.node_pools.by_node, triggers=strategy.triggers)
        looked = np.array([asked is None or name in asked for name in names], dtype=np.bool_)
        at = findings.loads.resources.index(CPU)
        room = findings.loads.room[:, at]
        high = findings.loads.high[:, at] / np.where(room > 0, room, np.nan)
        lowest = np.fmin(lowest, np.where(looked, high, np.nan))
    return lowest
