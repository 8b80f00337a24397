"""The daemon process: start, threads and shutdown.

Followers serve the webhook, health and metrics and keep a warm cache; the leader evicts. After the first SIGTERM the
daemon starts no work, finishes and records the calls in flight, removes its taints and releases the Lease. A second
SIGTERM ends the process immediately.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import structlog

from rebalancer.bootstrap.daemon import DaemonResources, open_daemon_resources
from rebalancer.bootstrap.process.approval_key import approval_links
from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.evict.surges import undo
from rebalancer.cycle.report.events import publish_events
from rebalancer.daemon import telemetry
from rebalancer.daemon.memory import release_free_memory
from rebalancer.daemon.notifying import Notifier
from rebalancer.daemon.readiness import Readiness
from rebalancer.daemon.reload import PolicyFile
from rebalancer.daemon.supervisor import Heartbeat, Supervisor
from rebalancer.daemon.terms import Terms
from rebalancer.daemon.threads.gauges import GaugesThread
from rebalancer.daemon.threads.journaling import JournalWriter
from rebalancer.daemon.threads.loops import EvaluationThread, ForecastThread, SurgeThread
from rebalancer.daemon.threads.policies import ActivePolicy, PolicyThread
from rebalancer.daemon.threads.worker import Worker
from rebalancer.daemon.triggers import Timer, TriggerQueue, manual_request
from rebalancer.dashboard.sources import Sources
from rebalancer.dashboard.views import LiveViews
from rebalancer.model.cluster.steering import MAINTENANCE
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ConfigError, RebalancerError, UnsafeDataError
from rebalancer.model.parts import FailedPart
from rebalancer.notifications.outbox import Outbox
from rebalancer.web import Auth, Metrics, WebPorts, WebServer, make_app, make_health_app
from rebalancer.web.http.server import is_loopback, parse_listen
from rebalancer.web.pages.proposals import Approvals

LOG = structlog.get_logger("rebalancer")

STOP_SECONDS = 6.0
"""Time for the calls in flight to finish after SIGTERM."""

CLEAR_SECONDS = 2.0
"""Time for removing taints after that; the next leader removes the rest."""
UNDO_SECONDS = 4.0
"""Time for undoing surges before that; the next leader goes on with the rest."""

THREAD_DIED_EXIT = 1


LEADERSHIP = "leadership"
"""The thread of the lease."""


class StoppableClock:
    """The clock of the cycles; `sleep` ends within a second of `stopping` being true."""

    def __init__(self, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._clock = clock
        self._stopping = stopping

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        # what was slept is counted, for the clock may be set back meanwhile
        while seconds > 0 and not self._stopping():
            self._clock.sleep(min(seconds, 1.0))
            seconds -= 1.0


@dataclass(slots=True, kw_only=True)
class Daemon:
    """One daemon process; `run` once."""

    policy_file: PolicyFile
    settings: Settings
    clock: Clock | None = None
    """Clock of cycles and ledger when both use a practice cluster's; None = the machine's and the database's."""
    dry_run: bool = False
    ready: Callable[[str], None] | None = None
    """Called with the web server's address once it listens."""

    def run(self) -> int:
        """Run until a signal or a dead thread; the exit code. Raises RebalancerError if the start fails."""
        metrics, settings = Metrics(), self.settings
        policy, address = self.policy_file.policy, web_address(settings)
        with ExitStack() as stack:
            opened = open_daemon_resources(policy, settings, clock=self.clock, dry_run=self.dry_run)
            resources = stack.enter_context(opened)
            supervisor = Supervisor(resources.parts)
            resources.parts.observers.append(partial(_part_failed, metrics))
            parts = _Parts(self, resources, supervisor, metrics)
            ports = parts.web_ports()
            health = None
            if settings.health_listen is not None:
                health = WebServer(make_health_app(ports, metrics=metrics), settings.health_listen, name="health")
                health.start()
                stack.callback(health.stop, 1.0)
            web = WebServer(
                make_app(ports, auth=_auth(settings), metrics=metrics),
                listen=address,
                tls_cert_file=settings.tls_cert_file,
                tls_key_file=settings.tls_key_file,
            )
            web.start()
            stack.callback(web.stop, 1.0)
            _signals(supervisor)
            resources.cluster.start()
            stack.callback(resources.cluster.stop)
            timer = Timer(parts.queue, leftovers=parts.leftovers)
            timer.start(policy)
            stack.callback(timer.stop)
            for name, run in parts.threads(timer).items():
                supervisor.start(name, run, vital=name == LEADERSHIP)
            LOG.info(
                "started", cluster=policy.cluster, address=web.url, health=health and health.url, dry_run=self.dry_run
            )
            if self.ready is not None:
                self.ready(web.url)
            ending = supervisor.wait()
            parts.queue.wake()
            running = supervisor.join(STOP_SECONDS, monotonic=time.monotonic)
            if resources.leadership.holds() and not self.dry_run:
                _leave_nothing(parts.active.current().context)
            resources.leadership.release()
        if running:
            LOG.error("stopped with threads still running", threads=running)
        if ending is None:
            LOG.info("stopped")
            return 0
        return THREAD_DIED_EXIT


