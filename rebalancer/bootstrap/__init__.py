"""Adapters to ports: the only modules that know what the outside world is made of."""

from rebalancer.bootstrap.active import Active
from rebalancer.bootstrap.contexts import acting_context, planning_context, read_cluster
from rebalancer.bootstrap.daemon import DaemonResources, open_daemon_resources
from rebalancer.bootstrap.database import (
    database_exists,
    database_prune,
    database_shown,
    database_status,
    database_upgrade,
    kept_records,
    open_ledger,
)
from rebalancer.bootstrap.history import history_keeper
from rebalancer.bootstrap.probes import Doctor

__all__ = [
    "Active",
    "DaemonResources",
    "Doctor",
    "acting_context",
    "database_exists",
    "database_prune",
    "database_shown",
    "database_status",
    "database_upgrade",
    "history_keeper",
    "kept_records",
    "open_daemon_resources",
    "open_ledger",
    "planning_context",
    "read_cluster",
]
