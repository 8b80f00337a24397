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
from dataclasses import dataclass, replace
from functools import partial

import structlog

from rebalancer.bootstrap.daemon import DaemonResources, open_daemon_resources
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.context import SystemClock
from rebalancer.cycle.isolation import isolated
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.daemon import telemetry
from rebalancer.daemon.journaling import JournalWriter
from rebalancer.daemon.memory import release_free_memory
from rebalancer.daemon.notifying import Notifier
from rebalancer.daemon.reload import PolicyFile
from rebalancer.daemon.supervisor import Supervisor
from rebalancer.daemon.triggers import Timer, TriggerQueue
from rebalancer.daemon.worker import Heartbeat, Worker
from rebalancer.dashboard.views import LiveViews, Sources
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Owner
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ConfigError, RebalancerError, UnsafeDataError
from rebalancer.model.measured.usage import Usage
from rebalancer.notifications.outbox import Outbox
from rebalancer.policy import RebalancerPolicy
from rebalancer.web import Auth, Metrics, WebPorts, WebServer, make_app, make_health_app
from rebalancer.web.app import ReadyCheck
from rebalancer.web.http.server import is_loopback, parse_listen

LOG = structlog.get_logger("rebalancer")

STOP_SECONDS = 6.0
"""Time for the calls in flight to finish after SIGTERM."""

CLEAR_SECONDS = 2.0
"""Time for removing taints after that; the next leader removes the rest."""

DEAD_AFTER_SECONDS = 3600.0
"""The worker beats at every move. Slow answers of the API server or Prometheus are no reason to end the process: the
supervisor ends it when a thread dies."""

OVERDUE_INTERVALS = 3.0
"""A leader without a cycle for so many of the shortest interval, and a minute, is not ready."""

POLL_SECONDS = 1.0
"""Interval of the check whether a forecast run is due."""

RETRY_SECONDS = 10.0
"""Wait after a failed forecast run."""

EVALUATION_SECONDS = 15.0
"""Interval of the check whether an assessment is due."""

LOG_SECONDS = 60.0
"""Interval of the log line while the cluster can't be read."""

RELOAD_SECONDS = 5.0
GAUGES_SECONDS = 5.0

LEASE_LOST_EXIT = 3
THREAD_DIED_EXIT = 1


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
        supervisor, queue, metrics = Supervisor(), TriggerQueue(), Metrics()
        policy, address = self.policy_file.policy, web_address(self.settings)
        with ExitStack() as stack:
            resources = stack.enter_context(open_daemon_resources(policy, self.settings, clock=self.clock))
            leadership = resources.leadership
            threads = _Threads(self, resources, supervisor, queue, metrics)
            ports = threads.web_ports()
            health = None
            if self.settings.health_listen is not None:
                health_app = make_health_app(ports, metrics=metrics)
                health = WebServer(health_app, listen=self.settings.health_listen, name="health")
                health.start()
                stack.callback(health.stop, 1.0)
            web = WebServer(
                make_app(ports, auth=_auth(self.settings), metrics=metrics),
                listen=address,
                tls_cert_file=self.settings.tls_cert_file,
                tls_key_file=self.settings.tls_key_file,
            )
            web.start()
            stack.callback(web.stop, 1.0)
            _signals(supervisor)
            resources.cluster.start()
            stack.callback(resources.cluster.stop)
            timer = Timer(queue)
            timer.start(policy)
            stack.callback(timer.stop)
            supervisor.start("leadership", lambda: leadership.run(supervisor.stopping))
            supervisor.start("cycles", threads.worker().run)
            supervisor.start("policy", lambda: threads.reload_policy(timer))
            supervisor.start("gauges", threads.export_gauges)
            supervisor.start("forecast", threads.run_forecasts)
            supervisor.start("effect", threads.run_evaluation)
            supervisor.start("notifications", threads.send_notifications)
            supervisor.start("journal", lambda: threads.journal.run(supervisor.stopping))
            LOG.info(
                "started", cluster=policy.cluster, address=web.url, health=health and health.url, dry_run=self.dry_run
            )
            if self.ready is not None:
                self.ready(web.url)
            ending = supervisor.wait()
            queue.wake()
            running = supervisor.join(STOP_SECONDS, monotonic=time.monotonic)
            if leadership.holds():
                threads.clear_taints()
            leadership.release()
        if running:
            LOG.error("stopped with threads still running", threads=running)
        if ending is None:
            LOG.info("stopped")
            return 0
        return LEASE_LOST_EXIT if ending.thread == "leadership" and ending.error is None else THREAD_DIED_EXIT