class _Parts:
    """What the threads and the web server share."""

    def __init__(self, daemon: Daemon, resources: DaemonResources, supervisor: Supervisor, metrics: Metrics) -> None:
        self._daemon = daemon
        self._resources = resources
        self._metrics = metrics
        self._heartbeat = heartbeat = Heartbeat(stopping=supervisor.stopping)
        self._clock = StoppableClock(daemon.clock or SystemClock(), heartbeat.beat)
        self._links = approval_links(daemon.settings)
        self.queue = TriggerQueue()
        self.active = active = ActivePolicy(
            daemon.policy_file.policy,
            resources=resources,
            clock=self._clock,
            cycle_clock=StoppableClock(self._clock, lambda: heartbeat.beat() or not resources.leadership.holds()),
            heartbeat=heartbeat,
        )
        self._terms = Terms(resources=resources, queue=self.queue, renew=active.renew)
        self._readiness = Readiness(
            active=active.current, resources=resources, file=daemon.policy_file, heartbeat=heartbeat
        )
        self._views = LiveViews(
            Sources(
                current=active.current,
                leadership=resources.leadership,
                ledger=resources.ledger,
                inbox=resources.inbox,
                archive=resources.archive,
                effect=resources.effect,
                forecasts=resources.forecasts,
                clock=self._clock,
                dry_run=daemon.dry_run,
                policy_data=lambda: daemon.policy_file.data,
                grafana_url=daemon.settings.grafana_url or "",
                docs_url=daemon.settings.docs_url or "",
                history_dir=daemon.settings.history_dir,
                failed_parts=resources.parts.current,
                overdue=self._readiness.overdue,
            )
        )
        self._journal = JournalWriter(
            journal=resources.journal,
            ledger=resources.ledger,
            inbox=resources.inbox,
            snapshot=resources.cluster.snapshot,
            leads=resources.leads,
            clock=self._clock,
            parts=resources.parts,
        )
        active.observers |= {"dashboard": self._views.measured, "journal of usage": self._journal.observed}
        self._outbox = Outbox(
            lambda: active.current().policy.notifications.receivers,
            lambda receiver, result: metrics.notifications.labels(receiver=receiver, result=result).inc(),
            supervisor.stopping,
        )
        self._notifier = Notifier(
            outbox=self._outbox,
            active=active.current,
            ledger=resources.ledger,
            effect=resources.effect,
            links=self._links,
            dry_run=daemon.dry_run,
        )

    def web_ports(self) -> WebPorts:
        return WebPorts(
            inbox=self._resources.inbox,
            policy=lambda: self.active.current().policy,
            wake=self.queue.wake,
            trigger=self._trigger,
            alive=self._readiness.alive,
            checks=self._readiness.checks,
            views=None if self._daemon.settings.dashboard == "off" else self._views,
            views_open=self._daemon.settings.dashboard == "open",
            views_hosts=self._daemon.settings.dashboard_names,
            proposals=self._resources.proposals.all,
            approvals=self._approvals(),
            parts=self._resources.parts,
        )

    def _approvals(self) -> Approvals | None:
        """None without a key, and in dry run, where nothing is carried out."""
        if self._links is None or self._daemon.dry_run:
            return None
        return Approvals(
            desk=self._resources.proposals,
            links=self._links,
            cluster=lambda: self.active.current().policy.cluster,
            now=self._clock.now,
            wake=self.queue.wake,
        )

    def leftovers(self) -> bool:
        """Whether a soft taint, a cordon of a drain or an eviction in flight waits for another cycle."""
        taints = self.active.current().context.soft_taint_controller.held.values()
        try:
            return any(value != MAINTENANCE for value in taints) or bool(self._resources.ledger.open_evictions())
        except RebalancerError:
            return False

    def threads(self, timer: Timer) -> dict[str, Callable[[], None]]:
        """Name -> what the thread runs."""
        resources, metrics, stopping, active = self._resources, self._metrics, self._heartbeat.stopping, self.active
        worker = Worker(
            queue=self.queue,
            inbox=resources.inbox,
            active=active.current,
            leads=resources.leads,
            begin_term=self._terms.begin,
            leading=self._terms.leading,
            stopping=self._heartbeat.beat,
            done=self._cycle_done,
            failed=lambda trigger, _: telemetry.count_failure(metrics, str(trigger)),
            parts=resources.parts,
            dry_run=self._daemon.dry_run,
        )
        policies = PolicyThread(
            file=self._daemon.policy_file,
            active=active,
            timer=timer,
            resources=resources,
            clock=self._clock,
            metrics=metrics,
        )
        forecasts = ForecastThread(
            active=active.current, leads=resources.leads, clock=self._clock, queue=self.queue, metrics=metrics
        )
        evaluation = EvaluationThread(
            active=active.current, resources=resources, notifier=self._notifier, metrics=metrics
        )
        gauges = GaugesThread(resources=resources, metrics=metrics, policy=lambda: active.current().policy)
        surges = SurgeThread(active=active.current, leads=lambda: resources.leads() and not self._daemon.dry_run)
        return {
            LEADERSHIP: partial(resources.leadership.run, stopping),
            "cycles": worker.run,
            "policy": partial(policies.run, stopping),
            "gauges": partial(gauges.run, stopping),
            "forecast": partial(forecasts.run, stopping),
            "effect": partial(evaluation.run, stopping),
            "surges": partial(surges.run, stopping),
            "notifications": self._outbox.run,
            "journal": partial(self._journal.run, stopping),
        }

    def _cycle_done(self, report: CycleReport, seconds: float) -> None:
        self._readiness.cycle_done()
        after: dict[str, Callable[[], object]] = {
            "metrics of a cycle": partial(telemetry.count, self._metrics, report, seconds),
            "events of a cycle": partial(publish_events, self._resources.events, report),
            "notifications of a cycle": partial(self._notifier.cycle_done, report),
            "dashboard of a cycle": partial(self._views.done, report),
        }
        for name, call in after.items():
            self._resources.parts.attempt(name, call)
        self._journal.cycle_done()
        release_free_memory()

    def _trigger(self, nodes: Sequence[str], strategy: str | None) -> None:
        leadership = self._resources.leadership
        if not leadership.holds():
            raise UnsafeDataError(f"this replica is not the leader: {leadership.waiting_for}")
        self.queue.put(manual_request(self.active.current(), nodes, strategy))


