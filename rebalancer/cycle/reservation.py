"""The reservation of one eviction: in the plan, and in the ledger before the call."""

import math

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.in_flight import typical_start_up
from rebalancer.constraints.limits import refusal_for
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.observation import Observation
from rebalancer.model.eviction import Eviction, PodAmount
from rebalancer.model.limits import Denied
from rebalancer.model.plan import CycleReport
from rebalancer.model.ports import Ledger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy import RebalancerPolicy

LEASE_MARGIN_SECONDS = 5.0
"""No eviction begins with less left of the lease, which bounds the call."""


def admit(
    context: CycleContext,
    report: CycleReport,
    seen: Observation,
    admission: EvictionAdmission,
    eviction: Eviction,
    policy: RebalancerPolicy,
) -> Refusal | None:
    """Reserve the eviction in this plan and, in a real run, in the ledger, whose row is written before the call.

    Minimum spacing is waited for, up to the policy's `safety.maxWait`.
    """
    due = admission.due(eviction)
    if isinstance(due, Refusal):
        return due
    admission.reserve(eviction)
    expect_replacement(eviction, seen.snapshot)
    eviction.amounts = amounts_of(eviction, seen)
    if report.dry_run:
        eviction.not_before = due if due > seen.now else None
        eviction.record = context.records.planned(report, eviction)
        return None
    assert context.ledger is not None
    wait = due - context.clock.now()
    if wait > 0:
        context.clock.sleep(wait)
    refusal = None
    if context.stopping():
        refusal = Refusal.of(Reason.STOPPING)
    elif context.lease is None or not context.lease.holds(LEASE_MARGIN_SECONDS):
        refusal = Refusal.of(Reason.LEASE_LOST)
    else:
        eviction.deadline_at = replacement_deadline(eviction, policy, context.ledger)
        checks = admission.checks(eviction)
        answer = context.ledger.reserve(report, eviction, checks=checks, term=context.lease.term)
        if isinstance(answer, Denied):
            refusal = refusal_for(answer)
        else:
            eviction.record = answer
    if refusal is not None:
        admission.cancel_reservation(eviction)
    return refusal


def expect_replacement(eviction: Eviction, snapshot: ClusterSnapshot) -> None:
    """Fill in what the service has now: its replacement has landed once that is reached again."""
    eviction.desired_before, eviction.ready_before = snapshot.replicas(int(snapshot.pods.owner[eviction.pod_index]))
    eviction.grace_seconds = snapshot.pod(eviction.pod_index).template.grace_seconds


def amounts_of(eviction: Eviction, seen: Observation) -> dict[str, PodAmount]:
    """Resource besides CPU -> what the pod uses of it, where that is measured."""
    out = {}
    for name, used in seen.usage.resources.items():
        amount, capacity = float(used.pod[eviction.pod_index]), float(used.capacity[eviction.node_index])
        if math.isfinite(amount):
            relief = float(used.relieved[eviction.pod_index])
            out[name] = PodAmount(amount, relief / capacity if capacity > 0 else math.nan)
    return out


def replacement_deadline(eviction: Eviction, policy: RebalancerPolicy, ledger: Ledger) -> float:
    """When the replacement is late: after the grace period and the usual start-up time of the service's pods."""
    in_flight = policy.safety.in_flight
    start_up = typical_start_up(ledger.start_ups(str(eviction.service)), otherwise=in_flight.start_up)
    return ledger.now() + eviction.grace_seconds + start_up + in_flight.margin
