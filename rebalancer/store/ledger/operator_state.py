"""Operator state: the part of the ledger that counts nothing.

Pauses, eviction backoff, ready replicas of each cluster, and the global limits of each cluster's policy.
"""

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, select, update

from rebalancer.model.decisions.limits import EvictionBackoff, Pause, RemoteReadiness, Scope
from rebalancer.store.db.dialect import upsert
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import CLUSTER_LIMITS, EVICTION_BACKOFFS, PAUSES, READY_REPORTS
from rebalancer.store.ledger.counting import as_pause, hold_scopes, in_force
from rebalancer.store.ledger.part import LedgerPart

_ASKED_AT_ONCE = 1000

PUBLISHED_SECONDS = 86_400.0
"""A cluster that has published nothing for so long takes part in no global percentage: it may be gone."""


class OperatorState(LedgerPart):
    """Pauses, backoffs, and what clusters publish to each other."""

    # -- pauses -------------------------------------------------------------------------------------------------------

    def pause(self, scope: Scope, *, reason: str, created_by: str, until: float | None) -> None:
        """Stop evictions in `scope` until then, or with None until resumed. It replaces the scope's earlier pause.

        Afterwards nothing is reserved in the scope.
        """

        def work(connection: Connection) -> None:
            hold_scopes(connection, [scope])
            now = self._now(connection)
            connection.execute(update(PAUSES).where(_active(scope, now)).values(ended=now))
            row = {
                "kind": scope.kind,
                "key": scope.key,
                "reason": reason,
                "created_by": created_by,
                "created": now,
                "until": until,
            }
            connection.execute(insert(PAUSES).values(row))

        write(self._engine, work)

    def resume(self, scope: Scope) -> int:
        """End the pauses of exactly this scope; how many (a wider scope's pause goes on)."""

        def work(connection: Connection) -> int:
            now = self._now(connection)
            return connection.execute(update(PAUSES).where(_active(scope, now)).values(ended=now)).rowcount

        return write(self._engine, work)

    def pauses(self) -> list[Pause]:
        """Pauses in force that concern this cluster, oldest first."""

        def work(connection: Connection) -> list[Pause]:
            query = select(PAUSES).where(in_force(self._now(connection)), self._ours(PAUSES.c.kind, PAUSES.c.key))
            return [as_pause(row) for row in connection.execute(query.order_by(PAUSES.c.created, PAUSES.c.id))]

        return read(self._engine, work)

    # -- moves that did not help --------------------------------------------------------------------------------------

    def back_off(
        self, *, service_identity: str, node: str, reason: str, seconds: Callable[[int], float], resource: str = ""
    ) -> EvictionBackoff:
        """Count one more ineffective or refused eviction of the service from the node, and start its backoff.

        `node` may be EVERY_NODE. `seconds`: number of such evictions (1 = the first) -> length of the backoff; may be
        called more than once. It holds evictions for `resource` back, or all; a second one for another resource, while
        the first lasts, holds all back.
        """

        def work(connection: Connection) -> EvictionBackoff:
            now = self._now(connection)
            rows = EVICTION_BACKOFFS.c
            key = {"cluster": self._cluster, "service_identity": service_identity, "node": node}
            # counted by the database: it locks the row, so of two at once none is lost
            values = {"reason": reason, "updated": now, "resource": resource or None}
            first = upsert(connection)(EVICTION_BACKOFFS).values(**key, **values, count=1, until=now)
            again = first.on_conflict_do_update(
                index_elements=list(key),
                set_={
                    **values,
                    "count": rows["count"] + 1,
                    "resource": case(((rows.until <= now) | (rows.resource == resource), first.excluded.resource)),
                },
            )
            count, of = connection.execute(again.returning(rows["count"], rows.resource)).one()
            until = now + seconds(count)
            this = [rows[name] == value for name, value in key.items()]
            connection.execute(update(EVICTION_BACKOFFS).where(*this).values(until=until))
            return EvictionBackoff(
                service_identity=service_identity,
                node=node,
                until=until,
                count=count,
                reason=reason,
                resource=of or "",
            )

        return write(self._engine, work)

    def backoffs(self) -> list[EvictionBackoff]:
        """Backoffs of this cluster that have not expired, by service and node."""
        rows = EVICTION_BACKOFFS.c

        def work(connection: Connection) -> list[EvictionBackoff]:
            query = (
                select(EVICTION_BACKOFFS)
                .where(rows.cluster == self._cluster, rows.until > self._now(connection))
                .order_by(rows.service_identity, rows.node)
            )
            return [
                EvictionBackoff(
                    service_identity=row.service_identity,
                    node=row.node,
                    until=row.until,
                    count=row._mapping["count"],
                    reason=row.reason,
                    resource=row.resource or "",
                )
                for row in connection.execute(query)
            ]

        return read(self._engine, work)

    # -- ready replicas over all clusters -----------------------------------------------------------------------------

    def publish_readiness(self, services: Mapping[str, tuple[int, int]]) -> None:
        """Publish this cluster's services to the others: identity -> (ready, desired) replicas.

        It replaces the last report: a service that is not in it does not run here.
        """

        def work(connection: Connection) -> None:
            now = self._now(connection)
            rows = READY_REPORTS.c
            reported = upsert(connection)(READY_REPORTS)
            reported = reported.on_conflict_do_update(
                index_elements=[rows.cluster, rows.service_identity],
                set_={name: reported.excluded[name] for name in ("ready", "desired", "reported_at")},
            )
            found = [
                {
                    "cluster": self._cluster,
                    "service_identity": identity,
                    "ready": ready,
                    "desired": desired,
                    "reported_at": now,
                }
                for identity, (ready, desired) in sorted(services.items())
            ]
            if found:
                connection.execute(reported, found)
            before = select(rows.service_identity).where(rows.cluster == self._cluster)
            gone = sorted(set(connection.execute(before).scalars()) - set(services))
            for start in range(0, len(gone), _ASKED_AT_ONCE):
                these = rows.service_identity.in_(gone[start : start + _ASKED_AT_ONCE])
                connection.execute(delete(READY_REPORTS).where(rows.cluster == self._cluster, these))

        write(self._engine, work)

    def remote_readiness(self, services: Sequence[str], *, max_age_seconds: float) -> dict[str, RemoteReadiness]:
        """Replicas of these services (identities) in the other clusters.

        Without services that run nowhere else. A report older than `max_age_seconds` counts as none ready, with its
        desired replicas.
        """
        rows = READY_REPORTS.c

        def work(connection: Connection) -> dict[str, RemoteReadiness]:
            oldest = self._now(connection) - max_age_seconds
            out: dict[str, RemoteReadiness] = {}
            for start in range(0, len(services), _ASKED_AT_ONCE):
                query = select(rows.service_identity, rows.ready, rows.desired, rows.reported_at).where(
                    rows.cluster != self._cluster,
                    rows.service_identity.in_(services[start : start + _ASKED_AT_ONCE]),
                )
                for identity, ready, desired, at in connection.execute(query):
                    so_far = out.get(identity, RemoteReadiness(0, 0, 0))
                    fresh = ready if at >= oldest else 0
                    out[identity] = RemoteReadiness(so_far.ready + fresh, so_far.desired + desired, so_far.clusters + 1)
            return out

        return read(self._engine, work)

    # -- the limits that clusters state -------------------------------------------------------------------------------

    def publish_global_limits(self, *, digest: str, text: str, longest_window_seconds: float, nodes: int) -> None:
        """Publish the global limits of this cluster's policy: `text` is JSON, `digest` its hash.

        `longest_window_seconds` is the longest time for which any of its limits or cooldowns needs an entry.
        Percentages of the global limits are taken of the `nodes` of all clusters.
        """

        def work(connection: Connection) -> None:
            values = {
                "digest": digest,
                "text": text,
                "updated": self._now(connection),
                "longest_window_seconds": longest_window_seconds,
                "nodes": nodes,
            }
            statement = upsert(connection)(CLUSTER_LIMITS).values(cluster=self._cluster, **values)
            connection.execute(statement.on_conflict_do_update(index_elements=[CLUSTER_LIMITS.c.cluster], set_=values))

        write(self._engine, work)

    def nodes_elsewhere(self) -> int:
        """Nodes of the other clusters, as they published them within a day; one that published none has none."""

        def work(connection: Connection) -> int:
            rows = CLUSTER_LIMITS.c
            others = (rows.cluster != self._cluster, rows.updated > self._now(connection) - PUBLISHED_SECONDS)
            total = select(func.coalesce(func.sum(rows.nodes), 0)).where(*others)
            return int(connection.execute(total).scalar_one())

        return read(self._engine, work)

    def global_limits(self) -> dict[str, str]:
        """Cluster -> the global limits that it stated last."""
        query = select(CLUSTER_LIMITS.c.cluster, CLUSTER_LIMITS.c.text).order_by(CLUSTER_LIMITS.c.cluster)
        return read(self._engine, lambda connection: {row.cluster: row.text for row in connection.execute(query)})


def _active(scope: Scope, now: float) -> ColumnElement[bool]:
    return (PAUSES.c.kind == scope.kind) & (PAUSES.c.key == scope.key) & in_force(now)
