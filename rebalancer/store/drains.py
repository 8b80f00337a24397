"""Drained nodes of one cluster, as cycles and reports read them."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, Row, select

from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.effect_tables import DRAINED_NODES
from rebalancer.store.db.engine import read, write

_KEY = ("cluster", "node", "emptied_at")


def drains_since(engine: Engine, cluster: str, since: float) -> list[DrainedNode]:
    """Those emptied at or after `since`, oldest first. Raises ConfigError, ConnectError."""
    rows = DRAINED_NODES.c
    query = (
        select(DRAINED_NODES)
        .where(rows.cluster == cluster, rows.emptied_at >= since)
        .order_by(rows.emptied_at, rows.node)
    )
    return read(engine, lambda connection: [_drain(row) for row in connection.execute(query)])


def put_drains(engine: Engine, cluster: str, drains: Sequence[DrainedNode]) -> None:
    """New, or the same (node, emptied_at) updated. Raises ConfigError, ConnectError."""
    rows = sorted(({"cluster": cluster, **asdict(each)} for each in drains), key=lambda row: str(row["node"]))
    if not rows:
        return

    def work(connection: Any) -> None:
        statement = upsert(connection)(DRAINED_NODES)
        changes = {name: statement.excluded[name] for name in rows[0] if name not in _KEY}
        connection.execute(statement.on_conflict_do_update(index_elements=list(_KEY), set_=changes), rows)

    write(engine, work)


def _drain(row: Row[Any]) -> DrainedNode:
    values = row._asdict()
    del values["cluster"]
    if values["capacity_millicores"] is None:
        values["capacity_millicores"] = math.nan
    return DrainedNode(**values)
