"""One cycle in a process of its own, by the lab's clock, that may be killed on its way: `begin(...)`, then `end`.

The program's edge is wrapped, from outside: before and after each call there is a step, and at the step with a given
number the process kills itself with SIGKILL. Processes come from a fork server that has imported the program already:
each is a real one, and starts at once.
"""

import faulthandler
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Lock
from typing import Any

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.kube.actions.evict import KubeEvictor
from rebalancer.kube.client.client import ApiClient
from rebalancer.policy import load_policy
from rebalancer.prometheus.readings import reader
from rebalancer.store import SqlLedger, SqlRecords
from rebalancer.store.ledger import outcomes, reconcile, reservations

PRELOADED = (
    "tests.e2e.programs",
    "numpy.ma",  # np.unique imports it when it is first called
    "rebalancer.kube.leader.lease",
    "rebalancer.strategies.low_node_utilization",
)
"""What every run imports: the fork server does it once."""

STEPS = {
    "begin: after",
    "reserve: before",
    "reserve: scopes locked",
    "reserve: rows written",
    "reserve: after",
    "evict: before",
    "evict: pod read again",
    "evict: call answered",
    "evict: after",
    "outcome: before",
    "outcome: row written",
    "outcome: after",
    "finish: before",
    "finish: after",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedClock:
    """The lab's clock, as another process of the same machine reads it."""

    started_at: float
    origin: float
    """`time.monotonic()` of the lab's first moment: it is the machine's, not the process's."""
    speed: float

    def now(self) -> float:
        return self.started_at + (time.monotonic() - self.origin) * self.speed

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds / self.speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run."""

    policy: Path
    kubeconfig: Path
    database: Path
    clock: SharedClock
    trace: Path
    """Gets a line for each step, before it is made."""
    kill_at: int = 0
    """Number of the step that is the last; 0 = none."""


class Fuse:
    """Counts the steps, and kills at one of them."""

    def __init__(self, trace: Path, kill_at: int) -> None:
        self._trace = trace
        self._kill_at = kill_at
        self._count = 0

    def step(self, name: str) -> None:
        self._count += 1
        with self._trace.open("a") as file:
            file.write(f"{name}\n")
        if self._count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(
        self, where: Any, name: str, *, before: str = "", after: str = "", only: Callable[..., bool] = bool
    ) -> None:
        """Steps around `where.name`; without `only` (asked with the call's arguments) around each call."""
        original = getattr(where, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            counts = only is bool or only(*args, **kwargs)
            if before and counts:
                self.step(before)
            answer = original(*args, **kwargs)
            if after and counts:
                self.step(after)
            return answer

        setattr(where, name, wrapped)


def lay(fuse: Fuse) -> None:
    """Put the steps around the program's edge, in this process."""
    fuse.wrap(SqlRecords, "begin", after="begin: after")
    fuse.wrap(SqlLedger, "_reconcile", before="reconcile: before", after="reconcile: after")
    fuse.wrap(SqlRecords, "finish", before="finish: before", after="finish: after")
    fuse.wrap(SqlLedger, "reserve_all", before="reserve: before", after="reserve: after")
    # both inside of the transaction: nothing is committed yet
    fuse.wrap(reservations, "lock_scopes", after="reserve: scopes locked")
    fuse.wrap(reservations, "add_entries", after="reserve: rows written")
    fuse.wrap(SqlLedger, "outcomes", before="outcome: before", after="outcome: after")
    for module in (outcomes, reconcile):
        fuse.wrap(
            module, "change_eviction", after="outcome: row written", only=lambda *_, **values: "outcome" in values
        )
    fuse.wrap(KubeEvictor, "evict", before="evict: before", after="evict: after")
    fuse.wrap(KubeEvictor, "_reread", after="evict: pod read again")
    fuse.wrap(ApiClient, "send", after="evict: call answered", only=lambda *args, **_: args[2].endswith("/eviction"))


def run(job: Job) -> None:
    """The run, in the process that may die."""
    faulthandler.enable()  # a fatal signal prints where each thread was: pytest shows it with a failure
    lay(Fuse(job.trace, job.kill_at))
    # one machine, one clock: at this speed two seconds without a CPU look like clocks that disagree
    reader.CLOCK_SLACK_SECONDS *= job.clock.speed
    policy = load_policy(job.policy.read_bytes(), source=str(job.policy))
    settings = Settings(database=f"sqlite:///{job.database}", kubeconfig=str(job.kubeconfig))
    with acting_context(policy, settings, progress=NullProgress(), clock=job.clock) as world:
        report = run_cycle(world, policy, dry_run=False).report
    if report.stopped is not None or report.interrupted is not None:
        raise SystemExit(3)


def begin(job: Job) -> ForkServerProcess:
    """Start it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    process = context.Process(target=run, args=(job,))
    with _one_at_a_time:
        process.start()
    return process


def end(process: ForkServerProcess, seconds: float) -> int | None:
    """See that it is gone. The exit code; None when it ran for longer than this, and was killed."""
    wait([process.sentinel], seconds)
    with _one_at_a_time:
        code = process.exitcode
        process.kill()
        process.join()
        process.close()
    return code


_one_at_a_time = Lock()
"""`start` looks after all processes that have ended. The exit code can be read once, and another thread that waits for
it gets 255."""
