"""What must hold of evictions, from the labs' logs and the ledger's rows alone."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS
from tests.store.readers import MICRO, _microseconds, raw_connection

SHORTER = 0.001
"""Seconds: windows are half open, and times are kept in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One eviction that a lab carried out."""

    cluster: str
    at: float
    uid: str
    service: str
    node: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the ledger."""

    cluster: str
    uid: str
    outcome: str
    reserved: float
    term: int


def rows_of(url: str) -> list[Row]:
    with raw_connection(url) as connection:
        found = connection.execute(
            "SELECT cluster, uid, outcome, planned_at, lease_term FROM evictions WHERE NOT dry_run ORDER BY id"
        ).fetchall()
    return [
        Row(cluster=cluster, uid=uid, outcome=outcome, reserved=_microseconds(at) / MICRO, term=term)
        for cluster, uid, outcome, at, term in found
    ]


def disagreements(
    calls: Sequence[Call],
    rows: Sequence[Row],
    late: Collection[tuple[str, str]] = (),
    lost: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Evictions without exactly one row that counts them, and rows of evictions that did not happen.

    A pod of `late` (cluster, uid) may be counted twice: its call was on its way for so long that the next leader has
    evicted it again. One of `late` and `lost` needs no row: the process ended before the database could be written, and
    the next leader has seen the pod alive.
    """
    happened = Counter((each.cluster, each.uid) for each in calls)
    counted = Counter((each.cluster, each.uid) for each in rows if each.outcome == "evicted")
    at_most = {key: 2 if key in late else 1 for key in happened}
    out = [f"{key} was evicted {count} times" for key, count in happened.items() if count > at_most[key]]
    at_least = {key: 0 if key in late and key in lost else 1 for key in happened}
    wrong = [key for key in happened if not at_least[key] <= counted[key] <= at_most[key]]
    out += [f"{key} was evicted, {counted[key]} rows count it" for key in wrong]
    out += [f"{key} is counted and was not evicted" for key in counted if key not in happened]
    open_rows = [each for each in rows if each.outcome in ("planned", "unknown")]
    out += [f"{each.cluster}/{each.uid}: {each.outcome} at the end" for each in open_rows]
    return out


def limited(calls: Sequence[Call], late: Collection[tuple[str, str]], rows: Sequence[Row]) -> list[tuple[float, Call]]:
    """(when it counts, call): at the call; one of `late` when its own term reserved it.

    Without calls that were on their way for longer than CALL_GRACE_SECONDS: they were refunded before they arrived.
    """
    reserved = {(each.cluster, each.uid, each.term): each.reserved for each in rows}
    out = []
    for each in calls:
        known = reserved.get((each.cluster, each.uid, each.term), each.at)
        at = known if (each.cluster, each.uid) in late else each.at
        if each.at - at <= CALL_GRACE_SECONDS:
            out.append((at, each))
    return sorted(out, key=lambda found: found[0])


def fullest(
    calls: Sequence[Call], scope: str, seconds: float, late: Collection[tuple[str, str]], rows: Sequence[Row]
) -> list[Call]:
    """The evictions of the fullest window of a scope: `global`, `cluster` or `node`; in their order.

    Calls of `late` (cluster, uid) were on their way while their replica was interrupted.
    """
    scopes: dict[str, list[tuple[float, Call]]] = defaultdict(list)
    for at, each in limited(calls, late, rows):
        scopes[{"global": "", "cluster": each.cluster, "node": f"{each.cluster}/{each.node}"}[scope]].append((at, each))
    most: list[Call] = []
    for found in scopes.values():
        start = 0
        for end, (at, _) in enumerate(found):
            while found[start][0] < at - seconds + SHORTER:
                start += 1
            if end - start >= len(most):
                most = [call for _, call in found[start : end + 1]]
    return most


def out_of_term(calls: Sequence[Call]) -> list[Call]:
    """Evictions of a term after the first one of a later term, in the order of the calls of each cluster."""
    newest: dict[str, int] = {}
    out = []
    for each in calls:
        if each.term < newest.get(each.cluster, 0):
            out.append(each)
        newest[each.cluster] = max(newest.get(each.cluster, 0), each.term)
    return out


def most_out_at_once(changes: Iterable[tuple[float, str, int]]) -> int:
    """Of any service, over all clusters: the most pods that left and have no Ready replacement yet.

    `changes` are (time, service, 1 or -1).
    """
    out = Counter[str]()
    most = 0
    for _, service, change in sorted(changes, key=lambda each: (each[0], each[2])):
        out[service] += change
        most = max(most, out[service])
    return most
