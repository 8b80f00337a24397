"""Reservations of evictions: in the plan, and in the ledger before the calls."""

import math
from collections.abc import Sequence
from dataclasses import replace

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.moves.in_flight import typical_start_up
from rebalancer.constraints.moves.limits import refusal_for
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.isolation import vital
from rebalancer.cycle.observe.observation import Observation
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction, PodAmount
from rebalancer.model.decisions.limits import Denied
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Ledger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy

LEASE_MARGIN_SECONDS = 5.0
"""No eviction begins with less left of the lease, which bounds the call."""


def admit(
    context: CycleContext, report: CycleReport, seen: Observation, admission: EvictionAdmission, eviction: Eviction
) -> Refusal | None:
    """Count the eviction in this plan, or why not. In a dry run it is recorded.

    In a real run minimum spacing is waited for, up to the policy's `safety.maxWait`.
    """
    due = admission.due(eviction)
    if isinstance(due, Refusal):
        return due
    admission.reserve(eviction)
    expect_replacement(eviction, seen.snapshot)
    eviction.amounts = amounts_of(eviction, seen)
    if report.dry_run:
        eviction.reserved = replace(eviction.reserved, dry_run=True, not_before=due if due > seen.now else None)
        eviction.reserved = replace(eviction.reserved, record=context.records.planned(report, eviction))
        return None
    wait = due - context.clock.now()
    if wait > 0:
        context.clock.sleep(wait)
    return None


def reserve(
    context: CycleContext,
    report: CycleReport,
    admission: EvictionAdmission,
    evictions: Sequence[Eviction],
    policy: RebalancerPolicy,
) -> list[Refusal | None]:
    """Reserve admitted evictions in the ledger, whose rows are written before the calls; of each why not, or None."""
    if report.dry_run:
        return [None] * len(evictions)
    assert context.ledger is not None
    if context.stopping():
        return [Refusal.of(Reason.STOPPING)] * len(evictions)
    # the term first: of a lease that is lost right after the second look there is none
    term = None if context.lease is None else context.lease.term
    if context.lease is None or term is None or not context.lease.holds(LEASE_MARGIN_SECONDS):
        return [Refusal.of(Reason.LEASE_LOST)] * len(evictions)
    now = context.ledger.now()
    for each in evictions:
        deadline = replacement_deadline(each, policy, context.ledger, now=now)
        each.reserved = replace(each.reserved, deadline_at=deadline)
    wanted = [(each, admission.checks(each)) for each in evictions]
    with vital("reserving evictions"):
        answers = context.ledger.reserve_all(report, wanted, term=term)
    refusals: list[Refusal | None] = []
    for eviction, answer in zip(evictions, answers, strict=True):
        if isinstance(answer, Denied):
            refusals.append(refusal_for(answer))
        else:
            eviction.reserved = replace(eviction.reserved, record=answer)
            refusals.append(None)
    return refusals


def expect_replacement(eviction: Eviction, snapshot: ClusterSnapshot) -> None:
    """Fill in what the service has now: its replacement has landed once that is reached again."""
    index = eviction.in_plan.pod_index
    desired, ready = snapshot.replicas(int(snapshot.pods.owner[index]))
    grace = snapshot.pod(index).template.grace_seconds
    eviction.reserved = replace(eviction.reserved, desired_before=desired, ready_before=ready, grace_seconds=grace)


def amounts_of(eviction: Eviction, seen: Observation) -> dict[str, PodAmount]:
    """Resource besides CPU -> what the pod uses of it, where that is measured."""
    out, pod, node = {}, eviction.in_plan.pod_index, eviction.in_plan.node_index
    for name, used in seen.usage.resources.items():
        amount, capacity = float(used.pod[pod]), float(used.capacity[node])
        if math.isfinite(amount):
            relief = float(used.relieved[pod])
            out[name] = PodAmount(amount, relief / capacity if capacity > 0 else math.nan)
    return out


def replacement_deadline(eviction: Eviction, policy: RebalancerPolicy, ledger: Ledger, *, now: float) -> float:
    """When the replacement is late: after the grace period and the usual start-up time of the service's pods."""
    in_flight = policy.safety.in_flight
    start_up = typical_start_up(ledger.start_ups(str(eviction.service)), otherwise=in_flight.start_up)
    return now + eviction.reserved.grace_seconds + start_up + in_flight.margin
