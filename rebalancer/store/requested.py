"""What pods requested on the nodes of one cluster, as its cycles saw it."""

from typing import Any

from sqlalchemy import Engine, delete, select

from rebalancer.model.decisions.past import RequestedSample
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.effect_tables import REQUESTED
from rebalancer.store.db.engine import read, write


def requested_since(engine: Engine, cluster: str, since: float) -> list[RequestedSample]:
    """Samples at or after `since`, oldest first. Raises ConfigError, ConnectError."""
    rows = REQUESTED.c
    query = select(rows.at, rows.nodes).where(rows.cluster == cluster, rows.at >= since).order_by(rows.at)
    return read(
        engine,
        lambda connection: [RequestedSample(at=row.at, nodes=row.nodes) for row in connection.execute(query)],
    )


def put_requested(engine: Engine, cluster: str, sample: RequestedSample, *, keep_seconds: float) -> None:
    """Write a sample, and drop those that are older than it by more than `keep_seconds`. Raises ConfigError,
    ConnectError."""
    row = {"cluster": cluster, "at": sample.at, "nodes": sample.nodes}
    rows = REQUESTED.c

    def work(connection: Any) -> None:
        connection.execute(
            delete(REQUESTED).where(rows.cluster == cluster, rows.at < max(sample.at - keep_seconds, 0.0))
        )
        statement = upsert(connection)(REQUESTED).values(row)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["cluster", "at"], set_={"nodes": statement.excluded["nodes"]}
            )
        )

    write(engine, work)
