"""What a cycle proposes: the evictions of the parts in `mode: Approve`, a plan for each pool and strategy."""

from collections.abc import Mapping

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.observe.observation import Observation
from rebalancer.cycle.plan.by_mode import wanting
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport, NodeLine
from rebalancer.model.decisions.plan_file import PlannedEviction, PlannedTarget
from rebalancer.model.decisions.proposals import Proposal, ProposedPlan
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.fingerprint import policy_hash
from rebalancer.policy.modes import mode_of
from rebalancer.policy.schema.strategies.base import StrategyBase


def planned_eviction(eviction: Eviction, lines: Mapping[str, NodeLine]) -> PlannedEviction:
    """An eviction as a plan shows it; `lines` are those of the cycle's report, by name of node."""
    return PlannedEviction(
        namespace=eviction.namespace,
        pod=eviction.pod,
        uid=eviction.uid,
        node=eviction.node,
        pool=eviction.pool,
        service=str(eviction.service),
        strategy=eviction.strategy,
        reason=eviction.reason,
        detail=eviction.answered.detail,
        cpu_millicores=eviction.cpu_millicores,
        target_nodes=tuple(
            PlannedTarget(
                node=each.node,
                probability=each.probability,
                cpu_share_planned=lines[each.node].cpu_planned,
                cpu_share_planned_p99=lines[each.node].cpu_planned_p99,
            )
            for each in eviction.target_nodes
        ),
        replacement_first=eviction.in_plan.replacement_first,
    )


def propose(
    context: CycleContext, policy: RebalancerPolicy, report: CycleReport, seen: Observation, request: CycleRequest
) -> list[Proposal]:
    """Keep what the cycle proposes; the proposals that have it. The nodes of the report are described. Raises
    ConfigError, ConnectError."""
    groups: dict[tuple[str, str], tuple[StrategyBase, list[Eviction]]] = {}
    for each in report.evictions:
        strategy = next(iter(wanting(each, policy)), None)
        if strategy is None or each.answered.outcome is not Outcome.PLANNED or not each.reserved.dry_run:
            continue
        if mode_of(policy, strategy, each.pool) == "Approve":
            groups.setdefault((each.pool, each.strategy), (strategy, []))[1].append(each)
    if context.proposals is None or not groups:
        return []
    lines, digest = {line.name: line for line in report.nodes}, policy_hash(policy)
    plans = []
    for (pool, name), (strategy, moves) in groups.items():
        nodes = {each.node for each in moves}
        plan = ProposedPlan(
            pool=pool,
            strategy=name,
            policy_hash=digest,
            evictions=tuple(planned_eviction(each, lines) for each in moves),
            thresholds=tuple(
                mark for mark in request.thresholds.values() if mark.strategy == name and mark.node in nodes
            ),
            due={key: until for key, until in request.due.items() if key[0] in nodes},
        )
        asked = request.nodes_for(name, seen.node_pools.by_node, triggers=strategy.triggers)
        members = {node for node, of in seen.node_pools.by_node.items() if of == pool}
        plans.append((plan, asked is None or members <= asked))
    pods, valid = frozenset(seen.snapshot.pods.uids), policy.approval.expire_after
    return list(context.proposals.propose(report.id, plans, pods=pods, valid_seconds=valid))
