"""What plan files are made of and checked against: the plan, the connected cluster, the policy."""

from contextlib import ExitStack

from rebalancer import __version__
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.adapters import client_of
from rebalancer.cycle.plan.approved import ApprovedPlan
from rebalancer.kube.snapshot.snapshot import cluster_uid
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.records.plan_file import PlanFile, PlannedEviction, PlannedTarget
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.fingerprint import policy_hash


def plan_file_of(
    report: CycleReport, policy: RebalancerPolicy, settings: Settings, *, valid_seconds: float
) -> PlanFile:
    """The plan of a cycle that was a dry run. Raises ConfigError, ConnectError."""
    return PlanFile(
        id=report.id,
        version=__version__,
        cluster=report.cluster,
        cluster_uid=_connected(settings),
        policy_hash=policy_hash(policy),
        taken_at=report.started_at,
        expires_at=report.started_at + valid_seconds,
        evictions=tuple(
            _planned(each, report) for each in report.evictions if each.answered.outcome is Outcome.PLANNED
        ),
    )


def approved_plan(plan: PlanFile, policy: RebalancerPolicy, settings: Settings) -> ApprovedPlan:
    """The plan, to be carried out in the connected cluster. Raises ConfigError, ConnectError."""
    return ApprovedPlan(plan=plan, cluster_uid=_connected(settings), policy_hash=policy_hash(policy))


def _connected(settings: Settings) -> str:
    with ExitStack() as stack:
        return cluster_uid(client_of(settings, stack))


def _planned(eviction: Eviction, report: CycleReport) -> PlannedEviction:
    lines = {line.name: line for line in report.nodes}
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
    )
