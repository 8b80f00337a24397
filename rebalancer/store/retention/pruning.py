"""Removal of rows that no limit can see any more: old entries, unused scopes, reports of silent clusters; of forecasts
and their outcomes after 90 days, which no limit reads; and of details, see `details`.

Every cluster states how far its policy looks back; nothing younger than the longest of these is dropped, and nothing
that is in flight. Each batch is a transaction of its own, so no other transaction waits long.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    true,
    tuple_,
    update,
)

from rebalancer.model.decisions.alerts import EpisodeState
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.outcomes import KEPT_DAYS
from rebalancer.policy.schema.types import format_duration
from rebalancer.store.db.dialect import read_clock
from rebalancer.store.db.effect_tables import NODE_MEASUREMENTS
from rebalancer.store.db.engine import open_engine, read, shown_url, write
from rebalancer.store.db.migrate import check_schema
from rebalancer.store.db.tables import (
    ALERT_EPISODES,
    CLUSTER_LIMITS,
    ENTRIES,
    FORECAST_OUTCOMES,
    FORECASTS,
    LEDGER,
    READY_REPORTS,
    SCOPES,
)
from rebalancer.store.retention.details import Cut, cuts, old_rows, thin, to_be_thinned

EVERY_SECONDS = 3600.0
MARGIN_SECONDS = DAY_SECONDS
"""Clocks that are set back, and limits that are made a little longer, still find what they need."""
SILENT_SECONDS = 30 * DAY_SECONDS
"""A cluster's reports expire after so long without a new one; alerts that are over are dropped."""
FORECASTS_SECONDS = 90 * DAY_SECONDS
"""Forecasts and their actuals are kept so long."""
OUTCOMES_SECONDS = KEPT_DAYS * DAY_SECONDS
"""Outcomes that forecasts learn from are."""
BATCH = 5000
BATCHES_BY_ITSELF = 20

