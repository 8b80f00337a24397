"""The active policy with its adapters, and the thread that activates a changed policy file."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import structlog

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.daemon.reload import PolicyFile
from rebalancer.daemon.supervisor import Heartbeat
from rebalancer.daemon.triggers import Timer
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.measured.usage import Usage
from rebalancer.policy import RebalancerPolicy
from rebalancer.web import Metrics

LOG = structlog.get_logger("rebalancer")

RELOAD_SECONDS = 5.0


class ActivePolicy:
    """The active policy and its adapters. A cycle keeps the ones that were active when it began."""

    def __init__(
        self,
        policy: RebalancerPolicy,
        *,
        resources: DaemonResources,
        clock: Clock,
        cycle_clock: Clock,
        heartbeat: Heartbeat,
    ) -> None:
        """`cycle_clock`: that of the cycles, whose waits end with the lease. Raises RebalancerError when a file that
        the policy names cannot be used."""
        self._resources = resources
        self._clock = clock
        self._cycle_clock = cycle_clock
        self._heartbeat = heartbeat
        self.observers: dict[str, Callable[[ClusterSnapshot, Usage], None]] = {}
        """Name of a part -> called with every usage that a cycle has read."""
        self._changing = threading.Lock()
        self._active = self._build(policy)
        self._retired: Active | None = None

    def current(self) -> Active:
        """The active policy."""
        return self._active

    def activate(self, policy: RebalancerPolicy) -> None:
        """Replace the policy. Raises RebalancerError when a file that it names cannot be used."""
        with self._changing:
            self._replace(policy, goes_on=True)
        LOG.info("policy reloaded")

    def renew(self) -> None:
        """Build everything of the same policy again, for another term of leadership. Raises as `activate`."""
        with self._changing:
            self._replace(self._active.policy, goes_on=False)

    def _replace(self, policy: RebalancerPolicy, *, goes_on: bool) -> None:
        """`goes_on`: with the forecasts so far."""
        new, before = self._build(policy), self._active
        if goes_on and new.forecast_loop and before.forecast_loop and before.forecast_loop.last:
            new.forecast_loop.before = before.forecast_loop.last.node_forecasts
        # the soft taints on nodes are known to one controller, whatever the policy
        controller = before.context.soft_taint_controller
        self._active = replace(new, context=replace(new.context, soft_taint_controller=controller))
        # a running cycle may use the previous policy, but none uses the one before that
        if self._retired is not None:
            self._retired.close()
        self._retired = before

    def _build(self, policy: RebalancerPolicy) -> Active:
        active = self._resources.activate(policy, self._clock, self._heartbeat.stopping.is_set)

        def record_usage(snapshot: ClusterSnapshot, usage: Usage) -> None:
            active.context.record_usage(snapshot, usage)
            for name, observer in self.observers.items():
                self._resources.parts.attempt(name, partial(observer, snapshot, usage))

        context = replace(
            active.context, clock=self._cycle_clock, stopping=self._heartbeat.beat, record_usage=record_usage
        )
        return replace(active, context=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyThread:
    """Activates the policy file when it has changed."""

    file: PolicyFile
    active: ActivePolicy
    timer: Timer
    resources: DaemonResources
    clock: Clock
    metrics: Metrics

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping`."""
        self.metrics.policy_last_success.set(self.clock.now())
        failed = 0
        while not stopping.wait(RELOAD_SECONDS):
            self.timer.follow_clock(self.file.policy, now=time.time(), monotonic=time.monotonic())
            if self.file.reload(self.active.activate):
                self.timer.use(self.file.policy)
                self.metrics.policy_reloads.labels(result="success").inc()
                self.metrics.policy_last_success.set(self.clock.now())
            if self.file.reloads.failed > failed:
                failed = self.file.reloads.failed
                self.metrics.policy_reloads.labels(result="failure").inc()
                self._warn(self.file.reloads.error)

    def _warn(self, why: str) -> None:
        """An Event on the daemon's own pod, if that is known."""
        settings = self.resources.settings
        if settings.own_pod is not None:
            namespace, name = settings.own_pod
            own_pod = Owner(kind="Pod", namespace=namespace, name=name, uid=settings.pod_uid or "")
            self.resources.events.about_service(own_pod, reason="PolicyNotReloaded", note=why, warning=True)
