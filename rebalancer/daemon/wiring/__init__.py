"""Adapters to ports: the only modules that know what the outside world is made of."""

from rebalancer.daemon.wiring.database import (
    database_exists,
    database_prune,
    database_shown,
    database_status,
    database_upgrade,
    kept_records,
    open_ledger,
)
from rebalancer.daemon.wiring.doctor import Doctor
from rebalancer.daemon.wiring.history import history_keeper
from rebalancer.daemon.wiring.parts import Made, Parts, daemon_parts
from rebalancer.daemon.wiring.worlds import acting_world, planning_world, read_cluster

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
