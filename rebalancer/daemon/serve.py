"""The daemon: everything is put together here, started, watched, and brought to an end.

Followers serve webhook, health and metrics and keep a warm cache; the leader evicts. The first SIGTERM takes no new
work, finishes and records the call in flight, removes our taints and gives the Lease back; a second one ends at once.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import structlog

from rebalancer.bootstrap.active import Active
from rebalancer.bootstrap.daemon import DaemonResources, open_daemon_resources
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import SystemClock
from rebalancer.cycle.request import CycleRequest, RequestScope
from rebalancer.daemon import telemetry as told
from rebalancer.daemon.queue import TriggerQueue
from rebalancer.daemon.reload import PolicyFile
from rebalancer.daemon.supervisor import Supervisor
from rebalancer.daemon.timer import Timer
from rebalancer.daemon.worker import Heartbeat, Worker
from rebalancer.dashboard.views import LiveViews, Sources
from rebalancer.model.errors import ConfigError, RebalancerError, UnsafeDataError
from rebalancer.model.plan import CycleReport, Trigger
from rebalancer.model.ports import Clock
from rebalancer.model.snapshot import ClusterSnapshot, Owner
from rebalancer.model.usage import Usage
from rebalancer.policy import RebalancerPolicy
from rebalancer.web import Auth, Metrics, WebPorts, WebServer, make_app
from rebalancer.web.app import ReadyCheck

LOG = structlog.get_logger("rebalancer")

STOP_SECONDS = 6.0
"""How long the call in flight may take after SIGTERM."""

CLEAR_SECONDS = 2.0
"""How long we remove our taints then; the next leader removes what is left."""

DEAD_AFTER_SECONDS = 180.0
"""The worker beats at every move; the longest it may be silent is one wait for spacing and one call."""

POLL_SECONDS = 1.0
"""So often it is asked whether it is time to look ahead."""
RECHECK_SECONDS = 10.0
"""After an error."""

EVALUATION_SECONDS = 15.0
"""So often it is looked whether an assessment is due."""

RELOAD_SECONDS = 5.0
GAUGES_SECONDS = 5.0

LEASE_LOST_EXIT = 3
THREAD_DIED_EXIT = 1


class _StoppableClock:
    """The clock of the cycles: nobody sleeps on once we are asked to stop. `stopping` is asked every second."""

    def __init__(self, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._clock = clock
        self._stopping = stopping

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        end = self._clock.now() + seconds
        while not self._stopping() and (left := end - self._clock.now()) > 0:
            self._clock.sleep(min(left, 1.0))


@dataclass(slots=True, kw_only=True)
class Daemon:
    """See the module; `run` once."""

    policy_file: PolicyFile
    settings: Settings
    clock: Clock | None = None
    """Of the cycles and the ledger, where both run on a practice cluster's; None = the machine's and the database's."""
    dry_run: bool = False
    ready: Callable[[str], None] | None = None
    """Told of the web server's address as soon as it listens."""

    def run(self) -> int:
        """Until a signal or a dead thread; the exit code. Raises RebalancerError when it can't even start."""
        supervisor, queue, metrics = Supervisor(), TriggerQueue(), Metrics()
        policy = self.policy_file.policy
        with ExitStack() as stack:
            parts = stack.enter_context(open_daemon_resources(policy, self.settings, clock=self.clock))
            leadership = parts.leadership
            state = _State(self, parts, supervisor, queue, metrics)
            web = WebServer(
                make_app(state.web_ports(), auth=_auth(self.settings), metrics=metrics),
                listen=self.settings.listen,
                tls_cert_file=self.settings.tls_cert_file,
                tls_key_file=self.settings.tls_key_file,
            )
            web.start()
            stack.callback(web.stop, 1.0)
            _signals(supervisor)
            parts.cluster.start()
            stack.callback(parts.cluster.stop)
            timer = Timer(queue)
            timer.start(policy)
            stack.callback(timer.stop)
            supervisor.start("leadership", lambda: leadership.run(supervisor.stopping))
            supervisor.start("cycles", state.worker().run)
            supervisor.start("policy", lambda: state.reload(timer))
            supervisor.start("gauges", state.gauges)
            supervisor.start("forecast", state.look_ahead)
            supervisor.start("effect", state.run_evaluation)
            LOG.info("started", cluster=policy.cluster, address=web.url, dry_run=self.dry_run)
            if self.ready is not None:
                self.ready(web.url)
            ending = supervisor.wait()
            queue.wake()
            running = supervisor.join(STOP_SECONDS, monotonic=time.monotonic)
            if leadership.holds():
                state.clear_taints()
            leadership.release()
        if running:
            LOG.error("stopped with threads still at work", threads=running)
        if ending is None:
            LOG.info("stopped")
            return 0
        return LEASE_LOST_EXIT if ending.thread == "leadership" and ending.error is None else THREAD_DIED_EXIT


