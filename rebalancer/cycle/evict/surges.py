"""Surges, carried out: each step is one call, or one new state in its row.

The row says before a call until when it may be under way, and after its answer what it changed. So whichever process
goes on, and wherever this one stopped, nothing is done twice and nothing is left behind.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rebalancer.cycle.evict.surge_steps import REMOVAL_SECONDS, WAIT, next_step, refuses
from rebalancer.cycle.isolation import vital
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.decisions.surges import (
    FAILED,
    FORWARD,
    PAUSED,
    STOPPED,
    SWITCHED_OFF,
    Surge,
    SurgeCall,
    SurgeCalls,
    SurgeRecords,
    Surges,
    SurgeState,
)
from rebalancer.model.errors import ConnectError, RebalancerError
from rebalancer.model.notation.figures import counted
from rebalancer.model.reason import Reason, Refusal

LOG = logging.getLogger("rebalancer")

CALL_SECONDS = 100.0
"""A call without an answer may be carried out for so long after its row was written: the client's timeouts, and the
time that the API server works on a request."""
SEND_SECONDS = 20.0
"""A call that has not left so long after its row was written is not sent."""
UNDO_SECONDS = 10.0
"""Time for undoing surges after an error."""
STEPS_AT_ONCE = 12
"""More than a surge has; each conflict costs one."""
IDLE_SECONDS = 60.0
"""After a look that found none open; one that this process begins ends it."""
POLL_SECONDS, POLL_SECONDS_OF_ONE = 2.0, 0.2
"""Between two looks at the surges that are not over; longer for many, since each look reads a Deployment and its
pods."""


class SurgeLoop:
    """Implements `model.decisions.surges.Surges`. Thread-safe."""

    def __init__(
        self,
        *,
        records: SurgeRecords,
        calls: SurgeCalls,
        may: Callable[[], bool],
        wanted: Callable[[Surge], bool],
    ) -> None:
        """`may` is asked before each call: whether this process leads. `wanted`: whether the policy has replacement
        first for its service; otherwise it is undone."""
        self._records, self._calls, self._may, self._wanted = records, calls, may, wanted
        self._lock = threading.Lock()
        self._ending = False
        self._idle_until = 0.0
        """Monotonic time until which no row need be read."""
        self._problems: dict[int, str] = {}
        """Surge -> why it can't go on now."""

    def begin(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """See `Surges`. EVICTED in the background once the row is written, unless it is undone already."""
        record = eviction.reserved.record
        surge = Surge(
            id=0,
            eviction=record or 0,
            namespace=eviction.namespace,
            deployment=eviction.service.name,
            deployment_uid=eviction.owner_uid,
            pod=eviction.pod,
            pod_uid=eviction.uid,
            replicas=0,
            state=SurgeState.STARTED,
            reason="",
            deadline_at=eviction.reserved.deadline_at,
            quiet_at=0.0,
        )
        try:
            view = self._calls.look(surge)
            refusal = refuses(view, eviction)
            if refusal is not None or view.deployment is None:
                return Answer(outcome=Outcome.REFUSED, refusal=refusal)
            surge = replace(surge, replicas=view.deployment.replicas)
            if server_dry_run:
                probes = (
                    self._calls.send(each, surge, view, dry_run=True) for each in (SurgeCall.MARK, SurgeCall.GROW)
                )
                refusal = next(filter(None, probes), None)
                return Answer(outcome=Outcome.PLANNED if refusal is None else Outcome.REFUSED, refusal=refusal)
        except RebalancerError as error:
            return Answer(outcome=Outcome.FAILED, refusal=Refusal.of(Reason.SERVER_ERROR, str(error)))
        if not self._may():
            return Answer(outcome=Outcome.FAILED, refusal=Refusal.of(Reason.LEASE_LOST))
        self._idle_until = 0.0
        with vital("recording a surge"):
            begun = self._records.begin(replace(surge, quiet_at=self._records.now()))
        if begun is None:
            return Answer(outcome=Outcome.REFUSED, refusal=Refusal.of(Reason.EVICTION_IN_PROGRESS, surge.deployment))
        with self._lock:
            after, refusal = self._advanced(begun)
        if after.state in FAILED:
            refusal = refusal or Refusal.of(Reason.SURGE_UNDONE, after.reason)
            return Answer(outcome=Outcome.REFUSED, refusal=refusal)
        return Answer(outcome=Outcome.EVICTED, in_background=True)

    def turn(self) -> int:
        """See `Surges`. Raises ConfigError, ConnectError where the rows can't be read."""
        with self._lock:
            if not self._may() or time.monotonic() < self._idle_until:
                return 0
            surges = self._records.open()
            after = [self._advanced(each)[0] for each in surges]
            self._problems = {id_: why for id_, why in self._problems.items() if id_ in {each.id for each in surges}}
            left = sum(not each.over for each in after)
            self._idle_until = 0.0 if left else time.monotonic() + IDLE_SECONDS
        return left

    def undo(self, *, seconds: float) -> None:
        """See `Surges`. Raises ConfigError, ConnectError where the rows can't be read."""
        end = time.monotonic() + seconds
        self._ending = True
        if self._lock.acquire(timeout=seconds):
            try:
                for each in self._records.open() if self._may() else ():
                    if time.monotonic() < end:
                        self._advanced(each)
            finally:
                self._lock.release()

    def _advanced(self, surge: Surge) -> tuple[Surge, Refusal | None]:
        """How far it has come, and the last refusal of a call. An error ends its turn, and is logged once."""
        refusal: Refusal | None = None
        try:
            surge = self._records.get(surge.id)
            for _ in range(STEPS_AT_ONCE):
                after, refused = self._step(surge)
                refusal = refused or refusal
                if after is None:
                    break
                surge = after
        except RebalancerError as error:
            if self._problems.get(surge.id) != str(error):
                self._problems[surge.id] = str(error)
                LOG.warning("replacement first: %s/%s: %s", surge.namespace, surge.pod, error)
        return surge, refusal

    def _step(self, surge: Surge) -> tuple[Surge | None, Refusal | None]:
        """The surge after its next step, None where it waits or is over; and why a call was refused."""
        if surge.over or not self._may():
            return None, None
        view, now = self._calls.look(surge), self._records.now()
        step = next_step(surge, view, now=now, barred=self._barred(surge), manager=self._calls.manager)
        if step == WAIT:
            return None, None
        if step.call is None:
            assert step.to is not None
            after = replace(surge, state=step.to, reason=step.reason or surge.reason)
            if after.state is SurgeState.UNDOING:
                LOG.info("replacement first is undone: %s/%s: %s", surge.namespace, surge.pod, after.reason)
            return self._changed(surge, after), None
        began = time.monotonic()
        sending = replace(surge, quiet_at=max(surge.quiet_at, now + CALL_SECONDS))
        if not self._records.change(surge, sending) or not self._may():
            return None, None

        def may_send() -> bool:
            return self._may() and time.monotonic() - began <= SEND_SECONDS

        refused = self._calls.send(step.call, surge, view, may=may_send)
        after = surge
        if refused is None and step.call is SurgeCall.GROW:
            after = replace(surge, state=SurgeState.GROWN)
        elif refused is None and surge.state is SurgeState.SHRINKING:
            after = sending  # its ReplicaSet has time from now on
        elif refused is not None and refused.code is not Reason.SERVER_UID_CHANGED:
            if surge.state not in FORWARD or step.call is SurgeCall.SHRINK:
                self._changed(sending, after)
                raise ConnectError(f"{step.call}: {refused.message}")
            after = replace(surge, state=SurgeState.UNDOING, reason=refused.message)
        return self._changed(sending, after), refused

    def _barred(self, surge: Surge) -> str:
        """Why a surge that goes forward must not."""
        if surge.state not in FORWARD:
            return ""
        if self._ending:
            return STOPPED
        if not self._wanted(surge):
            return SWITCHED_OFF
        return PAUSED if self._records.paused(surge) else ""

    def _changed(self, before: Surge, after: Surge) -> Surge:
        """The row after the change; as it is where another process has changed it."""
        return after if self._records.change(before, after) else self._records.get(before.id)


def finish(surges: Surges | None, evictions: Sequence[Eviction], clock: Clock) -> int:
    """Advance until none is open, and for those of these evictions until each had the time to be undone: how many are
    still open. Raises ConfigError, ConnectError."""
    deadlines = [each.reserved.deadline_at for each in evictions if each.in_plan.replacement_first]
    until = max(deadlines, default=clock.now()) + REMOVAL_SECONDS + CALL_SECONDS
    while surges is not None and (left := surges.turn()):
        if clock.now() >= until:
            return left
        clock.sleep(poll_seconds(left))
    return 0


@contextmanager
def finished(surges: Surges | None, report: CycleReport, clock: Clock) -> Iterator[None]:
    """A block whose surges are over before the process ends; after an error they are undone. Raises as `finish`."""
    try:
        yield
        if left := finish(surges, report.evictions, clock):
            report.notes.append(f"{counted(left, 'move')} by replacement first left to the next run, or to a daemon")
    except BaseException:  # an interrupt too: nothing of this process may stay behind
        undo(surges, seconds=UNDO_SECONDS)
        raise


def undo(surges: Surges | None, *, seconds: float) -> None:
    """Undo what is open before the process ends. Where that fails the next leader goes on with it."""
    try:
        if surges is not None:
            surges.undo(seconds=seconds)
    except RebalancerError as error:
        LOG.warning("replacement first: left to the next leader: %s", error)


def poll_seconds(left: int) -> float:
    """Until the next look, with so many surges that are not over."""
    return max(POLL_SECONDS, POLL_SECONDS_OF_ONE * left)
