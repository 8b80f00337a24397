"""A reservation on PostgreSQL in one round trip: lock, count, insert and commit.

Between two round trips a process that has to wait for a CPU holds the scopes' locks, and all others wait with it. Here
the server holds them for as long as it counts and commits. The statements are sent together and run one after the
other, each on what was committed before it began: what is counted is counted after the locks are held.

Several reservations of a plan go together: their scopes are locked once, in their order, and each is counted after the
ones before it.

A reservation is made here only if nothing is against it. Whatever else there is (a check that is used up, a pause, a
lease's term that differs, a database that was restored) changes nothing and is left to the caller, who counts in
steps and says why (`counting`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import Connection, TypeDecorator
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from rebalancer.model.decisions.limits import Check, Scope
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.store.db.tables import EVICTIONS, Instant
from rebalancer.store.ledger.counting import Reserved, Wanted, scopes_of
from rebalancer.store.ledger.rows import planned_row

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
_LONGEST_SECONDS = 1e9
"""Of a window that is counted here: longer ones are beyond the server's intervals."""

# Locks a row that is there as well, in the order given: `counting.hold_scopes`.
_LOCK = """
INSERT INTO scopes (kind, key) SELECT * FROM unnest(%(kinds)s::text[], %(keys)s::text[])
ON CONFLICT (kind, key) DO UPDATE SET key = excluded.key WHERE false
"""
# By kind of check: whether it denies, as `counting._free_at` has it. Only those that there are: most of the statement's
# time is planning it.
_DENIES = {
    "inFlight": """at_most <= (
        SELECT count(*) FROM entries WHERE (kind, key) = (checks.scope, checks.key) AND in_flight
    )""",
    "bytes": """at_most < amount + (
        SELECT coalesce(sum(pull_bytes), 0) FROM entries JOIN evictions ON evictions.id = eviction
        WHERE (kind, key) = (checks.scope, checks.key) AND in_flight
    )""",
    "rate": """at_most <= 0 OR moment.now < make_interval(secs => seconds) + (
        SELECT at FROM entries WHERE (kind, key) = (checks.scope, checks.key) AND counted
        ORDER BY at DESC LIMIT 1 OFFSET greatest(checks.at_most::bigint - 1, 0)
    )""",
    "spacing": """moment.now < make_interval(secs => seconds) + (
        SELECT at FROM entries WHERE (kind, key) = (checks.scope, checks.key) AND counted ORDER BY at DESC LIMIT 1
    )""",
    "separation": """moment.now < make_interval(secs => seconds) + (
        SELECT at FROM entries JOIN evictions ON evictions.id = eviction
        WHERE (kind, key) = (checks.scope, checks.key) AND counted AND cluster <> %(cluster)s
        ORDER BY at DESC LIMIT 1
    )""",
}
# The time is the statement's own, not now(), which is from before the locks.
_RESERVE = """
WITH moment AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
),
admitted AS MATERIALIZED (
    SELECT moment.now FROM moment, scopes AS own
    WHERE own.kind = 'cluster' AND own.key = %(cluster)s
        AND own.term IS NOT DISTINCT FROM %(term)s::bigint
        AND coalesce(own.sequence, 0) >= %(known)s
        AND NOT EXISTS (
            SELECT FROM pauses JOIN unnest(%(kinds)s::text[], %(keys)s::text[]) AS scope (kind, key) USING (kind, key)
            WHERE ended IS NULL AND (until IS NULL OR until > moment.now)
        )
        {checks}
),
numbered AS (
    UPDATE scopes SET sequence = coalesce(sequence, 0) + 1 FROM admitted
    WHERE kind = 'cluster' AND key = %(cluster)s RETURNING sequence
),
written AS (
    INSERT INTO evictions ({columns}, planned_at)
    SELECT {columns}, now FROM admitted, json_populate_record(NULL::evictions, %(row)s) RETURNING id
),
counted AS (
    INSERT INTO entries (eviction, kind, key, at, counted, in_flight)
    SELECT id, kind, key, now, true, true
    FROM admitted, written, unnest(%(kinds)s::text[], %(keys)s::text[]) AS scope (kind, key)
)
SELECT id, sequence, now FROM admitted, written, numbered
"""
_CHECKS = """AND NOT EXISTS (
    SELECT FROM unnest(
        %(check_kinds)s::text[], %(check_scopes)s::text[], %(check_keys)s::text[],
        %(at_most)s::float8[], %(seconds)s::float8[], %(amounts)s::float8[]
    ) AS checks (check_kind, scope, key, at_most, seconds, amount)
    WHERE CASE check_kind {cases} END
)"""


