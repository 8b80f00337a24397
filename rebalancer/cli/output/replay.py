"""A replay as tables, and the JSON Schema of its document, which has the fields of `replay.summary.ReplaySummary`."""

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.json import SCHEMA_VERSION, encode
from rebalancer.cli.output.json_schema import schema_of
from rebalancer.cli.output.tables import UNKNOWN, plain_table, print_notes, print_paragraph
from rebalancer.cli.output.times import local, moment
from rebalancer.model.notation.figures import counted, percent
from rebalancer.model.notation.heat import hours
from rebalancer.replay.comparison.lifted import LIFTED
from rebalancer.replay.comparison.lines import BlockedLine, PoolLine, ReplaySummary, RuleLine, RunLine, ServiceLine
from rebalancer.replay.comparison.messages import (
    bound_sentence,
    capacity_sentence,
    error_sentence,
    gap_sentence,
    goal_sentence,
    sentences,
)

SCHEMA_ID: Final = f"https://rebalancer.dev/schemas/replay/v{SCHEMA_VERSION}.json"
NONE: Final = "(none)"
MOST_ROWS: Final = 10
"""Services, and reasons, of one run without -o wide."""
MOST_DETAILED: Final = 2
"""With more policies only the first one's services and reasons are shown."""
SHORT_LABEL: Final = 20
"""Longest label of a run with which a row with all columns fits into 80 columns."""
NUMBERS: Final = frozenset(
    {"HOT HOURS", "HOT TIME", "EVICTED", "IN FLIGHT", "SERVICES", "STOPPED", "NODES", "HIGH", "MOST"}
)


def replay_document(summary: ReplaySummary) -> dict[str, Any]:
    """The document of JSON and YAML, without its schemaVersion. Its schema is docs/reference/replay.schema.json."""
    return dict(encode(summary))


def replay_schema() -> dict[str, Any]:
    """The JSON Schema of the document of `rebalancer replay -o json`."""
    return schema_of(ReplaySummary, version=SCHEMA_VERSION, schema_id=SCHEMA_ID)


def when(at: float) -> str:
    """`Tue 2026-09-22 10:00 CEST`"""
    return f"{local(at):%a} {local(at):%Y-%m-%d %H:%M %Z}"


def print_replay(console: Console, summary: ReplaySummary, *, wide: bool = False) -> None:
    """All tables of a replay, its sentences first. `wide`: every row."""
    replayed = summary.replayed
    between = f"{when(replayed.since)} to {when(replayed.until)}"
    print_paragraph(console, f"Replay of cluster {replayed.cluster}:", between)
    size = f"{counted(replayed.nodes, 'node')}, {counted(replayed.pods, 'pod')}, from {replayed.source}."
    print_paragraph(console, "", size)
    print_notes(console, summary.notes)
    policies = summary.of_policies
    for line in policies[:MOST_DETAILED]:
        console.print()
        first, *others = sentences(summary, line, when)
        print_paragraph(console, f"With {line.label}:", first[0].lower() + first[1:])
        for each in others:
            print_paragraph(console, "", each)
    _print_runs(console, [line for line in summary.runs if not line.label.endswith(LIFTED)])
    _print_rules(console, summary.rules)
    _print_goal(console, summary)
    _print_pools(console, summary)
    detailed = policies if wide or len(policies) <= MOST_DETAILED else policies[:1]
    for line in detailed:
        of = summary.of(line.label)
        _print_services(console, line, of.services if wide else of.services[:MOST_ROWS], len(of.services))
        _print_blocked(console, line, of.blocked if wide else of.blocked[:MOST_ROWS])
    if len(detailed) < len(policies):
        console.print(f"\nServices and reasons of the other {len(policies) - 1} runs: -o wide, json or html")
    console.print()
    print_paragraph(console, "Replay error:", error_sentence(summary))
    print_paragraph(console, "Bound:", bound_sentence(summary))
    for pool in summary.capacity:
        print_paragraph(console, "Capacity:", capacity_sentence(pool, when))
    for gap in summary.gaps:
        print_paragraph(console, "Gap:", gap_sentence(gap))


