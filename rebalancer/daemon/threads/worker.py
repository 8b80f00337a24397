"""The worker thread of the leader: takes approved proposals, requests and due alerts, and runs a cycle for each."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import structlog

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.proposals import carry_out
from rebalancer.cycle.run import begin_report, execute_cycle
from rebalancer.cycle.triggers.alert_requests import (
    RETRY_SECONDS,
    ActionableEpisode,
    AlertedNodes,
    AlertSpacing,
    RejectedEpisode,
    close_rejected,
    excess_since,
    record_results,
    resolve_episode,
    with_alerts,
)
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.daemon.triggers import TriggerQueue
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.ports import Inbox, Proposals
from rebalancer.model.decisions.proposals import Proposal
from rebalancer.model.errors import RebalancerError
from rebalancer.model.parts import FailedParts, ends_process
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools

LOG = structlog.get_logger("rebalancer")

LONGEST_NAP_SECONDS = 5.0
"""Longest interval between reads of the inbox and of what is approved: other processes may write both."""

SHORTEST_NAP_SECONDS = 0.5
"""Shortest interval; an alert received by this replica ends the wait."""

PAUSE_AFTER_ERROR_SECONDS = 10.0

CYCLES, ALERTS, APPROVALS = "cycles", "alerts", "approvals"
"""Names of parts that may fail."""

MAX_LINES = 20
"""Most log lines for the rejected alerts of one cycle."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """Runs cycles, on the leader only."""

    queue: TriggerQueue
    inbox: Inbox
    active: Callable[[], Active]
    leads: Callable[[], bool]
    """Whether this replica may evict and has read the cluster."""
    begin_term: Callable[[], None]
    """Called before each request is taken. Raises RebalancerError."""
    leading: Callable[[], AbstractContextManager[bool]]
    """The same as `leads` for a cycle in its block, in the term that was begun."""
    stopping: Callable[[], bool]
    done: Callable[[CycleReport, float], None]
    """Receives each cycle's report and its duration in seconds, also after an error."""
    failed: Callable[[Trigger, str], None]
    """Receives the trigger and error of a cycle that did not begin."""
    parts: FailedParts
    dry_run: bool = False
    _spacing: AlertSpacing = field(default_factory=AlertSpacing)
    _passed: bool = False
    """Whether alerts went past a periodic request last. The next time they share its cycle."""

    def run(self) -> None:
        """Run until `stopping`. Raises VitalError, MemoryError."""
        while not self.stopping():
            if not self.leads():
                time.sleep(0.1)
                continue
            try:
                self.begin_term()
                request = self.queue.take(self._nap(), monotonic=time.monotonic)
                with self.leading() as leads:
                    if leads:
                        self.carry_out_approved()
                        self.work(request)
                    elif request is not None:
                        self.queue.put(request)
            except RebalancerError as error:
                LOG.error("cycle failed", error=str(error))
                self._rest(PAUSE_AFTER_ERROR_SECONDS)
            except Exception as error:  # noqa: BLE001 - noted by its part
                # the request is gone: if it was the cause, the next cycle goes on without it
                part = self.parts.failed(CYCLES, error)
                self._rest(max(PAUSE_AFTER_ERROR_SECONDS, part.wait_seconds))

    def carry_out_approved(self) -> None:
        """A cycle for each proposal that was approved. One that couldn't be looked at is tried again later, until it
        expires; other cycles go on. Raises VitalError, MemoryError."""
        active = self.active()
        kept = active.context.proposals
        if kept is None or self.dry_run or self.parts.waiting(APPROVALS) is not None:
            return
        try:
            try:
                approved = kept.approved()
            except RebalancerError:
                return  # the database is away: the alerts are read from it next, and say so
            failed: list[Exception] = []
            for proposal in approved:
                if self.stopping():
                    return
                try:
                    self._carry_out(active.context, kept, active.policy, proposal)
                except Exception as error:
                    if ends_process(error):
                        raise
                    failed.append(error)
            if failed:
                raise failed[0]
        except RebalancerError as error:
            self.parts.failed(APPROVALS, str(error))
        except Exception as error:  # noqa: BLE001 - noted by its part
            self.parts.failed(APPROVALS, error)
        else:
            self.parts.worked(APPROVALS)

    def _carry_out(self, context: CycleContext, kept: Proposals, policy: RebalancerPolicy, proposal: Proposal) -> None:
        report = begin_report(context, policy, trigger=Trigger.APPROVAL, dry_run=False, cycle=proposal.run)
        with structlog.contextvars.bound_contextvars(cycle=report.id, trigger=str(report.trigger)):
            began = time.monotonic()
            try:
                carry_out(context, kept, policy, proposal, report)
            finally:
                if report.finished_at is not None or report.evictions:
                    took = time.monotonic() - began
                    _log(report, took)
                    self.done(report, took)
        after = kept.named(proposal.id)
        if after is not None:
            LOG.info("proposal", id=after.id, by=after.decided_by, state=str(after.state), reason=after.reason)

    def work(self, request: CycleRequest | None) -> CycleReport | None:
        """One cycle for the request and the due alerts; None without either. Alerts go before a periodic request, which
        returns to the queue, once; then they share its cycle.

        Raises RebalancerError if nothing could be observed; the request returns to the queue. After any other error
        it doesn't.
        """
        if self.stopping():
            return None
        active = self.active()
        context, policy = active.context, active.policy
        try:
            try:
                actionable, snapshot = self._due(context, policy)
            except RebalancerError as error:
                self.failed(request.trigger if request else Trigger.ALERT, str(error))
                raise
            if request is not None and actionable and request.trigger is Trigger.PERIODIC and not self._passed:
                # an alert doesn't wait for a plan of the whole cluster
                self.queue.put(request)
                request, self._passed = None, True
            elif request is not None:
                self._passed = False
            merged = with_alerts(request, actionable)
            return None if merged is None else self._cycle(context, policy, merged, actionable, snapshot)
        except RebalancerError:
            if request is not None:
                self.queue.put(request)
            raise

    def _cycle(
        self,
        context: CycleContext,
        policy: RebalancerPolicy,
        request: CycleRequest,
        actionable: list[ActionableEpisode],
        snapshot: ClusterSnapshot | None,
    ) -> CycleReport:
        report = begin_report(context, policy, trigger=request.trigger, dry_run=self.dry_run)
        with structlog.contextvars.bound_contextvars(cycle=report.id, trigger=str(request.trigger)):
            began = time.monotonic()
            try:
                execute_cycle(context, policy, report, request=request, snapshot=snapshot)
                if report.stopped is None:
                    # one that decided nothing keeps no alert waiting: its cause may have ended
                    self._spacing.count(actionable, report.started_at)
                record_results(self.inbox, actionable, report, now=context.clock.now())
                self.parts.worked(CYCLES)
            finally:
                # reported after an error too: pods may have been evicted
                took = time.monotonic() - began
                _log(report, took)
                self.done(report, took)
        return report

    def _due(
        self, context: CycleContext, policy: RebalancerPolicy
    ) -> tuple[list[ActionableEpisode], ClusterSnapshot | None]:
        """The due alerts, and the snapshot that they were read by: the cycle decides on it. None where reading them
        fails unexpectedly: other cycles go on."""
        if self.parts.waiting(ALERTS) is not None:
            return [], None
        try:
            episodes = self.inbox.due(expire_after_seconds=policy.alerts.expire_after)
            if not episodes:
                self.parts.worked(ALERTS)
                return [], None
            snapshot = context.cluster.snapshot()
            actionable = self._read(episodes, snapshot, context, policy)
        except RebalancerError:
            raise
        except Exception as error:  # noqa: BLE001 - noted by its part
            self.parts.failed(ALERTS, error)
            return [], None
        self.parts.worked(ALERTS)
        return actionable, snapshot

    def _read(
        self,
        episodes: Sequence[AlertEpisode],
        snapshot: ClusterSnapshot,
        context: CycleContext,
        policy: RebalancerPolicy,
    ) -> list[ActionableEpisode]:
        now = context.clock.now()
        moves = context.records.recent_moves(min(excess_since(each, policy, now) for each in episodes))
        nodes = AlertedNodes(snapshot, NodePools.of(policy.pools, snapshot.nodes).by_node, moves)
        read = [resolve_episode(each, nodes, policy, now=now) for each in episodes]
        rejected = [each for each in read if isinstance(each, RejectedEpisode)]
        for reason, count in Counter(each.reason for each in rejected).most_common(MAX_LINES):
            LOG.warning("alerts rejected", reason=reason, alerts=count)
        close_rejected(self.inbox, rejected, now=now)
        actionable = [each for each in read if isinstance(each, ActionableEpisode)]
        return [each for each in actionable if not self._postponed(each, now)]

    def _postponed(self, each: ActionableEpisode, now: float) -> bool:
        """Whether the episode waits, since its node had a cycle just now; it is then tried again at the right time."""
        next_at = self._spacing.next_at(each, now)
        if next_at <= now:
            return False
        reason = f"{each.node} had a cycle of {each.strategy} less than {RETRY_SECONDS:g} s ago"
        self.inbox.tried(each.episode, reason=reason, next_at=next_at)
        return True

    def _nap(self) -> float:
        if self.parts.waiting(ALERTS) is not None:
            return LONGEST_NAP_SECONDS
        try:
            due = self.inbox.next_at()
        except RebalancerError:
            raise
        except Exception as error:  # noqa: BLE001 - noted by its part
            self.parts.failed(ALERTS, error)
            return LONGEST_NAP_SECONDS
        if due is None:
            return LONGEST_NAP_SECONDS
        # the database's clock may be behind, so an alert that is due here may not be due there yet
        return min(max(due - self.active().context.clock.now(), SHORTEST_NAP_SECONDS), LONGEST_NAP_SECONDS)

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopping() and time.monotonic() < end:
            time.sleep(0.1)


def _log(report: CycleReport, took: float) -> None:
    evicted = sum(each.answered.outcome is Outcome.EVICTED for each in report.evictions)
    LOG.info(
        "cycle",
        seconds=round(took, 3),
        finished=report.finished_at is not None,
        findings=len(report.findings),
        evicted=evicted,
        planned=len(report.evictions),
        refused=len(report.refusals),
        stopped=report.stopped.message if report.stopped else None,
        interrupted=report.interrupted.message if report.interrupted else None,
        notes=report.notes,
    )
    for each in report.evictions:
        LOG.info(
            "eviction",
            pod=f"{each.namespace}/{each.pod}",
            node=each.node,
            target_node=each.target_node,
            outcome=str(each.answered.outcome),
            reason=each.reason,
            detail=each.answered.detail,
        )
