"""Adapters to ports: the only modules that know what the outside world is made of."""

from rebalancer.bootstrap.active import Active
from rebalancer.bootstrap.contexts import acting_world, planning_world, read_cluster
from rebalancer.bootstrap.daemon import Parts, daemon_parts
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
    "Doctor",
    "Parts",
    "acting_world",
    "daemon_parts",
    "database_exists",
    "database_prune",
    "database_shown",
    "database_status",
    "database_upgrade",
    "history_keeper",
    "kept_records",
    "open_ledger",
    "planning_world",
    "read_cluster",
]