def _print_runs(console: Console, runs: Iterable[RunLine]) -> None:
    runs = list(runs)
    narrow = max(len(line.label) for line in runs) > SHORT_LABEL
    stopped = any(line.stopped_cycles for line in runs)
    table = plain_table(
        "Runs; HOT HOURS: node-hours over high, HOT TIME: share of the nodes' time",
        *("RUN", "HOT HOURS", "HOT TIME", "EVICTED", "IN FLIGHT", "SERVICES", "STOPPED"),
        right=NUMBERS,
        wide=("SERVICES", "STOPPED") if narrow else (),
    )
    for line in runs:
        table.add_row(
            line.label,
            hours(line.hot_node_hours),
            percent(line.hot_share),
            str(line.evictions),
            str(line.most_in_flight),
            str(line.services),
            f"{line.stopped_cycles} of {line.cycles}" if stopped else "",
        )
    console.print()
    console.print(table)


def _print_rules(console: Console, rules: Iterable[RuleLine]) -> None:
    table = plain_table(
        "What each rule costs; with it alone lifted:",
        "RULE",
        "HOT HOURS LESS",
        "EVICTED MORE",
        right=("HOT HOURS LESS", "EVICTED MORE"),
    )
    for line in rules:
        # -0.04 hours are none
        less = hours(round(line.hot_node_hours, 1) + 0.0)
        table.add_row(line.rule, less, f"{line.evictions:g}")
    if table.row_count:
        console.print()
        console.print(table)


def _print_goal(console: Console, summary: ReplaySummary) -> None:
    if summary.goal is None:
        return
    console.print()
    print_paragraph(console, "Goal:", goal_sentence(summary))
    if summary.goal.part:
        console.print("In the policy file:")
        console.print(Text(summary.goal.part.rstrip()), soft_wrap=True)


def _print_pools(console: Console, summary: ReplaySummary) -> None:
    """Nothing for a single pool, whose figures are those of the runs."""
    if len({each.pool for each in summary.pools}) < 2:
        return
    table = plain_table(
        "By pool", "POOL", "RUN", "NODES", "HIGH", "HOT HOURS", "HOT TIME", "EVICTED", right=NUMBERS, wide=("NODES",)
    )
    places = {line.label: number for number, line in enumerate(summary.runs)}

    def order(each: PoolLine) -> tuple[bool, str, int]:
        return (not each.pool, each.pool, places[each.run])

    for each in sorted(summary.pools, key=order):
        table.add_row(
            each.pool or NONE,
            each.run,
            str(each.nodes),
            percent(each.high),
            hours(each.hot_node_hours),
            percent(each.hot_share),
            str(each.evictions),
        )
    console.print()
    console.print(table)


def _print_services(console: Console, run: RunLine, services: Iterable[ServiceLine], of: int) -> None:
    services = list(services)
    if not services:
        return
    more = f" ({len(services)} of {of}, all with -o wide)" if len(services) < of else ""
    table = plain_table(f"Services that {run.label} moves{more}", "SERVICE", "EVICTED", "NODES", right=NUMBERS)
    for each in services:
        table.add_row(each.service, str(each.evictions), str(each.nodes))
    console.print()
    console.print(table)


def _print_blocked(console: Console, run: RunLine, blocked: Iterable[BlockedLine]) -> None:
    blocked = list(blocked)
    if not blocked:
        return
    table = plain_table(
        f"What keeps nodes hot with {run.label}; AT: the hour with most such nodes",
        *("REASON CODE", "HOT HOURS", "NODES", "AT", "MOST", "DETAIL"),
        right=NUMBERS,
        legend="REASON CODE",
    )
    for each in blocked:
        table.add_row(
            each.code,
            hours(each.hot_node_hours),
            str(each.nodes),
            moment(each.worst_at),
            str(each.worst_nodes),
            each.example or each.meaning or UNKNOWN,
        )
    console.print()
    console.print(table)