def reserve_at_once(
    connection: Connection,
    report: CycleReport,
    wanted: Sequence[Wanted],
    *,
    cluster: str,
    term: int | None,
    known: int,
    now: float | None,
) -> list[Reserved | None]:
    """Reserve each and write its eviction's row, if every check admits it with those before it counted, and nothing
    else is against it; None, and nothing is written of it, otherwise. The transaction is over then.

    `known` is the last number of the cluster's sequence that this process has seen; `now` replaces the database's
    clock. Raises SQLAlchemyError.
    """
    plain = [each for each in wanted if all(_plain(check) for check in each.checks)]
    if not plain:
        return [None] * len(wanted)
    locks = _scopes(scopes_of(plain))
    same = {"cluster": cluster, "term": term, "known": known, "now": Instant().process_bind_param(now, _DIALECT)}
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        with driver.pipeline():
            driver.execute(_LOCK, locks)
            sent = []
            for each in plain:
                row = planned_row(report, each.eviction, cluster=cluster, lease_term=term)
                statement = _reserving(tuple(row), tuple(sorted({check.kind for check in each.checks})))
                sent.append(driver.execute(statement, same | _scopes(each.scopes) | _arguments(row, each.checks)))
            driver.commit()
        found = {id(each): reserved.fetchone() for each, reserved in zip(plain, sent, strict=True)}
    except psycopg.Error as error:
        raise DBAPIError("a reservation", None, error, hide_parameters=True) from None
    answers = [found.get(id(each)) for each in wanted]
    return [None if each is None else Reserved(each[0], each[1], each[2].timestamp()) for each in answers]


def _scopes(scopes: Sequence[Scope]) -> dict[str, Any]:
    return {"kinds": [scope.kind for scope in scopes], "keys": [scope.key for scope in scopes]}


def _arguments(row: Mapping[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "check_kinds": [check.kind for check in checks],
        "check_scopes": [check.scope.kind for check in checks],
        "check_keys": [check.scope.key for check in checks],
        "at_most": [float(check.at_most) for check in checks],
        "seconds": [float(check.per_seconds) for check in checks],
        "amounts": [float(check.amount) for check in checks],
        "row": json.dumps({column: _json_value(column, value) for column, value in row.items()}),
    }


def _plain(check: Check) -> bool:
    """Whether the server's arithmetic has its figures: what isn't a number, or endless, is for `counting`."""
    finite = math.isfinite(check.at_most) and math.isfinite(check.amount)
    return finite and check.kind in _DENIES and 0 <= check.per_seconds < _LONGEST_SECONDS


def _json_value(column: str, value: Any) -> Any:
    """The value as the column's type binds it, which `json_populate_record` reads."""
    of_type = EVICTIONS.c[column].type
    if isinstance(of_type, TypeDecorator):
        value = of_type.process_bind_param(value, _DIALECT)
    return value.isoformat() if isinstance(value, datetime) else value


@lru_cache(maxsize=32)
def _reserving(columns: tuple[str, ...], kinds: tuple[str, ...]) -> str:
    cases = " ".join(f"WHEN '{kind}' THEN {_DENIES[kind]}" for kind in kinds)
    return _RESERVE.format(
        checks=_CHECKS.format(cases=cases) if kinds else "", columns=", ".join(f'"{column}"' for column in columns)
    )
