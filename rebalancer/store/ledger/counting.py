"""Counting in the ledger: lock the scopes, read the clock, and find the check that is used up.

A window slides: a limit of N in a duration holds when the N-th newest counted entry is older than the duration. So one
row per check is read, however many there are, and the same row says when there is room again. Because the clock is read
while the scopes are locked, the entries of a scope are written in the order of their times; and should the clock be set
back, entries "in the future" go on counting.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    bindparam,
    false,
    func,
    insert,
    or_,
    select,
    true,
    tuple_,
    update,
)

from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import Check, Denied, Pause, Scope
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import UnsafeDataError, ledger_behind, ledger_of_another
from rebalancer.store.db.dialect import as_seconds, database_now, upsert
from rebalancer.store.db.tables import ENTRIES, EVICTIONS, PAUSES, SCOPES

_EVENTS = ("inFlight", "bytes")
"""Kinds of checks that count what is in flight: only an event gives room."""


class Reserved(NamedTuple):
    """A reservation that is committed."""

    record: int
    number: int
    """In the cluster's sequence, from 1."""
    at: float
    """Seconds since the epoch."""


class Wanted(NamedTuple):
    """A reservation to be made."""

    eviction: Eviction
    scopes: Sequence[Scope]
    """Sorted; the cluster's own is among them."""
    checks: Sequence[Check]

    @classmethod
    def of(cls, eviction: Eviction, checks: Sequence[Check], *, cluster: str) -> "Wanted":
        """With the cluster's own scope. Raises ValueError for a check of a scope that the eviction isn't counted in."""
        scopes = sorted({*eviction.scopes, Scope.of("cluster", cluster)})
        if strange := [check.scope for check in checks if check.scope not in scopes]:
            # such a check would never see its own evictions, and never be used up
            raise ValueError(f"the eviction is not counted in {strange[0]}, which is checked")
        return cls(eviction, scopes, checks)


def scopes_of(wanted: Sequence[Wanted]) -> list[Scope]:
    """The scopes of all, sorted."""
    return sorted({scope for each in wanted for scope in each.scopes})


def lock_scopes(connection: Connection, scopes: Sequence[Scope], *, cluster: str, term: int | None) -> None:
    """Lock the rows of `scopes` (sorted, the cluster's own among them) until the transaction ends.

    On SQLite the transaction holds the only write lock anyway. A `term` that is newer than the cluster's is kept;
    raises UnsafeDataError for an older one, and for none where there was one before.
    """
    terms = hold_scopes(connection, scopes)
    own = Scope.of("cluster", cluster)
    seen = terms[own]
    if seen is not None and (term is None or term < seen):
        ours = "none" if term is None else str(term)
        raise UnsafeDataError(f"cluster {cluster}: our lease term ({ours}) is stale, the ledger has seen {seen}")
    if term is not None and term != seen:
        connection.execute(update(SCOPES).where(SCOPES.c.kind == own.kind, SCOPES.c.key == own.key).values(term=term))


def claim_cluster(connection: Connection, *, cluster: str, uid: str) -> None:
    """Write the Kubernetes cluster's UID to the cluster's scope, which must be locked, where it has none.

    Raises UnsafeDataError where it has another one.
    """
    own = (SCOPES.c.kind == "cluster", SCOPES.c.key == cluster)
    known = connection.execute(select(SCOPES.c.cluster_uid).where(*own)).scalar()
    if uid and not known:
        connection.execute(update(SCOPES).where(*own).values(cluster_uid=uid))
    elif uid and known != uid:
        raise ledger_of_another(cluster)


def next_in_sequence(connection: Connection, *, cluster: str, known: int) -> int:
    """Count one more reservation of the cluster, whose scope must be locked: its number, from 1.

    `known` is the last number that this process has seen committed. Raises UnsafeDataError when the database has
    fewer: it was restored, or a standby without the last commits took over.
    """
    own = (SCOPES.c.kind == "cluster", SCOPES.c.key == cluster)
    before = connection.execute(select(SCOPES.c.sequence).where(*own)).scalar() or 0
    if before < known:
        raise ledger_behind(ledger=before, known=known)
    connection.execute(update(SCOPES).where(*own).values(sequence=before + 1))
    return before + 1


def hold_scopes(connection: Connection, scopes: Sequence[Scope]) -> dict[tuple[str, str], int | None]:
    """Insert missing rows of `scopes` (each once, sorted) and lock them in this order: (kind, key) -> term."""
    rows = [{"kind": scope.kind, "key": scope.key} for scope in scopes]
    # the update that never happens locks a row that is there: it can't be pruned before it is read
    insert_or_lock = upsert(connection)(SCOPES)
    insert_or_lock = insert_or_lock.on_conflict_do_update(
        index_elements=[SCOPES.c.kind, SCOPES.c.key], set_={"key": insert_or_lock.excluded.key}, where=false()
    )
    query = select(SCOPES.c.kind, SCOPES.c.key, SCOPES.c.term).where(
        tuple_(SCOPES.c.kind, SCOPES.c.key).in_([tuple(scope) for scope in scopes])
    )
    connection.execute(insert_or_lock, rows)
    return {(row.kind, row.key): row.term for row in connection.execute(query)}