class _Threads:
    """The work of each thread, and the state they share: the active policy above all."""

    def __init__(
        self,
        daemon: Daemon,
        resources: DaemonResources,
        supervisor: Supervisor,
        queue: TriggerQueue,
        metrics: Metrics,
    ) -> None:
        self._daemon = daemon
        self._resources = resources
        self._leadership = resources.leadership
        self._supervisor = supervisor
        self._queue = queue
        self._metrics = metrics
        self._heartbeat = Heartbeat(at=time.monotonic())
        self._cycle_due_since = time.monotonic()
        """End of the last cycle, or beginning of leadership (monotonic clock)."""
        self._clock = StoppableClock(daemon.clock or SystemClock(), self._stopping)
        self._views = LiveViews(
            Sources(
                current=lambda: self._active,
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
            )
        )
        self.journal = JournalWriter(
            resources.journal,
            ledger=resources.ledger,
            inbox=resources.inbox,
            snapshot=resources.cluster.snapshot,
            leads=self._leads,
            clock=self._clock,
        )
        self._active = self._build(daemon.policy_file.policy)
        self._retired: Active | None = None
        self._outbox = Outbox(
            lambda: self._active.policy.notifications.receivers,
            lambda receiver, result: metrics.notifications.labels(receiver=receiver, result=result).inc(),
            supervisor.stopping,
        )
        self._notifier = Notifier(
            self._outbox,
            active=lambda: self._active,
            ledger=resources.ledger,
            effect=resources.effect,
            dry_run=daemon.dry_run,
        )

    # ---- cycles

    def worker(self) -> Worker:
        return Worker(
            queue=self._queue,
            inbox=self._resources.inbox,
            active=lambda: self._active,
            leads=self._leads,
            stopping=self._stopping,
            done=self._done,
            failed=lambda trigger, _: telemetry.count_failure(self._metrics, str(trigger)),
            heartbeat=self._heartbeat,
            dry_run=self._daemon.dry_run,
        )

    def _leads(self) -> bool:
        return self._leadership.holds() and self._resources.cluster.synced()

    def _build(self, policy: RebalancerPolicy) -> Active:
        active = self._resources.activate(policy, self._clock, self._supervisor.stopping.is_set)

        def record_usage(snapshot: ClusterSnapshot, usage: Usage) -> None:
            active.context.record_usage(snapshot, usage)
            self._views.measured(snapshot, usage)
            self.journal.observed(snapshot, usage)

        return replace(active, context=replace(active.context, stopping=self._stopping, record_usage=record_usage))

    def _stopping(self) -> bool:
        self._heartbeat.beat()
        return self._supervisor.stopping.is_set()

    def _done(self, report: CycleReport, seconds: float) -> None:
        self._cycle_due_since = time.monotonic()
        telemetry.count(self._metrics, report, seconds)
        telemetry.publish_events(self._resources.events, report)
        self._notifier.cycle_done(report)
        self._views.done(report)
        self.journal.cycle_done()
        release_free_memory()

    def clear_taints(self) -> None:
        """Remove this process's soft taints before it ends."""
        if not self._daemon.dry_run:
            self._active.context.soft_taint_controller.clear(seconds=CLEAR_SECONDS)

    # ---- forecasts and evaluation

    def run_forecasts(self) -> None:
        """Thread: refresh the forecasts and request a cycle ahead of each peak, on the leader only."""
        while not self._supervisor.stopping.wait(POLL_SECONDS):
            forecast_loop, leads, now = self._active.forecast_loop, self._leads(), self._clock.now()
            if forecast_loop is None or not leads or forecast_loop.stale(now):
                telemetry.clear_memory_leaks(self._metrics)
            if forecast_loop is None or not leads or now < forecast_loop.next_at():
                continue
            began = time.monotonic()
            try:
                seen = forecast_loop.look(self._active.context.cluster.snapshot())
            except RebalancerError as error:
                LOG.warning("forecast run failed", error=str(error))
                self._supervisor.stopping.wait(RETRY_SECONDS)
                continue
            if (request := seen.request()) is not None:
                self._queue.put(request)
            seconds = time.monotonic() - began
            export = partial(telemetry.record_forecast_run, self._metrics, seen, seconds)
            isolated("forecast run not exported", export)
            release_free_memory()

    def run_evaluation(self) -> None:
        """Thread: run due assessments and the hot-node SLO, and export their results, on the leader only."""
        exported = telemetry.EffectTelemetry(self._metrics)
        while not self._supervisor.stopping.wait(EVALUATION_SECONDS):
            evaluation = self._active.evaluation
            if evaluation is None or not self._leads():
                exported.reset()
                if not self._leadership.holds():
                    self._notifier.forget()
                continue
            if made := evaluation.turn():
                self._notifier.assessed(made)
                release_free_memory()
            self._notifier.look(time.monotonic())
            try:
                exported.update(evaluation.days(telemetry.EffectTelemetry.DAYS))
            except RebalancerError as error:
                LOG.warning("effect not exported", error=str(error))

    def send_notifications(self) -> None:
        """Thread: send the notifications that wait."""
        while not self._supervisor.stopping.is_set():
            self._outbox.send_waiting(POLL_SECONDS)

    # ---- policy and gauges

    def reload_policy(self, timer: Timer) -> None:
        """Thread: activate a changed policy. A cycle keeps the policy that was active when it began."""
        file, metrics = self._daemon.policy_file, self._metrics
        metrics.policy_last_success.set(self._clock.now())
        failed = 0
        while not self._supervisor.stopping.wait(RELOAD_SECONDS):
            timer.follow_clock(file.policy, now=time.time(), monotonic=time.monotonic())
            if file.reload(self._activate):
                timer.use(file.policy)
                metrics.policy_reloads.labels(result="success").inc()
                metrics.policy_last_success.set(self._clock.now())
            if file.reloads.failed > failed:
                failed = file.reloads.failed
                metrics.policy_reloads.labels(result="failure").inc()
                self._warn("PolicyNotReloaded", file.reloads.error)

    def _activate(self, policy: RebalancerPolicy) -> None:
        """Raises RebalancerError when a file that the policy names cannot be used."""
        new, before = self._build(policy), self._active
        if new.forecast_loop and before.forecast_loop and before.forecast_loop.last:
            new.forecast_loop.before = before.forecast_loop.last.node_forecasts
        # the soft taints on nodes are known to one controller, whatever the policy
        controller = before.context.soft_taint_controller
        self._active = replace(new, context=replace(new.context, soft_taint_controller=controller))
        # a running cycle may use the previous policy, but none uses the one before that
        if self._retired is not None:
            self._retired.close()
        self._retired = before
        LOG.info("policy reloaded")

    def _warn(self, reason: str, note: str) -> None:
        """An Event on the daemon's own pod, if that is known."""
        settings = self._daemon.settings
        if settings.own_pod is not None:
            namespace, name = settings.own_pod
            own_pod = Owner(kind="Pod", namespace=namespace, name=name, uid=settings.pod_uid or "")
            self._resources.events.about_service(own_pod, reason=reason, note=note, warning=True)

    def export_gauges(self) -> None:
        """Thread: export what changes outside cycles: leadership, cache ages, watches, open alerts. After a write that
        failed, try the database again."""
        exported: dict[str, tuple[int, int, int]] = {}
        logged, noted = float("-inf"), ""
        while not self._supervisor.stopping.wait(GAUGES_SECONDS):
            metrics = self._metrics
            if dead := self._resources.cluster.dead():
                raise RuntimeError(f"watches ended unexpectedly: {', '.join(dead)}")
            problem = self._resources.cluster.problem()
            if problem and (problem != noted or time.monotonic() - logged >= LOG_SECONDS):
                logged = time.monotonic()
                LOG.warning("cluster not read", error=problem)
            noted = problem
            self._resources.attempt_write()
            metrics.lease_held.set(1.0 if self._leadership.holds() else 0.0)
            metrics.lease_prevented.set(1.0 if self._leadership.prevented else 0.0)
            metrics.alert_episodes_open.set(self._open_episodes())
            if (term := self._leadership.term) is not None:
                metrics.lease_term.set(term)
            for kind, age in self._resources.cluster.ages().items():
                metrics.cache_age.labels(kind=kind).set(age)
            for kind, stats in self._resources.cluster.stats().items():
                before = exported.get(kind, (0, 0, 0))
                now = (stats.events, stats.relists, stats.restarts)
                counters = (metrics.watch_events, metrics.watch_relists, metrics.watch_restarts)
                for counter, new, old in zip(counters, now, before, strict=True):
                    counter.labels(kind=kind).inc(new - old)
                exported[kind] = now

    def _open_episodes(self) -> float:
        try:
            return self._resources.inbox.open_count()
        except RebalancerError:
            return float("nan")

    # ---- web server

    def web_ports(self) -> WebPorts:
        return WebPorts(
            inbox=self._resources.inbox,
            policy=lambda: self._active.policy,
            wake=self._queue.wake,
            trigger=self._trigger,
            alive=self._alive,
            checks=self._checks,
            views=None if self._daemon.settings.dashboard == "off" else self._views,
            views_open=self._daemon.settings.dashboard == "open",
        )

    def _cycles_check(self) -> ReadyCheck:
        """Whether cycles come when they are due, on the leader."""
        if not self._leadership.holds():
            self._cycle_due_since = time.monotonic()
            return ReadyCheck("cycles", True, "none on a follower")
        interval = min((each.interval for each in self._active.policy.strategies), default=float("inf"))
        ago = time.monotonic() - self._cycle_due_since
        ok = ago <= OVERDUE_INTERVALS * interval + 60.0
        return ReadyCheck("cycles", ok, f"the last one ended {ago:.0f}s ago, one is due every {interval:.0f}s")

    def _trigger(self, nodes: Sequence[str], strategy: str | None) -> None:
        if not self._leadership.holds():
            raise UnsafeDataError(f"this replica is not the leader: {self._leadership.waiting_for}")
        have = [each.name for each in self._active.policy.strategies]
        if strategy is not None and strategy not in have:
            raise ConfigError(f"strategy: expected one of {', '.join(have)}, got {strategy}")
        unknown = sorted(set(nodes) - self._active.context.cluster.snapshot().node_index.keys())
        if unknown:
            raise ConfigError(f"nodes: no node of this cluster is {', '.join(unknown)}")
        scope = RequestScope(strategy=strategy, nodes=frozenset(nodes))
        self._queue.put(CycleRequest(trigger=Trigger.MANUAL, scopes=frozenset({scope})))

    def _alive(self) -> bool:
        # the worker of a follower beats too
        return time.monotonic() - self._heartbeat.at < DEAD_AFTER_SECONDS

    def _checks(self) -> list[ReadyCheck]:
        reloads = self._daemon.policy_file.reloads
        ages = self._resources.cluster.ages()
        oldest = max(ages, key=lambda kind: ages[kind], default="")
        database = self._resources.database_problem()
        return [
            ReadyCheck(
                "cache",
                self._resources.cluster.synced(),
                self._resources.cluster.problem() or f"{oldest} last updated {ages.get(oldest, 0.0):.0f}s ago",
            ),
            ReadyCheck("database", not database, database),
            # a follower is ready: it accepts alerts
            ReadyCheck(
                "lease",
                not self._leadership.prevented,
                "leader" if self._leadership.holds() else self._leadership.waiting_for,
            ),
            self._cycles_check(),
            ReadyCheck("policy", True, reloads.error or "active"),
            ReadyCheck("stopping", not self._supervisor.stopping.is_set(), ""),
        ]


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


def _signals(supervisor: Supervisor) -> None:
    def stop(number: int, _: object) -> None:
        if supervisor.stopping.is_set():
            os._exit(128 + number)
        supervisor.stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
