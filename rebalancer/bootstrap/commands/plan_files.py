"""What plan files are made of and checked against: the plan, the connected cluster, the policy."""

from contextlib import ExitStack

from rebalancer import __version__
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.cycle.plan.approved import ApprovedPlan, approved_file
from rebalancer.cycle.report.proposals import planned_eviction
from rebalancer.kube.snapshot.snapshot import cluster_uid
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.plan_file import PlanFile
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.fingerprint import policy_hash


def plan_file_of(
    report: CycleReport, policy: RebalancerPolicy, settings: Settings, *, valid_seconds: float
) -> PlanFile:
    """The plan of a cycle that was a dry run. Raises ConfigError, ConnectError."""
    lines = {line.name: line for line in report.nodes}
    return PlanFile(
        id=report.id,
        version=__version__,
        cluster=report.cluster,
        cluster_uid=_connected(settings),
        policy_hash=policy_hash(policy),
        taken_at=report.started_at,
        expires_at=report.started_at + valid_seconds,
        evictions=tuple(
            planned_eviction(each, lines) for each in report.evictions if each.answered.outcome is Outcome.PLANNED
        ),
    )


def approved_plan(plan: PlanFile, policy: RebalancerPolicy, settings: Settings) -> ApprovedPlan:
    """The plan, to be carried out in the connected cluster. Raises ConfigError, ConnectError, PlanChangedError."""
    return approved_file(plan, policy, cluster_uid=_connected(settings), own_hash=policy_hash(policy))


def _connected(settings: Settings) -> str:
    with ExitStack() as stack:
        return cluster_uid(client_of(settings, stack))
