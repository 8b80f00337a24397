"""Alerts of one cluster, kept until they are over: the adapter behind `model.decisions.ports.Inbox`.

Any replica receives, the leader works them off. A delivery has been committed before Alertmanager gets its 200, so
neither a restart nor a change of leaders loses one; the same delivery again changes nothing. A large one is written in
parts, and what there is no time for is left to the next delivery.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, bindparam, func, or_, select, tuple_, update

from rebalancer.model.decisions.alerts import Alert, AlertEpisode, EpisodeState, Received
from rebalancer.model.decisions.ports import Clock
from rebalancer.store.db.dialect import read_clock, upsert
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import ALERT_EPISODES

PART = 1000
"""Alerts in one transaction."""

RECEIVE_SECONDS = 8.0
"""Alertmanager waits for ten seconds unless its receiver has another `timeout`."""

MOST_DUE = 500
"""Most episodes of one cycle; the others are due in the next."""

AT_ONCE = 200
"""Alerts in one statement: SQLite takes 32,766 parameters, a row has twelve."""

_ROWS = ALERT_EPISODES.c
T = TypeVar("T")


class SqlInbox:
    """See the module. Every method but `receive` is one short transaction; all raise ConfigError, ConnectError."""

    def __init__(
        self,
        *,
        engine: Engine,
        cluster: str,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Times are by the database's clock unless a `clock` replaces it. The caller disposes of the engine."""
        self._engine = engine
        self._cluster = cluster
        self._clock = clock
        self._monotonic = monotonic

    def receive(self, alerts: Sequence[Alert], *, max_age_seconds: float, seconds: float = RECEIVE_SECONDS) -> Received:
        """Record a delivery, in parts of one transaction each; no part begins after so many `seconds`.

        An alert that fires opens an episode unless there was one for its fingerprint and start; an open one is
        refreshed, one that had expired or been refused is open again. It ends earlier ones of the same fingerprint:
        Alertmanager has one at a time. One that is resolved ends its episode, for good. One that began more than
        `max_age_seconds` ago, and is not known, is a replay. One whose end has passed is resolved, whatever its status.
        """
        received, end = Received(), self._monotonic() + seconds
        keys = {(each.fingerprint, _as_kept(each.starts_at)) for each in alerts if each.firing}
        known = read(self._engine, lambda connection: self._known(connection, keys)) if len(alerts) > PART else {}

        def rank(alert: Alert) -> int:
            # new ones first, so that each delivery gets further; what is over after its beginning
            return (2 if (alert.fingerprint, _as_kept(alert.starts_at)) in known else 0) if alert.firing else 1

        left = sorted(alerts, key=rank)
        while left and self._monotonic() < end:
            part, left = left[:PART], left[PART:]
            received += write(self._engine, partial(self._receive, alerts=part, max_age_seconds=max_age_seconds))
        return replace(received, deferred=len(left))

    def _receive(self, connection: Connection, *, alerts: Sequence[Alert], max_age_seconds: float) -> Received:
        now = read_clock(connection, self._clock)
        firing = {(each.fingerprint, _as_kept(each.starts_at)): each for each in alerts if each.fires_at(now)}
        over = {(each.fingerprint, _as_kept(each.starts_at)) for each in alerts if not each.fires_at(now)}
        known = self._known(connection, firing)
        new = {key: alert for key, alert in firing.items() if key not in known}
        fresh = {key: alert for key, alert in new.items() if now - alert.starts_at <= max_age_seconds}
        if fresh:
            # not one statement with all values: to compile that takes longer than to run it. In order, so that two
            # replicas don't wait for each other
            rows = [self._row(fresh[key], now) for key in sorted(fresh)]
            connection.execute(upsert(connection)(ALERT_EPISODES).on_conflict_do_nothing(), rows)
        if known:
            self._refresh(connection, {id_: firing[key] for key, id_ in known.items()}, now)
        ended = self._end(connection, fresh, strict=True, reason="it fires again since a later start")
        ended += self._end(connection, over, strict=False, reason="Alertmanager says that it is over")
        return Received(opened=len(fresh), duplicate=len(known), resolved=ended, too_old=len(new) - len(fresh))

    def due(self, *, expire_after_seconds: float) -> list[AlertEpisode]:
        """Open episodes that are due, at most MOST_DUE, those that wait longest first. Those without a delivery for so
        long are closed."""

        def look(connection: Connection) -> tuple[list[AlertEpisode], bool]:
            now = read_clock(connection, self._clock)
            oldest = connection.execute(select(func.min(_ROWS.last_received_at)).where(*self._open())).scalar()
            if oldest is not None and oldest <= now - expire_after_seconds:
                return [], True
            query = select(ALERT_EPISODES).where(*self._open(), _ROWS.next_at <= now)
            query = query.order_by(_ROWS.next_at, _ROWS.id).limit(MOST_DUE)
            return [_episode(row) for row in connection.execute(query)], False

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

    def open_episodes(self) -> list[AlertEpisode]:
        """Those that are not over, the oldest first, at most MOST_DUE."""
        query = select(ALERT_EPISODES).where(*self._open()).order_by(_ROWS.id).limit(MOST_DUE)
        return read(self._engine, lambda connection: [_episode(row) for row in connection.execute(query)])

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

    def _known(self, connection: Connection, keys: Iterable[tuple[str, float]]) -> dict[tuple[str, float], int]:
        """(fingerprint, start) -> id of those that have a row."""
        found: dict[tuple[str, float], int] = {}
        for some in _chunks(keys):
            query = select(_ROWS.id, _ROWS.fingerprint, _ROWS.starts_at).where(
                _ROWS.cluster == self._cluster, tuple_(_ROWS.fingerprint, _ROWS.starts_at).in_(list(some))
            )
            found |= {(row.fingerprint, row.starts_at): row.id for row in connection.execute(query)}
        return found

    def _refresh(self, connection: Connection, heard: Mapping[int, Alert], now: float) -> None:
        """`heard` is id -> alert."""
        rows = [{"row": id_, "said": dict(alert.annotations)} for id_, alert in sorted(heard.items())]
        this = update(ALERT_EPISODES).where(_ROWS.id == bindparam("row"))
        values = {"last_received_at": now, "annotations": bindparam("said")}
        connection.execute(this.where(*self._open()).values(values), rows)
        # it fires on: we had lost sight of it, or what made us refuse it may have been mended
        lost = or_(_ROWS.state == EpisodeState.EXPIRED.value, _ROWS.state == EpisodeState.REFUSED.value)
        connection.execute(this.where(lost).values({**values, "state": EpisodeState.OPEN.value, "next_at": now}), rows)

    def _end(self, connection: Connection, keys: Iterable[tuple[str, float]], *, strict: bool, reason: str) -> int:
        """End open episodes of the fingerprints that began before these starts; unless `strict` also those of the same
        start. How many ended."""
        latest: dict[str, float] = {}
        for fingerprint, start in keys:
            latest[fingerprint] = max(start, latest.get(fingerprint, start))
        ids: list[int] = []
        for some in _chunks(latest):
            query = select(_ROWS.id, _ROWS.fingerprint, _ROWS.starts_at).where(
                *self._open(), _ROWS.fingerprint.in_(some)
            )
            for row in connection.execute(query):
                start = latest[row.fingerprint]
                if row.starts_at < start or (row.starts_at == start and not strict):
                    ids.append(row.id)
        values = {"state": EpisodeState.RESOLVED.value, "reason": reason}
        return sum(
            connection.execute(update(ALERT_EPISODES).where(*self._open(), _ROWS.id.in_(some)).values(values)).rowcount
            for some in _chunks(sorted(ids))
        )

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
