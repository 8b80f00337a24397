"""A cycle as tables for people: what was found, each eviction with its reason and landing, before -> planned ->
measured."""

import math
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rebalancer.model.plan import CycleReport, Eviction, Goal, NodeLine, Outcome

EXAMPLES = 2
OUTCOME_STYLE = {
    Outcome.PLANNED: "cyan",
    Outcome.EVICTED: "green",
    Outcome.REFUSED: "yellow",
    Outcome.FAILED: "red",
    Outcome.UNKNOWN: "magenta",
}


def print_cycle(console: Console, report: CycleReport, *, all_nodes: bool = False) -> None:
    """Everything about one cycle."""
    if report.stopped is not None:
        what = f" {report.stopped.message} ({report.stopped.code})"
        console.print(Text.assemble(("Nothing was planned:", "bold red"), what))
    print_findings(console, report)
    print_steered(console, report)
    print_cordons(console, report)
    print_evictions(console, report)
    print_refusals(console, report)
    print_nodes(console, report.nodes, all_nodes=all_nodes)
    for note in report.notes:
        console.print(Text.assemble(("Note:", "yellow"), f" {note}"))


def print_findings(console: Console, report: CycleReport) -> None:
    """Hot nodes, and what else was found."""
    if not report.findings:
        if report.stopped is None:
            over = sum(line.hot for line in report.nodes)
            some = f"{over} node(s) over high, none to be relieved now: see below."
            console.print(some if over else "No node is hot, and nothing else was found.")
        return
    hot = plain_table("Hot nodes", "NODE", "POOL", "REASON")
    others = plain_table("Findings", "NODE", "STRATEGY", "REASON")
    for finding, node in report.findings:
        if finding.goal is Goal.COOL:
            hot.add_row(node, finding.pool, finding.reason)
        else:
            others.add_row(node, finding.strategy, finding.reason)
    for each in (hot, others):
        if each.row_count:
            console.print(each)


def print_steered(console: Console, report: CycleReport) -> None:
    """Nodes that carry our soft taint while the plan runs."""
    if report.steered:
        nodes = ", ".join(f"{node} ({reason})" for node, reason in report.steered.items())
        console.print(Text.assemble(("Steered away from:", "bold"), f" {nodes}"))


def print_cordons(console: Console, report: CycleReport) -> None:
    """Nodes that are cordoned by us while the plan runs, and those that were until now."""
    before, now = report.cordons_before, report.cordons
    said = [f"{node} ({reason}{'' if before.get(node) == reason else ', new'})" for node, reason in now.items()]
    if said:
        console.print(Text.assemble(("Cordoned:", "bold"), f" {', '.join(said)}"))
    if let_go := [f"{node} ({reason})" for node, reason in before.items() if node not in now]:
        console.print(Text.assemble(("No longer cordoned:", "bold"), f" {', '.join(let_go)}"))


def print_evictions(console: Console, report: CycleReport) -> None:
    """Each eviction: who, from where to where, how much, why."""
    if not report.evictions:
        if report.findings:
            console.print("No eviction would help and is allowed; see the refusals.")
        return
    title = "Planned evictions (dry run)" if report.dry_run else "Evictions"
    table = plain_table(title, "POD", "SERVICE", "FROM -> LANDING", "CPU", "OUTCOME", "REASON")
    for eviction in report.evictions:
        move = eviction.move
        outcome = Text(str(eviction.outcome), style=OUTCOME_STYLE[eviction.outcome])
        table.add_row(
            f"{move.namespace}/{move.name}",
            str(move.service),
            f"{move.node_name} -> {_landing(eviction)}",
            "?" if math.isnan(move.cpu_millicores) else f"{move.cpu_millicores:.0f}m",
            outcome,
            f"{move.reason}; {eviction.detail}" if eviction.detail else move.reason,
        )
    console.print(table)


def _landing(eviction: Eviction) -> str:
    if not eviction.landings:
        return "none: it has finished"
    node, share = eviction.landings[0]
    return node if share > 0.995 else f"{node} ({share:.0%})"


def print_refusals(console: Console, report: CycleReport) -> None:
    """Why everything else stayed: a line for each node and reason."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for refusal in report.refusals:
        pod = f"{refusal.namespace}/{refusal.name}" if refusal.name else "(the node)"
        groups.setdefault((refusal.node, str(refusal.code)), []).append((pod, refusal.message))
    if not groups:
        return
    table = plain_table("Left alone", "NODE", "CODE", "COUNT", "FOR EXAMPLE", "BECAUSE")
    for (node, code), members in sorted(groups.items()):
        shown = ", ".join(pod for pod, _ in members[:EXAMPLES]) + (", ..." if len(members) > EXAMPLES else "")
        table.add_row(node, code, str(len(members)), shown, members[0][1])
    console.print(table)


def print_nodes(console: Console, lines: Iterable[NodeLine], *, all_nodes: bool) -> None:
    """before -> planned -> measured, of all nodes or of those that change or are hot."""
    shown = [line for line in lines if all_nodes or line.hot or _moved(line)]
    if not shown:
        return
    table = plain_table("Node CPU", "NODE", "POOL", "BEFORE", "", "PLANNED", "", "MEASURED")
    for line in shown:
        table.add_row(
            Text(line.name, style="bold red" if line.hot else ""),
            line.pool or "-",
            _share(line.cpu_before),
            "->",
            _share(line.cpu_planned),
            "->",
            _share(line.cpu_after),
        )
    console.print(table)


def _moved(line: NodeLine) -> bool:
    return line.cpu_before is not None and line.cpu_planned is not None and line.cpu_before != line.cpu_planned


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


class _PlainTable(Table):
    """A table whose cells are never read as markup: what stands in a cluster is not ours to interpret."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def plain_table(title: str, *columns: str) -> Table:
    """A table without lines."""
    table = _PlainTable(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for column in columns:
        table.add_column(
            column, overflow="fold", justify="right" if column in ("CPU", "COUNT", "USED", "LEFT", "TIMES") else "left"
        )
    return table
