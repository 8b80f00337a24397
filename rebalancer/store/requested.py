"""What pods requested on the nodes of one cluster, as its cycles saw it."""

from typing import Any

from sqlalchemy import Engine, delete, or_, select

from rebalancer.model.decisions.past import RequestedSample
from rebalancer.model.measured.history import HOUR_SECONDS
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


KEEP_SECONDS = 13 * HOUR_SECONDS
"""More than any policy reads: processes with different ones, such as a dry run beside the daemon, share the rows."""


def put_requested(engine: Engine, cluster: str, sample: RequestedSample) -> None:
    """Write a sample, and drop those that no policy reads; after the clock was set back those of the future, too.
    Raises ConfigError, ConnectError."""
    row = {"cluster": cluster, "at": sample.at, "nodes": sample.nodes}
    rows = REQUESTED.c

    def work(connection: Any) -> None:
        unread = or_(rows.at < max(sample.at - KEEP_SECONDS, 0.0), rows.at > sample.at)
        connection.execute(delete(REQUESTED).where(rows.cluster == cluster, unread))
        statement = upsert(connection)(REQUESTED).values(row)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["cluster", "at"], set_={"nodes": statement.excluded["nodes"]}
            )
        )

    write(engine, work)