def pause_in_force(connection: Connection, scopes: Sequence[Scope], *, now: float) -> Pause | None:
    """The oldest pause of one of `scopes`, which must be locked: pausing locks the same rows."""
    rows = PAUSES.c
    query = (
        select(PAUSES)
        .where(tuple_(rows.kind, rows.key).in_([tuple(scope) for scope in scopes]), in_force(now))
        .order_by(rows.created, rows.id)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else as_pause(row)


def in_force(now: float) -> ColumnElement[bool]:
    """Condition of pauses in force at `now`."""
    rows = PAUSES.c
    return rows.ended.is_(None) & or_(rows.until.is_(None), rows.until > now)


def as_pause(row: Row[Any]) -> Pause:
    """A row of PAUSES."""
    return Pause(scope=Scope(row.kind, row.key), reason=row.reason, created_by=row.created_by, until=row.until)


def count(
    connection: Connection, checks: Sequence[Check], *, cluster: str, clock: Clock | None
) -> tuple[float, Denied | None, bool]:
    """(now, the check that denies longest, whether any pause has not been ended).

    The scopes must be locked.

    A check that only an event frees (`inFlight`, `bytes`, or a limit of 0) holds longer than any other.
    """
    figures = connection.execute(
        _figures(tuple(check.kind for check in checks), connection.dialect.name),
        _parameters(checks, cluster),
    ).one()
    # the clock of the lab is read here too: after the locks
    now = as_seconds(figures[0]) if clock is None else round(clock.now(), 6)
    worst: tuple[float, Check, float] | None = None
    for check, figure in zip(checks, figures[2:], strict=True):
        free_at = _free_at(check, figure)
        # so written that a figure which is not a number closes
        if not free_at <= now and (worst is None or not free_at <= worst[0]):
            worst = (free_at, check, figure)
    paused = bool(figures[1])
    if worst is None:
        return now, None, paused
    free_at, check, figure = worst
    used = int(figure) if check.kind in _EVENTS else _used(connection, check, now=now, cluster=cluster)
    return now, Denied(check=check, used=used, next_at=free_at if math.isfinite(free_at) else None), paused


def _free_at(check: Check, figure: float | None) -> float:
    """When the check admits one more: -inf = now, inf = only after an event."""
    if check.kind == "inFlight":
        return -math.inf if (figure or 0) < check.at_most else math.inf
    if check.kind == "bytes":
        # so written that an amount which is not a number closes
        return -math.inf if (figure or 0.0) + check.amount <= check.at_most else math.inf
    if check.kind == "rate" and check.at_most <= 0:
        return math.inf
    return -math.inf if figure is None else figure + check.per_seconds


def _used(connection: Connection, check: Check, *, now: float, cluster: str) -> int:
    since = max(now - check.per_seconds, 0.0) if math.isfinite(check.per_seconds) else 0.0
    query = _counted(check.scope.kind, check.scope.key, elsewhere_than=cluster if _elsewhere(check.kind) else None)
    within = query.where(ENTRIES.c.at > since).subquery()
    return int(connection.execute(select(func.count()).select_from(within)).scalar_one())


@lru_cache(maxsize=128)
def _figures(kinds: tuple[str, ...], dialect: str) -> Select[Any]:
    """The database's time, the number of pauses not ended, and a figure for each check; parameters: `_parameters`.

    One statement, so that the locks are held for one round trip. Cached for each sequence of kinds, of which a policy
    has a handful: building it costs more than running it.
    """
    unended = select(func.count()).select_from(PAUSES).where(PAUSES.c.ended.is_(None))
    columns: list[ColumnElement[Any]] = [database_now(dialect), unended.scalar_subquery()]
    for index, kind in enumerate(kinds):
        scope: BindParameter[str] = bindparam(f"kind{index}")
        key: BindParameter[str] = bindparam(f"key{index}")
        if kind == "inFlight":
            rows = ENTRIES.c
            found = select(func.count()).where(rows.kind == scope, rows.key == key, rows.in_flight == true())
        elif kind == "bytes":
            rows = ENTRIES.c
            found = (
                select(func.coalesce(func.sum(EVICTIONS.c.pull_bytes), 0.0))
                .select_from(ENTRIES.join(EVICTIONS, EVICTIONS.c.id == rows.eviction))
                .where(rows.kind == scope, rows.key == key, rows.in_flight == true())
            )
        else:
            cluster: BindParameter[str] | None = bindparam("cluster") if _elsewhere(kind) else None
            newest = _counted(scope, key, elsewhere_than=cluster).order_by(ENTRIES.c.at.desc())
            found = newest.limit(1).offset(bindparam(f"skip{index}", type_=Integer))
        columns.append(found.scalar_subquery())
    return select(*columns)


def _parameters(checks: Sequence[Check], cluster: str) -> dict[str, str | int]:
    parameters: dict[str, str | int] = {}
    for index, check in enumerate(checks):
        parameters[f"kind{index}"], parameters[f"key{index}"] = check.scope
        if check.kind not in _EVENTS:
            # none within the duration is: at most one in it, so the newest one must have left
            parameters[f"skip{index}"] = max(check.at_most - 1, 0) if check.kind == "rate" else 0
        if _elsewhere(check.kind):
            parameters["cluster"] = cluster
    return parameters


def _elsewhere(kind: str) -> bool:
    return kind == "separation"


def _counted(kind: Any, key: Any, *, elsewhere_than: Any) -> Select[Any]:
    rows = ENTRIES.c
    query = select(rows.at).where(rows.kind == kind, rows.key == key, rows.counted == true())
    if elsewhere_than is None:
        return query
    return query.join(EVICTIONS, EVICTIONS.c.id == rows.eviction).where(EVICTIONS.c.cluster != elsewhere_than)


def add_entries(connection: Connection, scopes: Sequence[Scope], *, eviction: int, at: float) -> None:
    """Count the eviction in every scope."""
    same = {"eviction": eviction, "at": at, "counted": True, "in_flight": True}
    connection.execute(insert(ENTRIES), [{"kind": scope.kind, "key": scope.key, **same} for scope in scopes])