def web_address(settings: Settings) -> str:
    """Where the web server listens. Raises ConfigError for a public address that would take requests from everyone."""
    has_secret = bool(settings.bearer_token_file or settings.basic_auth_file)
    if settings.listen is None:
        return "0.0.0.0:8080" if has_secret else "127.0.0.1:8080"
    if settings.insecure_no_auth and not has_secret and not is_loopback(parse_listen(settings.listen)[0]):
        raise ConfigError(
            f"listen {settings.listen}: without credentials the web API listens on loopback only: set "
            "REBALANCER_BEARER_TOKEN_FILE or REBALANCER_BASIC_AUTH_FILE, or REBALANCER_LISTEN=127.0.0.1:PORT, or leave "
            "out REBALANCER_INSECURE_NO_AUTH"
        )
    return settings.listen


def _auth(settings: Settings) -> Auth:
    """Raises ConfigError for an unusable credentials file."""
    auth = Auth(
        bearer_token_file=settings.bearer_token_file,
        basic_auth_file=settings.basic_auth_file,
        insecure_no_auth=settings.insecure_no_auth,
    )
    auth.check_files()
    return auth


def _part_failed(metrics: Metrics, part: FailedPart, error: Exception | None) -> None:
    metrics.part_failures.labels(part=part.name).inc()
    LOG.error(
        "part failed",
        part=part.name,
        cause=part.cause,
        failures=part.failures,
        retry_seconds=part.wait_seconds,
        # a line for each failure, a trace for the first
        exc_info=error if part.failures == 1 else None,
    )


def _leave_nothing(context: CycleContext) -> None:
    """Undo surges and remove taints: after an uninstallation no other process does it."""
    undo(context.surges, seconds=UNDO_SECONDS)
    context.soft_taint_controller.clear(seconds=CLEAR_SECONDS)


def _signals(supervisor: Supervisor) -> None:
    def stop(number: int, _: object) -> None:
        if supervisor.stopping.is_set():
            os._exit(128 + number)
        supervisor.stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
