"""Adapters to ports: the only modules that know what the outside world is made of."""

from rebalancer.bootstrap.database import (
    database_exists,
    database_prune,
    database_shown,
    database_status,
    database_upgrade,
    kept_records,
    open_ledger,
)
from rebalancer.bootstrap.probes import Doctor
from rebalancer.bootstrap.history import history_keeper
from rebalancer.bootstrap.daemon import Made, Parts, daemon_parts
from rebalancer.bootstrap.contexts import acting_world, planning_world, read_cluster

__all__ = [
    "Doctor",
    "Made",
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
