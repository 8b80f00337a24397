"""Adapters to ports: the only module that knows what the outside world is made of."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rebalancer import __version__
from rebalancer.daemon.aftermath import Aftermath
from rebalancer.daemon.history import DAYS, HistoryKeeper
from rebalancer.daemon.leadership import Leadership
from rebalancer.daemon.lookout import Lookout
from rebalancer.daemon.settings import Settings
from rebalancer.daemon.steer import Steerer
from rebalancer.daemon.world import NoProgress, NoRecords, SystemClock, World
from rebalancer.kube.cache import WatchedCluster
from rebalancer.kube.client import ApiClient, connect
from rebalancer.kube.events import KubeEvents
from rebalancer.kube.evict import KubeEvictor
from rebalancer.kube.lease import LeaseLock, Sighting
from rebalancer.kube.metrics_server import MetricsServerUsage, probe_metrics_server
from rebalancer.kube.probe import Permission, can_i, lease_holder, needed_permissions, server_version
from rebalancer.kube.snapshot import KubeCluster
from rebalancer.kube.taints import KubeNodeTaints
from rebalancer.model.errors import ConfigError, RebalancerError
from rebalancer.model.ports import Clock, Progress, Records, UsageReader
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.standard import StandardReader
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.scheduler import load_scheduler_config
from rebalancer.policy.schema import Debounce
from rebalancer.prometheus import Probe, PrometheusHistory, PrometheusStandard, PrometheusUsage
from rebalancer.store import (
    BlockStore,
    DatabaseStatus,
    Pruned,
    SqlEffect,
    SqlForecasts,
    SqlInbox,
    SqlLedger,
    SqlReading,
    SqlRecords,
    open_records,
    prune,
    shown_url,
    status,
    upgrade,
)
from rebalancer.store import database_exists as exists

TAINT_MARGIN_SECONDS = 5.0
"""With less left of the lease no node is tainted: there must be time to take it off again."""

CALL_MARGIN_SECONDS = 1.0
"""Looked at once more between the pod's re-read and the eviction call."""

USER_AGENT = f"rebalancer/{__version__}"


@contextmanager
def planning_world(
    policy: RebalancerPolicy, settings: Settings, *, progress: Progress, clock: Clock | None = None
) -> Iterator[World]:
    """A world to look at: it reads the ledger, writes nothing and can't evict (but may probe with a server dry run)."""
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = _client(settings, stack)
        records = stack.enter_context(_records(settings, policy, clock)) if exists(settings.database) else None
        world = _world(policy, settings, client, clock, progress, stack, records=NoRecords(records), lease=None)
        ledger = records.ledger(clock=ledger_clock) if records is not None else None
        yield _with_kept_history(replace(world, ledger=ledger), policy, settings, stack)


