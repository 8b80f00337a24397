"""`rebalancer status`: pauses, backoffs, evictions in flight and objects that can't be read, as tables and document."""

from collections.abc import Sequence

from rebalancer.cli.output.formats import Shown
from rebalancer.cli.output.json import pick
from rebalancer.cli.output.tables import Screen, Table, plain_table, print_notes
from rebalancer.cli.output.times import ago, ahead
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import EvictionBackoff, Pause

MOST_OBSTACLES = 50
"""Rows of the table."""


def shown_state(
    pauses: Sequence[Pause],
    backoffs: Sequence[EvictionBackoff],
    in_flight: Sequence[Eviction],
    obstacles: Sequence[Obstacle],
    notes: Sequence[str],
) -> Shown:
    """The state of a ledger."""
    document = {
        "pauses": [
            {"scope": each.scope.kind, "key": each.scope.key, **pick(each, "reason", "created_by", "until")}
            for each in pauses
        ],
        "backoffs": [
            {"service": each.service_identity, **pick(each, "node", "until", "count", "reason")} for each in backoffs
        ],
        "inFlight": [
            {
                "id": each.reserved.record,
                **pick(each, "namespace", "pod", "node"),
                "at": each.reserved.planned_at,
                "late": each.replaced.late,
            }
            for each in in_flight
        ],
        "obstacles": [pick(each, "kind", "namespace", "name", "cause") for each in obstacles],
        "notes": notes,
    }

    def draw(screen: Screen) -> None:
        if not (pauses or backoffs or in_flight):
            screen.print("No pauses, no backoffs, no evictions in flight.")
        for table in (_pauses(pauses), _backoffs(backoffs), _in_flight(in_flight), _obstacles(obstacles)):
            if table.row_count:
                screen.print(table)
        print_notes(screen, notes)

    return Shown(document=document, draw=draw, rows="inFlight")


def _pauses(pauses: Sequence[Pause]) -> Table:
    table = plain_table("Pauses", "SCOPE", "ENDS", "CREATED BY", "REASON")
    for each in pauses:
        ends = "when resumed" if each.until is None else ahead(each.until)
        table.add_row(str(each.scope), ends, each.created_by, each.reason)
    return table


def _backoffs(backoffs: Sequence[EvictionBackoff]) -> Table:
    table = plain_table("Backoffs", "SERVICE", "NODE", "ENDS", "TIMES", "REASON")
    for each in backoffs:
        table.add_row(each.service_identity, each.node or "every node", ahead(each.until), str(each.count), each.reason)
    return table


def _obstacles(obstacles: Sequence[Obstacle]) -> Table:
    more = f" ({MOST_OBSTACLES} of {len(obstacles)}, all with -o json)" if len(obstacles) > MOST_OBSTACLES else ""
    table = plain_table(f"Objects that can't be read{more}", "OBJECT", "CAUSE")
    for each in obstacles[:MOST_OBSTACLES]:
        table.add_row(each.object, each.cause)
    return table


def _in_flight(in_flight: Sequence[Eviction]) -> Table:
    table = plain_table("In flight", "ID", "POD", "FROM", "AGE", "DEADLINE", "STATE")
    for each in in_flight:
        state = "late" if each.replaced.late else "in the background" if each.answered.in_background else "starting"
        pod = f"{each.namespace}/{each.pod}"
        table.add_row(
            str(each.reserved.record),
            pod,
            each.node,
            ago(each.reserved.planned_at),
            ahead(each.reserved.deadline_at),
            state,
        )
    return table
