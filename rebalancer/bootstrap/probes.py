"""The adapters as `doctor` probes them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from rebalancer.bootstrap.adapters import client_of, records_of
from rebalancer.bootstrap.settings import Settings
from rebalancer.cycle.context import NullProgress, SystemClock
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.client.permissions import Permission, can_i
from rebalancer.kube.metrics_server import probe_metrics_server
from rebalancer.kube.probe import lease_holder, needed_permissions, rules, server_version
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies import HighNodeUtilization, NodeMaintenance, PluginStrategy
from rebalancer.prometheus.probe import Probe
from rebalancer.prometheus.reader import PrometheusUsage
from rebalancer.store import DatabaseStatus, status
from rebalancer.store import database_exists as exists

CORDONING = (HighNodeUtilization, NodeMaintenance, PluginStrategy)
"""Strategies that may ask for cordons."""


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
        with records_of(self._settings, self._policy, SystemClock()):
            return status(self._settings.database)

    def _connected(self) -> ApiClient:
        if self._client is None:
            self._client = client_of(self._settings, self._stack)
        return self._client

    @property
    def server(self) -> str:
        """The API server's URL. Raises ConfigError without credentials."""
        return self._connected().server

    def server_version(self) -> str:
        """Raises ConnectError."""
        return server_version(self._connected())

    def missing_permissions(self) -> list[Permission]:
        """What a run or the daemon needs and we are not allowed, as far as the server tells. Raises ConnectError."""
        namespace, name = self._settings.lease_at
        cordons = any(isinstance(each, CORDONING) for each in self._policy.strategies)
        steers = cordons or self._policy.soft_taint.mode == "Taint"
        needed = needed_permissions(lease_namespace=namespace, lease_name=name, steers=steers, daemon=True)
        return [permission for permission in needed if can_i(self._connected(), permission) is False]

    def granting(self, missing: Sequence[Permission]) -> str:
        """The rules of roles that would grant them."""
        return rules(missing)

    def lease_holder(self) -> str | None:
        """Who holds the cluster's Lease and when it was renewed; None when there is none yet. Raises ConnectError."""
        return lease_holder(self._connected(), *self._settings.lease_at)

    def global_limits(self) -> Mapping[str, str]:
        """Cluster -> the global limits (JSON) that it stated last. Raises ConfigError, ConnectError."""
        if not exists(self._settings.database):
            return {}
        with records_of(self._settings, self._policy, SystemClock()) as records:
            return records.ledger().global_limits()

    def metrics_server(self) -> str:
        """What metrics-server answers. Raises ConnectError, ConfigError, UnsafeDataError."""
        return probe_metrics_server(self._connected())

    def prometheus(self) -> Probe:
        """Raises ConfigError, ConnectError."""
        reader = PrometheusUsage(self._policy.usage, NullProgress())
        try:
            return reader.probe()
        finally:
            reader.close()