@contextmanager
def acting_world(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    dry_run: bool = False,
    steer: bool = True,
) -> Iterator[World]:
    """A world to act in: records are written; unless it's a dry run the cluster's Lease is held for the whole time.

    Without `steer` no node is tainted, only cleared of what an earlier process left: for those who don't stay until
    the replacements have landed.

    A new SQLite file gets its tables; any other database must have been upgraded. What an earlier process left
    without an outcome is settled first. Raises UnsafeDataError when somebody else holds the Lease.
    """
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = _client(settings, stack)
        if settings.database.startswith("sqlite") and not exists(settings.database):
            upgrade(settings.database)
        records = stack.enter_context(_records(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)  # None: the database's own clock, which all clusters share
        if dry_run:
            world = _world(policy, settings, client, clock, progress, stack, records=records, lease=None, steer=steer)
            yield _with_kept_history(replace(world, ledger=ledger), policy, settings, stack)
            return
        namespace, name = settings.lease_at
        lease = LeaseLock(
            client=client,
            namespace=namespace,
            name=name,
            identity=f"{settings.pod_name or socket.gethostname()}_{os.getpid()}",
            ledger_identity=records.ledger_identity(),
            last_term=ledger.last_term(),
        )
        stack.enter_context(lease)
        world = _world(policy, settings, client, clock, progress, stack, records=records, lease=lease, steer=steer)
        stack.callback(_clear, world.steerer, lease)
        if lease.term is not None:
            ledger.fence(lease.term)  # from here on no older leader can reserve
        yield _with_kept_history(replace(world, ledger=ledger), policy, settings, stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the daemon keeps for its whole life, whatever the policy says."""

    cluster: WatchedCluster
    ledger: SqlLedger
    inbox: SqlInbox
    archive: SqlReading
    effect: SqlEffect
    forecasts: SqlForecasts
    events: KubeEvents
    make_lock: Callable[[], LeaseLock]
    world: Callable[[RebalancerPolicy, Leadership, Clock, Callable[[], bool]], "Made"]
    """A world for a policy, evicting under a leadership; long readings end when the last one says that we are to."""
    database_problem: Callable[[], str]
    """Why the database can't be used; empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What one policy needs."""

    world: World
    lookout: Lookout | None
    """None where the policy wants no forecasts."""
    glance: UsageReader
    """Reads CPU for people to look at."""
    aftermath: Aftermath
    close: Callable[[], None]


@contextmanager
def daemon_parts(policy: RebalancerPolicy, settings: Settings, *, clock: Clock | None = None) -> Iterator[Parts]:
    """Connections for the daemon. A new SQLite file gets its tables. Raises ConfigError, ConnectError."""
    ledger_clock, clock = clock, clock or SystemClock()
    with ExitStack() as stack:
        client = _client(settings, stack)
        watching = _client(settings, stack)  # long streams and short calls don't share connections
        if settings.database.startswith("sqlite") and not exists(settings.database):
            upgrade(settings.database)
        records = stack.enter_context(_records(settings, policy, clock))
        ledger = records.ledger(clock=ledger_clock)
        cluster = WatchedCluster(client=watching, clock=clock)
        namespace, name = settings.lease_at
        sighting = Sighting()

        def make_lock() -> LeaseLock:
            return LeaseLock(
                client=client,
                namespace=namespace,
                name=name,
                identity=f"{settings.pod_name or socket.gethostname()}_{os.getpid()}",
                ledger_identity=records.ledger_identity(),
                last_term=ledger.last_term(),
                sighting=sighting,
            )

        def world(
            policy: RebalancerPolicy, leadership: Leadership, clock: Clock, stop_asked: Callable[[], bool]
        ) -> Made:
            own = ExitStack()  # what this policy alone needs; closed when another has replaced it, or with the rest
            stack.callback(own.close)
            made = _world(policy, settings, client, clock, NoProgress(), own, records=records, lease=leadership)
            aftermath = Aftermath(
                policy=policy,
                cluster=cluster,
                usage=_usage(_without_debounce(policy), client, clock, NoProgress(), own),
                effect=records.effect(),
                forecasts=records.forecasts(),
                ledger=ledger,
                standard=_standard(policy, own),
                clock=clock,
                stopping=lambda: stop_asked() or not leadership.holds(),
            )
            made = replace(
                made,
                cluster=cluster,
                ledger=ledger,
                effect=records.effect(),
                lessons=lambda: aftermath.lessons,
            )
            glance = _usage(_without_debounce(policy), client, clock, NoProgress(), own)
            if policy.forecast.mode == "Off":
                return Made(world=made, lookout=None, glance=glance, aftermath=aftermath, close=own.close)
            lookout = Lookout(
                policy=policy,
                keeper=own.enter_context(
                    history_keeper(
                        policy,
                        settings,
                        progress=NoProgress(),
                        clock=clock,
                        stopping=lambda: stop_asked() or not leadership.holds(),
                    )
                ),
                clock=clock,
                ledger=ledger,
                records=records.forecasts(),
                own_pod=settings.own_pod,
            )
            made = replace(made, peaks=lookout.peaks, remember=lookout.remember)
            return Made(world=made, lookout=lookout, glance=glance, aftermath=aftermath, close=own.close)

        def database_problem() -> str:
            try:
                ledger.now()
            except RebalancerError as error:
                return str(error)
            return ""

        yield Parts(
            cluster=cluster,
            ledger=ledger,
            inbox=records.inbox(clock=ledger_clock),
            archive=records.reading(),
            effect=records.effect(),
            forecasts=records.forecasts(),
            events=KubeEvents(client=client, clock=clock, instance=settings.pod_name or socket.gethostname()),
            make_lock=make_lock,
            world=world,
            database_problem=database_problem,
        )


@contextmanager
def history_keeper(
    policy: RebalancerPolicy,
    settings: Settings,
    *,
    progress: Progress,
    clock: Clock | None = None,
    days: int = DAYS,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[HistoryKeeper]:
    """What keeps the last days of CPU: those that forecasts need, or `days` if that is more. Raises ConfigError.

    A long reading ends when `stopping` says so, and goes on the next time.
    """
    days = max(days, DAYS)
    clock = clock or SystemClock()
    folder = Path(settings.history_dir)
    if policy.usage.source == "MetricsServer":
        blocks = BlockStore(folder, cluster=policy.cluster, source="observed")
        yield HistoryKeeper(source=None, blocks=blocks, clock=clock, days=days)
        return
    source = PrometheusHistory(policy.usage, clock=clock, progress=progress, stopping=stopping)
    try:
        blocks = BlockStore(folder, cluster=policy.cluster, source=source.identity)
        yield HistoryKeeper(source=source, blocks=blocks, clock=clock, days=days, stopping=stopping)
    finally:
        source.close()


def read_cluster(settings: Settings, *, progress: Progress) -> ClusterSnapshot:
    """The cluster alone, without usage or database. Raises ConfigError, ConnectError, UnsafeDataError."""
    with ExitStack() as stack:
        client = _client(settings, stack)
        return KubeCluster(client=client, clock=SystemClock(), progress=progress).snapshot()


@contextmanager
def open_ledger(policy: RebalancerPolicy, settings: Settings) -> Iterator[SqlLedger]:
    """The ledger alone, for what people say and ask. A new SQLite file gets its tables."""
    if settings.database.startswith("sqlite") and not exists(settings.database):
        upgrade(settings.database)
    with _records(settings, policy, SystemClock()) as records:
        yield records.ledger()


@contextmanager
def kept_records(policy: RebalancerPolicy, settings: Settings) -> Iterator[SqlRecords | None]:
    """What is recorded; None where there is no database yet. Raises ConfigError, ConnectError."""
    if not exists(settings.database):
        yield None
        return
    with _records(settings, policy, SystemClock()) as records:
        yield records


def _client(settings: Settings, stack: ExitStack) -> ApiClient:
    client = connect(settings.kubeconfig, settings.context, USER_AGENT)
    stack.callback(client.close)
    return client


def _records(settings: Settings, policy: RebalancerPolicy, clock: Clock) -> SqlRecords:
    return open_records(url=settings.database, cluster=policy.cluster, clock=clock)


def _world(
    policy: RebalancerPolicy,
    settings: Settings,
    client: ApiClient,
    clock: Clock,
    progress: Progress,
    stack: ExitStack,
    *,
    records: Records,
    lease: LeaseLock | Leadership | None,
    steer: bool = True,
) -> World:
    evictor = KubeEvictor(client=client)
    if lease is not None:
        evictor = KubeEvictor(
            client=client,
            term=lambda: lease.term,
            may_send=lambda: lease.holds(CALL_MARGIN_SECONDS),
            deadline_seconds=lease.seconds_left,
        )
    scheduler = _scheduler(policy)  # before anything is opened: its file may be wrong
    return World(
        cluster=KubeCluster(client=client, clock=clock, progress=progress),
        usage=_usage(policy, client, clock, progress, stack),
        evictor=evictor,
        records=records,
        ledger=None,
        lease=lease,
        clock=clock,
        progress=progress,
        scheduler=scheduler,
        steerer=Steerer(
            taints=KubeNodeTaints(client=client, clock=clock),
            only_clears=not steer,
            may=lambda: lease is not None and lease.holds(TAINT_MARGIN_SECONDS),
        ),
        own_pod=settings.own_pod,
    )


def _with_kept_history(world: World, policy: RebalancerPolicy, settings: Settings, stack: ExitStack) -> World:
    """A command asks for no history: it goes by what the daemon, or `rebalancer forecast`, has kept here."""
    if policy.forecast.mode != "Act" or not Path(settings.history_dir, policy.cluster).is_dir():
        return world
    keeper = stack.enter_context(history_keeper(policy, settings, progress=world.progress, clock=world.clock))
    lookout = Lookout(
        policy=policy, keeper=keeper, clock=world.clock, ledger=world.ledger, own_pod=world.own_pod, asks=False
    )
    return replace(world, peaks=lookout.peaks)


def _clear(steerer: Steerer, lease: LeaseLock) -> None:
    """Leave no taint behind. Without the Lease they are the next leader's business."""
    if lease.holds():
        steerer.clear()


def _scheduler(policy: RebalancerPolicy) -> SchedulerConfig:
    """How kube-scheduler is configured. Raises ConfigError."""
    path = policy.scheduler.config_file
    if path is None:
        return SchedulerConfig()
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: expected scheduler.configFile to be readable") from None
    return load_scheduler_config(data, source=path)


def _without_debounce(policy: RebalancerPolicy) -> RebalancerPolicy:
    """Its usage is read at once."""
    debounce = Debounce.model_validate({"samples": 1, "over": "0s"})
    return policy.model_copy(update={"usage": policy.usage.model_copy(update={"debounce": debounce})})


def _usage(
    policy: RebalancerPolicy, client: ApiClient, clock: Clock, progress: Progress, stack: ExitStack
) -> UsageReader:
    if policy.usage.source == "MetricsServer":
        return MetricsServerUsage(client=client, policy=policy.usage, clock=clock, progress=progress)
    reader = PrometheusUsage(policy.usage, progress)
    stack.callback(reader.close)
    return reader


def _standard(policy: RebalancerPolicy, stack: ExitStack) -> StandardReader | None:
    if policy.usage.source == "MetricsServer":
        return None
    reader = PrometheusStandard(policy.usage, policy.effect.standard)
    stack.callback(reader.close)
    return reader


def database_exists(settings: Settings) -> bool:
    """Whether there is a database: always for a server, for SQLite when its file is there."""
    return exists(settings.database)


def database_upgrade(settings: Settings) -> str:
    """Bring the schema up to date; the revision it has then."""
    return upgrade(settings.database)


def database_status(settings: Settings) -> DatabaseStatus:
    """What is in the database."""
    return status(settings.database)


def database_prune(settings: Settings, *, older_than: float | None, dry_run: bool) -> Pruned:
    """Drop what no limit can see any more. Raises ConfigError, also for a schema that isn't current; ConnectError."""
    return prune(settings.database, older_than=older_than, dry_run=dry_run)


def database_shown(settings: Settings) -> str:
    """The database's URL without its password."""
    return shown_url(settings.database)


class Doctor:
    """The adapters as `doctor` probes them, each opened only when it is asked. The caller closes it."""

    def __init__(self, *, policy: RebalancerPolicy, settings: Settings) -> None:
        self._policy = policy
        self._settings = settings
        self._stack = ExitStack()
        self._client: ApiClient | None = None

    def close(self) -> None:
        """Give all connections back."""
        self._stack.close()

    def database(self) -> DatabaseStatus | None:
        """None where a SQLite file isn't there yet. Raises ConfigError when the schema isn't current, ConnectError."""
        if not exists(self._settings.database):
            return None
        with _records(self._settings, self._policy, SystemClock()):
            return status(self._settings.database)

    def _connected(self) -> ApiClient:
        if self._client is None:
            self._client = _client(self._settings, self._stack)
        return self._client

    @property
    def server(self) -> str:
        """The API server's URL. Raises ConfigError without credentials."""
        return self._connected().server

    def server_version(self) -> str:
        """Raises ConnectError."""
        return server_version(self._connected())

    def missing_permissions(self) -> list[Permission]:
        """What a run needs and we are not allowed, as far as the server tells. Raises ConnectError."""
        namespace, name = self._settings.lease_at
        needed = needed_permissions(
            lease_namespace=namespace, lease_name=name, steers=self._policy.steering.mode == "Taint"
        )
        return [permission for permission in needed if can_i(self._connected(), permission) is False]

    def lease_holder(self) -> str | None:
        """Who holds the cluster's Lease and when it was renewed; None when there is none yet. Raises ConnectError."""
        return lease_holder(self._connected(), *self._settings.lease_at)

    def global_limits(self) -> Mapping[str, str]:
        """Cluster -> the global limits (JSON) that it stated last. Raises ConfigError, ConnectError."""
        if not exists(self._settings.database):
            return {}
        with _records(self._settings, self._policy, SystemClock()) as records:
            return records.ledger().global_limits()

    def metrics_server(self) -> str:
        """What metrics-server answers. Raises ConnectError, ConfigError, UnsafeDataError."""
        return probe_metrics_server(self._connected())

    def prometheus(self) -> Probe:
        """Raises ConfigError, ConnectError."""
        reader = PrometheusUsage(self._policy.usage, NoProgress())
        try:
            return reader.probe()
        finally:
            reader.close()