_KEPT_SCOPES = ("global", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was dropped, or would be."""

    before: float
    """Seconds since the epoch: entries older than this."""
    entries: int
    scopes: int
    clusters: tuple[str, ...]
    """Those whose reports were too old."""
    forecasts: int
    """Made more than 90 days ago."""
    forecast_outcomes: int
    """Pools and periods whose forecasts were made more than 90 days ago."""
    details: Mapping[str, int]
    """Table -> rows, of details that were too old. Of `node_measurements` also those that were thinned out."""


def prune(url: str, *, older_than: float | None = None, dry_run: bool) -> Pruned:
    """`prune_in` of the database at `url`. Raises ConfigError when its schema isn't current too."""
    engine = open_engine(url)
    try:
        check_schema(engine)
        return prune_in(engine, older_than=older_than, dry_run=dry_run)
    finally:
        engine.dispose()


def prune_in(engine: Engine, *, clock: Clock | None = None, older_than: float | None = None, dry_run: bool) -> Pruned:
    """Drop everything that may be dropped.

    `older_than` (seconds) replaces the clusters' longest window and their detail retention; without it the details of a
    cluster that has stated no retention stay. Raises ConfigError when `older_than` is shorter than the longest window,
    or missing while a cluster has not stated its own; ConnectError.
    """
    by_hand = older_than
    now = read(engine, lambda connection: read_clock(connection, clock))
    looks_back = read(engine, lambda connection: _looks_back(connection, now))
    longest = max((seconds for seconds in looks_back.values() if seconds is not None), default=0.0)
    if older_than is None:
        if unknown := sorted(name for name, seconds in looks_back.items() if seconds is None):
            names = ", ".join(unknown)
            raise ConfigError(f"{shown_url(engine.url)}: how far do the limits of {names} look back? Not stated yet: "
                              "expected --older-than, or a run there first")  # fmt: skip
        older_than = longest + MARGIN_SECONDS
    elif older_than < longest:
        name, span = next(name for name, each in looks_back.items() if each == longest), format_duration(longest)
        raise ConfigError(f"--older-than: the limits of cluster {name} look back {span}: expected at least {span}")
    before = max(now - older_than, 0.0)
    old = read(engine, lambda connection: cuts(connection, now, older_than=by_hand))
    if dry_run:
        return read(engine, lambda connection: _would_drop(connection, old, before=before, now=now))
    return _drop(engine, old, before=before, now=now)


def prune_at_times(engine: Engine, *, clock: Clock | None = None) -> Pruned | None:
    """Drop a bounded number of rows, unless that was done within the last hour; None then.

    While a cluster hasn't said how far it looks back no entries are dropped, and no details of a cluster that hasn't
    said how long it keeps them. Raises ConfigError, ConnectError.
    """
    now = read(engine, lambda connection: read_clock(connection, clock))
    due = or_(LEDGER.c.pruned.is_(None), LEDGER.c.pruned <= now - EVERY_SECONDS)
    if read(engine, lambda connection: connection.execute(select(LEDGER.c.id).where(due)).one_or_none()) is None:
        return None
    ours = update(LEDGER).where(due).values(pruned=now)
    # of several clusters at once only one finds the row as it was
    if write(engine, lambda connection: connection.execute(ours).rowcount) != 1:
        return None
    spans = read(engine, lambda connection: _looks_back(connection, now)).values()
    known = [seconds for seconds in spans if seconds is not None]
    before = max(now - max(known, default=0.0) - MARGIN_SECONDS, 0.0) if len(known) == len(spans) else 0.0
    old = read(engine, lambda connection: cuts(connection, now))
    return _drop(engine, old, before=before, now=now, batches=BATCHES_BY_ITSELF)


def _looks_back(connection: Connection, now: float) -> Mapping[str, float | None]:
    """Cluster -> how far it looks back; None for one with recent reservations that has not stated it."""
    rows = ENTRIES.c
    counting = select(rows.key).where(rows.kind == "cluster", rows.at > now - SILENT_SECONDS).distinct()
    stated = select(CLUSTER_LIMITS.c.cluster, CLUSTER_LIMITS.c.longest_window_seconds)
    out: dict[str, float | None] = dict.fromkeys(connection.execute(counting).scalars())
    out.update({row.cluster: row.longest_window_seconds for row in connection.execute(stated)})
    return out


def _old(before: float) -> ColumnElement[bool]:
    return and_(ENTRIES.c.at < before, ENTRIES.c.in_flight != true())


def _unused(before: float) -> ColumnElement[bool]:
    """Scopes in which only entries count that are dropped. A cluster's own holds its term, the global one is always
    needed."""
    stays = exists().where(
        ENTRIES.c.kind == SCOPES.c.kind,
        ENTRIES.c.key == SCOPES.c.key,
        or_(ENTRIES.c.at >= before, ENTRIES.c.in_flight == true()),
    )
    return and_(SCOPES.c.kind.not_in(_KEPT_SCOPES), ~stays)


def _old_forecasts(now: float) -> ColumnElement[bool]:
    return FORECASTS.c.made_at < max(now - FORECASTS_SECONDS, 0.0)


def _old_outcomes(now: float) -> ColumnElement[bool]:
    return FORECAST_OUTCOMES.c.made_at < max(now - OUTCOMES_SECONDS, 0.0)


def _silent(connection: Connection, now: float) -> tuple[str, ...]:
    """Clusters whose reports and stated limits are all too old; limits never younger than what they look back."""
    newest: dict[str, float] = {}
    longest: dict[str, float] = {}
    reported = select(READY_REPORTS.c.cluster, func.max(READY_REPORTS.c.reported_at).label("at"))
    for row in connection.execute(reported.group_by(READY_REPORTS.c.cluster)):
        newest[row.cluster] = row.at
    for row in connection.execute(select(CLUSTER_LIMITS)):
        newest[row.cluster] = max(newest.get(row.cluster, 0.0), row.updated)
        longest[row.cluster] = row.longest_window_seconds or 0.0
    return tuple(sorted(name for name, at in newest.items() if at < now - max(SILENT_SECONDS, longest.get(name, 0.0))))


def _would_drop(connection: Connection, old: Sequence[Cut], *, before: float, now: float) -> Pruned:
    def count(table: Table, which: ColumnElement[bool]) -> int:
        return connection.execute(select(func.count()).select_from(table).where(which)).scalar_one()

    details: Counter[str] = Counter()
    for cut in old:
        details[NODE_MEASUREMENTS.name] += count(NODE_MEASUREMENTS, to_be_thinned(cut))
        for table, which in old_rows(cut, after_their_parts=False):
            details[table.name] += count(table, which)
    return Pruned(
        before=before,
        entries=count(ENTRIES, _old(before)),
        scopes=count(SCOPES, _unused(before)),
        clusters=_silent(connection, now),
        forecasts=count(FORECASTS, _old_forecasts(now)),
        forecast_outcomes=count(FORECAST_OUTCOMES, _old_outcomes(now)),
        details=dict(+details),
    )


def _drop(engine: Engine, old: Sequence[Cut], *, before: float, now: float, batches: int | None = None) -> Pruned:
    """`batches`: of each table, at most; None = all."""
    entries = _drop_rows(engine, ENTRIES, _old(before), batches)
    forecasts = _drop_rows(engine, FORECASTS, _old_forecasts(now), batches)
    outcomes = _drop_rows(engine, FORECAST_OUTCOMES, _old_outcomes(now), batches)
    # a locked row is in use: it is skipped, not waited for
    unused = select(SCOPES.c.kind, SCOPES.c.key).where(_unused(before)).with_for_update(skip_locked=True)
    rest = delete(SCOPES).where(tuple_(SCOPES.c.kind, SCOPES.c.key).in_(unused))
    scopes = write(engine, lambda connection: connection.execute(rest).rowcount)

    def forget(connection: Connection) -> tuple[str, ...]:
        silent = _silent(connection, now)
        for table in (READY_REPORTS, CLUSTER_LIMITS):
            connection.execute(delete(table).where(table.c.cluster.in_(silent)))
        # not sooner: a repeat of an alert that is over must find its row
        over = ALERT_EPISODES.c.state != EpisodeState.OPEN.value
        connection.execute(delete(ALERT_EPISODES).where(over, ALERT_EPISODES.c.last_received_at < now - SILENT_SECONDS))
        return silent

    clusters = write(engine, forget)
    details: Counter[str] = Counter()
    for cut in old:
        details[NODE_MEASUREMENTS.name] += thin(engine, cut, batches)
        for table, which in old_rows(cut, after_their_parts=True):
            details[table.name] += _drop_rows(engine, table, which, batches)
    return Pruned(
        before=before,
        entries=entries,
        scopes=scopes,
        clusters=clusters,
        forecasts=forecasts,
        forecast_outcomes=outcomes,
        details=dict(+details),
    )


def _drop_rows(engine: Engine, table: Table, old: ColumnElement[bool], batches: int | None) -> int:
    """Delete rows batch by batch, at most so many; how many rows went."""
    key = tuple_(*table.primary_key.columns)
    some = delete(table).where(key.in_(select(*table.primary_key.columns).where(old).limit(BATCH)))
    dropped, rounds = 0, 0
    while batches is None or rounds < batches:
        found = write(engine, lambda connection: connection.execute(some)).rowcount
        dropped += found
        rounds += 1
        if found < BATCH:
            break
    return dropped
