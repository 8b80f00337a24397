"""Alerts of one cluster, kept until they are over: the adapter behind `model.ports.Inbox`.

Any replica receives, the leader works them off. A delivery is one transaction that has committed before Alertmanager
gets its 200, so neither a restart nor a change of leaders loses one; the same delivery again changes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, func, select, tuple_, update

from rebalancer.model.alerts import Alert, AlertEpisode, EpisodeState, Received
from rebalancer.model.ports import Clock
from rebalancer.store.db.dialect import read_clock, upsert
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import ALERT_EPISODES

AT_ONCE = 200
"""Alerts in one statement: SQLite takes 32,766 parameters, a row has twelve."""

_ROWS = ALERT_EPISODES.c
T = TypeVar("T")


class SqlInbox:
    """See the module. Every method is one short transaction; all raise ConfigError, ConnectError."""

    def __init__(self, *, engine: Engine, cluster: str, clock: Clock | None = None) -> None:
        """Times are by the database's clock unless a `clock` replaces it. The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock

    def receive(self, alerts: Sequence[Alert], *, max_age_seconds: float) -> Received:
        """Record a delivery.

        An alert that fires opens an episode unless there was one for its fingerprint and start; an open one is
        refreshed, one that had expired or been refused is open again. It ends earlier ones of the same fingerprint:
        Alertmanager has one at a time. One that is resolved ends its episode, for good. One that began more than
        `max_age_seconds` ago, and is not known, is a replay. One whose end has passed is resolved, whatever its status.
        """

        def work(connection: Connection) -> Received:
            now = read_clock(connection, self._clock)
            firing = {(each.fingerprint, _as_kept(each.starts_at)): each for each in alerts if each.fires_at(now)}
            over = {(each.fingerprint, _as_kept(each.starts_at)) for each in alerts if not each.fires_at(now)}
            known = self._known(connection, firing)
            new = {key: alert for key, alert in firing.items() if key not in known}
            fresh = {key: alert for key, alert in new.items() if now - alert.starts_at <= max_age_seconds}
            for some in _chunks(fresh.values()):
                rows = [self._row(alert, now) for alert in some]
                connection.execute(upsert(connection)(ALERT_EPISODES).values(rows).on_conflict_do_nothing())
            for key in sorted(known):
                this = (_ROWS.cluster == self._cluster, _ROWS.fingerprint == key[0], _ROWS.starts_at == key[1])
                heard = {"last_received_at": now, "annotations": dict(firing[key].annotations)}
                connection.execute(update(ALERT_EPISODES).where(*this, *self._open()).values(heard))
                # it fires on: we had lost sight of it, or what made us refuse it may have been mended
                connection.execute(
                    update(ALERT_EPISODES)
                    .where(*this, _ROWS.state.in_([EpisodeState.EXPIRED.value, EpisodeState.REFUSED.value]))
                    .values(heard | {"state": EpisodeState.OPEN.value, "next_at": now})
                )
            ended = sum(
                self._end(connection, fingerprint, _ROWS.starts_at < start, "it fires again since a later start")
                for fingerprint, start in sorted(fresh)
            )
            ended += sum(
                self._end(connection, fingerprint, _ROWS.starts_at <= start, "Alertmanager says that it is over")
                for fingerprint, start in sorted(over)
            )
            return Received(opened=len(fresh), duplicate=len(known), resolved=ended, too_old=len(new) - len(fresh))

        return write(self._engine, work)

    def due(self, *, expire_after_seconds: float) -> list[AlertEpisode]:
        """Open episodes that are due, oldest first. Those without a delivery for so long are closed."""

        def look(connection: Connection) -> tuple[list[AlertEpisode], bool]:
            now = read_clock(connection, self._clock)
            oldest = connection.execute(select(func.min(_ROWS.last_received_at)).where(*self._open())).scalar()
            if oldest is not None and oldest <= now - expire_after_seconds:
                return [], True
            query = select(ALERT_EPISODES).where(*self._open(), _ROWS.next_at <= now)
            return [_episode(row) for row in connection.execute(query.order_by(_ROWS.received_at, _ROWS.id))], False

        def expire(connection: Connection) -> None:
            now = read_clock(connection, self._clock)
            connection.execute(
                update(ALERT_EPISODES)
                .where(*self._open(), _ROWS.last_received_at <= now - expire_after_seconds)
                .values(state=EpisodeState.EXPIRED.value)
            )

        episodes, expired = read(self._engine, look)
        if expired:
            write(self._engine, expire)
            episodes, _ = read(self._engine, look)
        return episodes

    def next_at(self) -> float | None:
        """When the next open episode is to be tried; None without any."""
        query = select(func.min(_ROWS.next_at)).where(*self._open())
        at: float | None = read(self._engine, lambda connection: connection.execute(query).scalar())
        return at

    def open_count(self) -> int:
        """How many are not over."""
        query = select(func.count()).select_from(ALERT_EPISODES).where(*self._open())
        return int(read(self._engine, lambda connection: connection.execute(query).scalar_one()))

    def tried(self, episode: AlertEpisode, *, reason: str, next_at: float) -> None:
        """It stays open, unless it was resolved meanwhile, and is to be tried again then."""
        self._write(episode, attempts=_ROWS.attempts + 1, reason=reason, next_at=next_at)

    def close(self, episode: AlertEpisode, *, state: EpisodeState, reason: str) -> None:
        """It is over, unless it was over already."""
        self._write(episode, state=state.value, reason=reason)

    # ---- inside

    def _write(self, episode: AlertEpisode, **values: Any) -> None:
        query = update(ALERT_EPISODES).where(*self._open(), _ROWS.id == episode.id).values(**values)
        write(self._engine, lambda connection: connection.execute(query).rowcount)

    def _open(self) -> tuple[Any, ...]:
        return _ROWS.cluster == self._cluster, _ROWS.state == EpisodeState.OPEN.value

    def _known(self, connection: Connection, keys: Iterable[tuple[str, float]]) -> set[tuple[str, float]]:
        found: set[tuple[str, float]] = set()
        for some in _chunks(keys):
            query = select(_ROWS.fingerprint, _ROWS.starts_at).where(
                _ROWS.cluster == self._cluster, tuple_(_ROWS.fingerprint, _ROWS.starts_at).in_(list(some))
            )
            found |= {(row.fingerprint, row.starts_at) for row in connection.execute(query)}
        return found

    def _end(self, connection: Connection, fingerprint: str, earlier: Any, reason: str) -> int:
        query = update(ALERT_EPISODES).where(*self._open(), _ROWS.fingerprint == fingerprint, earlier)
        return connection.execute(query.values(state=EpisodeState.RESOLVED.value, reason=reason)).rowcount

    def _row(self, alert: Alert, now: float) -> dict[str, Any]:
        return {
            "cluster": self._cluster,
            "fingerprint": alert.fingerprint,
            "starts_at": alert.starts_at,
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "state": EpisodeState.OPEN.value,
            "received_at": now,
            "last_received_at": now,
            "next_at": now,
            "attempts": 0,
            "reason": "",
        }


def _episode(row: Row[Any]) -> AlertEpisode:
    return AlertEpisode(
        id=row.id,
        alert=Alert(
            fingerprint=row.fingerprint,
            firing=True,
            labels=row.labels,
            annotations=row.annotations,
            starts_at=row.starts_at,
        ),
        received_at=row.received_at,
        next_at=row.next_at,
        attempts=row.attempts,
        reason=row.reason,
    )


def _as_kept(seconds: float) -> float:
    """To the microsecond: Alertmanager's nanoseconds don't come back from a database."""
    return datetime.fromtimestamp(seconds, UTC).timestamp()


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, AT_ONCE)):
        yield some
