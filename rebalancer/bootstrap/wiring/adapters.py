"""Single adapters from settings and a policy, and the context that they make together."""

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.constraints.pods.lists import names_match
from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.evict.calls import MAX_CALLS
from rebalancer.cycle.evict.surges import SurgeLoop
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.kube.actions.evict import KubeEvictor
from rebalancer.kube.actions.surges import KubeSurges
from rebalancer.kube.actions.taints import KubeNodeTaints
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.snapshot.snapshot import KubeCluster, cluster_uid
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.ports import Clock, Ledger, Progress, Proposals, Records, UsageReader
from rebalancer.model.decisions.surges import SurgeRecords, Surges
from rebalancer.model.errors import ConfigError, ledger_of_another
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.kube_scheduler.config import load_scheduler_config
from rebalancer.policy.modes import modes
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.policy.schema.usage import StabilizationWindow
from rebalancer.store import SqlLedger, SqlRecords
from rebalancer.strategies import needs

if TYPE_CHECKING:
    from rebalancer.kube.leader.leadership import Leadership
    from rebalancer.kube.leader.lease import LeaseLock, Sighting
    from rebalancer.prometheus.history.slo import PrometheusSlo

TAINT_MARGIN_SECONDS = 5.0
"""With less left of the lease no node is tainted: there must be time to remove the taint again."""

CALL_MARGIN_SECONDS = 1.0
"""Checked once more between the pod's re-read and the eviction call."""


def process_identity(settings: Settings) -> str:
    """The pod's name, the host's outside a pod."""
    return settings.pod_name or socket.gethostname()


def lease_lock(
    settings: Settings,
    client: ApiClient,
    policy: RebalancerPolicy,
    records: SqlRecords,
    ledger: SqlLedger,
    sighting: "Sighting | None" = None,
    *,
    checked: bool = True,
    acts: bool = True,
) -> "LeaseLock":
    """The cluster's Lease, not acquired yet; of a process that `acts` it states the ledger. Raises ConnectError, and if
    `checked` UnsafeDataError for another cluster's ledger."""
    if checked and not ledger.of_cluster(ledger.cluster_uid or cluster_uid(client)):
        raise ledger_of_another(policy.cluster)
    from rebalancer.kube.leader.lease import LeaseLock

    namespace, name = settings.lease_at
    ledger.read_sequence()
    return LeaseLock(
        client=client,
        namespace=namespace,
        name=name,
        identity=f"{process_identity(settings)}_{os.getpid()}",
        ledger_identity=records.ledger_identity() if acts else "",
        cluster=policy.cluster,
        last_term=ledger.last_term(),
        sequence=lambda: ledger.sequence,
        sighting=sighting,
    )


def make_context(
    policy: RebalancerPolicy,
    settings: Settings,
    client: ApiClient,
    clock: Clock,
    progress: Progress,
    stack: ExitStack,
    *,
    records: Records,
    ledger: Ledger | None,
    proposals: Proposals | None = None,
    surges: SurgeRecords | None = None,
    lease: "LeaseLock | Leadership | None" = None,
    taints: bool = True,
    max_calls: int = MAX_CALLS,
) -> CycleContext:
    evictor = KubeEvictor(client=client)
    if lease is not None:
        evictor = KubeEvictor(
            client=client,
            term=lambda: lease.term,
            may_send=lambda: lease.note_sequence() and lease.holds(CALL_MARGIN_SECONDS),
            deadline_seconds=lease.seconds_left,
        )
    scheduler = scheduler_of(policy)  # first, because its file may be invalid and nothing is open yet
    return CycleContext(
        cluster=KubeCluster(client=client, clock=clock, progress=progress),
        usage=usage_of(policy, client, clock, progress, stack),
        evictor=evictor,
        records=records,
        ledger=ledger,
        proposals=proposals,
        surges=None if lease is None or surges is None else surge_loop(policy, client, surges, lease),
        lease=lease,
        clock=clock,
        progress=progress,
        scheduler=scheduler,
        soft_taint_controller=SoftTaintController(
            taints=KubeNodeTaints(client=client, clock=clock),
            remove_only=not taints,
            may=lambda: lease is not None and lease.holds(TAINT_MARGIN_SECONDS),
        ),
        max_calls=max_calls,
        own_pod=settings.own_pod,
    )


def surge_loop(
    policy: RebalancerPolicy, client: ApiClient, records: SurgeRecords, lease: "LeaseLock | Leadership"
) -> Surges:
    """What carries out replacement first; where the policy has it no more for a service, what is open is undone."""
    rules = policy.guards.replacement_first if modes(policy) != {"DryRun"} else ()
    return SurgeLoop(
        records=records,
        calls=KubeSurges(client=client, term=lambda: lease.term),
        may=lambda: lease.holds(TAINT_MARGIN_SECONDS),
        wanted=lambda surge: any(
            names_match(each, cluster=policy.cluster, namespace=surge.namespace, service=surge.service)
            for each in rules
        ),
    )


def scheduler_of(policy: RebalancerPolicy) -> SchedulerConfig:
    """The configuration of kube-scheduler. Raises ConfigError."""
    path = policy.scheduler.config_file
    if path is None:
        return SchedulerConfig()
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: expected scheduler.configFile to be readable") from None
    return load_scheduler_config(data, source=path)


def without_stabilization(policy: RebalancerPolicy) -> RebalancerPolicy:
    """The policy with a stabilization window of one sample."""
    once = StabilizationWindow.model_validate({"samples": 1, "duration": "0s"})
    return policy.model_copy(update={"usage": policy.usage.model_copy(update={"stabilization_window": once})})


def usage_of(
    policy: RebalancerPolicy,
    client: ApiClient,
    clock: Clock,
    progress: Progress,
    stack: ExitStack,
    *,
    beside: UsageReader | None = None,
) -> UsageReader:
    """The reader of a policy's usage. `beside`: one of the same source, which may be used by another thread; what both
    know of the source is shared."""
    if policy.usage.source == "MetricsServer":
        from rebalancer.kube.metrics_server import MetricsServerUsage

        return MetricsServerUsage(client=client, policy=policy.usage, clock=clock, progress=progress)
    from rebalancer.prometheus.readings.reader import PrometheusUsage

    reader = PrometheusUsage(
        policy.usage,
        progress,
        contention=Need.CONTENTION in needs(policy.strategies),
        stabilized=policy.threshold_resources,
        beside=beside if isinstance(beside, PrometheusUsage) else None,
    )
    stack.callback(reader.close)
    return reader


def slo_reader_of(policy: RebalancerPolicy, stack: ExitStack) -> "PrometheusSlo | None":
    """The reader of the hot-node SLO; None without Prometheus. Raises ConfigError."""
    if policy.usage.source == "MetricsServer":
        return None
    from rebalancer.prometheus.history.slo import PrometheusSlo

    reader = PrometheusSlo(policy.usage, policy.effect.hot_node_slo)
    stack.callback(reader.close)
    return reader