class _State:
    """What the daemon's threads share."""

    def __init__(
        self,
        daemon: Daemon,
        parts: DaemonResources,
        supervisor: Supervisor,
        queue: TriggerQueue,
        metrics: Metrics,
    ) -> None:
        self._daemon = daemon
        self._parts = parts
        self._leadership = parts.leadership
        self._supervisor = supervisor
        self._queue = queue
        self._metrics = metrics
        self._heartbeat = Heartbeat(at=time.monotonic())
        self._clock = _StoppableClock(daemon.clock or SystemClock(), self._stopping)
        self._views = LiveViews(
            Sources(
                current=lambda: self._current,
                leadership=parts.leadership,
                ledger=parts.ledger,
                inbox=parts.inbox,
                archive=parts.archive,
                effect=parts.effect,
                forecasts=parts.forecasts,
                clock=self._clock,
                dry_run=daemon.dry_run,
            )
        )
        self._current = self._make_current(daemon.policy_file.policy)
        self._retired: Active | None = None

    # ---- the cycles

    def worker(self) -> Worker:
        return Worker(
            queue=self._queue,
            inbox=self._parts.inbox,
            current=lambda: self._current,
            leads=self._leads,
            stopping=self._stopping,
            done=self._done,
            failed=lambda trigger, _: told.count_failure(self._metrics, str(trigger)),
            heartbeat=self._heartbeat,
            dry_run=self._daemon.dry_run,
        )

    def _leads(self) -> bool:
        return self._leadership.holds() and self._parts.cluster.synced()

    def _make_current(self, policy: RebalancerPolicy) -> Active:
        active = self._parts.context(policy, self._clock, self._supervisor.stopping.is_set)

        def record_usage(snapshot: ClusterSnapshot, usage: Usage) -> None:
            active.context.record_usage(snapshot, usage)
            self._views.measured(snapshot, usage)

        return replace(active, context=replace(active.context, stopping=self._stopping, record_usage=record_usage))

    def _stopping(self) -> bool:
        self._heartbeat.beat()
        return self._supervisor.stopping.is_set()

    def _done(self, report: CycleReport, seconds: float) -> None:
        told.count(self._metrics, report, seconds)
        told.publish_events(self._parts.events, report)
        self._views.done(report)

    def clear_taints(self) -> None:
        """None of ours may outlive us."""
        if not self._daemon.dry_run:
            self._current.context.soft_taint_controller.clear(seconds=CLEAR_SECONDS)

    # ---- looking ahead

    def look_ahead(self) -> None:
        """Make the forecast again and again, and ask for a cycle ahead of each peak. Only the leader does."""
        while not self._supervisor.stopping.wait(POLL_SECONDS):
            forecast_loop = self._current.forecast_loop
            if forecast_loop is None or self._clock.now() < forecast_loop.next_at() or not self._leads():
                continue
            began = time.monotonic()
            try:
                seen = forecast_loop.look(self._current.context.cluster.snapshot())
            except RebalancerError as error:
                LOG.warning("look ahead failed", error=str(error))
                self._supervisor.stopping.wait(RECHECK_SECONDS)
                continue
            told.record_forecast_run(self._metrics, seen, time.monotonic() - began)
            if (request := seen.request()) is not None:
                self._queue.put(request)

    def run_evaluation(self) -> None:
        """See what became of what was evicted, and how the standard saw it. Only the leader does."""
        counted = told.EffectTelemetry(self._metrics)
        while not self._supervisor.stopping.wait(EVALUATION_SECONDS):
            evaluation = self._current.evaluation
            if evaluation is None or not self._leads():
                counted.reset()
                continue
            evaluation.turn()
            try:
                counted.update(evaluation.days(told.EffectTelemetry.DAYS))
            except RebalancerError as error:
                LOG.warning("effect not counted", error=str(error))

    # ---- policy and gauges

    def reload(self, timer: Timer) -> None:
        """Swap the policy when its file has changed; cycles take what is in force when they begin."""
        file, metrics = self._daemon.policy_file, self._metrics
        metrics.policy_last_success.set(self._clock.now())
        failed = 0
        while not self._supervisor.stopping.wait(RELOAD_SECONDS):
            policy = file.look()
            if policy is not None and self._take(policy):
                timer.use(policy)
                metrics.policy_reloads.labels(result="success").inc()
                metrics.policy_last_success.set(self._clock.now())
            if file.reloads.failed > failed:
                failed = file.reloads.failed
                metrics.policy_reloads.labels(result="failure").inc()
                self._warn("PolicyNotReloaded", file.reloads.error)

    def _take(self, policy: RebalancerPolicy) -> bool:
        """Put a policy in force; False where a file that it names can't be used."""
        try:
            current = self._make_current(policy)
        except RebalancerError as error:
            self._daemon.policy_file.take_back(str(error))
            return False
        # what carries our taint is known to one steerer, whatever the policy
        before = self._current
        if (
            current.forecast_loop is not None
            and before.forecast_loop is not None
            and before.forecast_loop.last is not None
        ):
            current.forecast_loop.before = before.forecast_loop.last.node_forecasts
        self._current = replace(
            current, context=replace(current.context, soft_taint_controller=before.context.soft_taint_controller)
        )
        # a cycle may still be at work with the one before, but not with the one before that
        if self._retired is not None:
            self._retired.close()
        self._retired = before
        LOG.info("policy reloaded")
        return True

    def _warn(self, reason: str, note: str) -> None:
        """An Event on the pod that we run in, where we know it."""
        settings = self._daemon.settings
        if settings.own_pod is not None:
            namespace, name = settings.own_pod
            ourselves = Owner(kind="Pod", namespace=namespace, name=name, uid=settings.pod_uid or "")
            self._parts.events.about_service(ourselves, reason=reason, note=note, warning=True)

    def gauges(self) -> None:
        """Figures that change without anybody's doing."""
        seen: dict[str, tuple[int, int, int]] = {}
        while not self._supervisor.stopping.wait(GAUGES_SECONDS):
            metrics = self._metrics
            if dead := self._parts.cluster.dead():
                raise RuntimeError(f"watches ended by themselves: {', '.join(dead)}")
            metrics.lease_held.set(1.0 if self._leadership.holds() else 0.0)
            metrics.alert_episodes_open.set(self._open_episodes())
            if (term := self._leadership.term) is not None:
                metrics.lease_term.set(term)
            for kind, age in self._parts.cluster.ages().items():
                metrics.cache_age.labels(kind=kind).set(age)
            for kind, stats in self._parts.cluster.stats().items():
                before = seen.get(kind, (0, 0, 0))
                now = (stats.events, stats.relists, stats.restarts)
                counters = (metrics.watch_events, metrics.watch_relists, metrics.watch_restarts)
                for counter, new, old in zip(counters, now, before, strict=True):
                    counter.labels(kind=kind).inc(new - old)
                seen[kind] = now

    def _open_episodes(self) -> float:
        try:
            return self._parts.inbox.open_count()
        except RebalancerError:
            return float("nan")

    # ---- the web server's questions

    def web_ports(self) -> WebPorts:
        return WebPorts(
            inbox=self._parts.inbox,
            policy=lambda: self._current.policy,
            wake=self._queue.wake,
            trigger=self._trigger,
            alive=self._alive,
            checks=self._checks,
            views=None if self._daemon.settings.dashboard == "off" else self._views,
            views_open=self._daemon.settings.dashboard == "open",
        )

    def _trigger(self, nodes: Sequence[str], strategy: str | None) -> None:
        if not self._leadership.holds():
            raise UnsafeDataError(f"this replica doesn't lead: {self._leadership.waiting_for}")
        have = [each.name for each in self._current.policy.strategies]
        if strategy is not None and strategy not in have:
            raise ConfigError(f"strategy: expected one of {', '.join(have)}, got {strategy}")
        unknown = sorted(set(nodes) - self._current.context.cluster.snapshot().node_index.keys())
        if unknown:
            raise ConfigError(f"nodes: no node of this cluster is {', '.join(unknown)}")
        scope = RequestScope(strategy=strategy, nodes=frozenset(nodes))
        self._queue.put(CycleRequest(trigger=Trigger.MANUAL, scopes=frozenset({scope})))

    def _alive(self) -> bool:
        # a follower's worker beats too: it looks whether it leads
        return time.monotonic() - self._heartbeat.at < DEAD_AFTER_SECONDS

    def _checks(self) -> list[ReadyCheck]:
        reloads = self._daemon.policy_file.reloads
        ages = self._parts.cluster.ages()
        oldest = max(ages, key=lambda kind: ages[kind], default="")
        database = self._parts.database_problem()
        return [
            ReadyCheck(
                "cache", self._parts.cluster.synced(), f"{oldest} last heard of {ages.get(oldest, 0.0):.0f}s ago"
            ),
            ReadyCheck("database", not database, database),
            # a follower is ready: it takes alerts and triggers nothing
            ReadyCheck("lease", True, "leads" if self._leadership.holds() else self._leadership.waiting_for),
            ReadyCheck("policy", True, reloads.error or "in force"),
            ReadyCheck("stopping", not self._supervisor.stopping.is_set(), ""),
        ]


def _auth(settings: Settings) -> Auth:
    """Raises ConfigError for a file that can't be used now."""
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
