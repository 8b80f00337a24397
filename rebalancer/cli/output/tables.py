"""A cycle as tables for people: what was found, each eviction with its reason and landing, before -> planned ->
measured."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rebalancer.model.eviction import Eviction, Outcome
from rebalancer.model.plan import CycleReport, Goal, NodeLine
from rebalancer.strategies.low_node_utilization import NAME as COOLING

EXAMPLES = 2
MOST_FINDINGS = 30
"""Lines of a table of findings."""
MOST_NODES = 10
"""So many nodes are named in a line; and what keeps pods on more of them gets one line for all."""
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
    print_findings(console, report, each=all_nodes)
    print_soft_taints(console, report, each=all_nodes)
    print_cordons(console, report, each=all_nodes)
    print_evictions(console, report)
    print_refusals(console, report, each=all_nodes)
    print_nodes(console, report.nodes, all_nodes=all_nodes)
    for note in report.notes:
        console.print(Text.assemble(("Note:", "yellow"), f" {note}"))


def print_findings(console: Console, report: CycleReport, *, each: bool = False) -> None:
    """Hot nodes, and what else was found: each of them, or the first of many."""
    if not report.findings:
        if report.stopped is None:
            over = sum(line.hot for line in report.nodes)
            some = f"{over} node(s) over high, none to be relieved now: see below."
            console.print(some if over else "No node is hot, and nothing else was found.")
        return
    hot, others = [], []
    for finding, node in report.findings:
        # a node full of idle requests is brought down as a hot one is, but isn't hot
        if finding.goal is Goal.COOL and finding.strategy == COOLING:
            hot.append((node, finding.pool, finding.reason))
        else:
            others.append((node, finding.strategy, finding.reason))
    # one of each kind of pod, say, reads the same
    alike = [
        (node, strategy, f"{reason} ({count} findings)" if count > 1 else reason)
        for (node, strategy, reason), count in Counter(others).items()
    ]
    for title, whose, rows in (("Hot nodes", "POOL", hot), ("Findings", "STRATEGY", alike)):
        shown = rows if each else rows[:MOST_FINDINGS]
        more = f" ({len(shown)} of {len(rows)}, the others with --all-nodes)" if len(shown) < len(rows) else ""
        table = plain_table(title + more, "NODE", whose, "REASON")
        for row in shown:
            table.add_row(*row)
        if shown:
            console.print(table)


def print_soft_taints(console: Console, report: CycleReport, *, each: bool = False) -> None:
    """Nodes that carry our soft taint while the plan runs."""
    _print_nodes_in_a_line(
        console, "Steered away from:", [f"{node} ({reason})" for node, reason in report.steered.items()], each
    )


def print_cordons(console: Console, report: CycleReport, *, each: bool = False) -> None:
    """Nodes that are cordoned by us while the plan runs, and those that were until now."""
    before, now = report.cordons_before, report.cordons
    said = [f"{node} ({reason}{'' if before.get(node) == reason else ', new'})" for node, reason in now.items()]
    let_go = [f"{node} ({reason})" for node, reason in before.items() if node not in now]
    _print_nodes_in_a_line(console, "Cordoned:", said, each)
    _print_nodes_in_a_line(console, "No longer cordoned:", let_go, each)


def _print_nodes_in_a_line(console: Console, what: str, nodes: list[str], each: bool) -> None:
    if not nodes:
        return
    shown = nodes if each else nodes[:MOST_NODES]
    more = f" and {len(nodes) - len(shown)} more (--all-nodes)" if len(shown) < len(nodes) else ""
    console.print(Text.assemble((what, "bold"), f" {', '.join(shown)}{more}"))


def print_evictions(console: Console, report: CycleReport) -> None:
    """Each eviction: who, from where to where, how much, why."""
    if not report.evictions:
        if report.findings:
            console.print("No eviction would help and is allowed; see the refusals.")
        return
    title = "Planned evictions (dry run)" if report.dry_run else "Evictions"
    table = plain_table(title, "POD", "SERVICE", "FROM -> LANDING", "CPU", "OUTCOME", "REASON")
    for eviction in report.evictions:
        outcome = Text(str(eviction.outcome), style=OUTCOME_STYLE[eviction.outcome])
        table.add_row(
            f"{eviction.namespace}/{eviction.pod}",
            str(eviction.service),
            f"{eviction.node} -> {_landing(eviction)}",
            "?" if math.isnan(eviction.cpu_millicores) else f"{eviction.cpu_millicores:.0f}m",
            outcome,
            f"{eviction.reason}; {eviction.detail}" if eviction.detail else eviction.reason,
        )
    console.print(table)


def _landing(eviction: Eviction) -> str:
    if not eviction.target_nodes:
        return "none: it has finished"
    node, share = eviction.target_nodes[0]
    return node if share > 0.995 else f"{node} ({share:.0%})"


def print_refusals(console: Console, report: CycleReport, *, each: bool = False) -> None:
    """Why everything else stayed: a line for each node and reason, or for each reason that holds on many nodes."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for refusal in report.refusals:
        pod = f"{refusal.namespace}/{refusal.name}" if refusal.name else ""
        groups.setdefault((refusal.node, str(refusal.code)), []).append((pod, refusal.message))
    if not groups:
        return
    spread = Counter(code for _, code in groups)
    many = {code: count for code, count in sorted(spread.items()) if count > MOST_NODES and not each}
    title = "Left alone (each node with --all-nodes)" if many else "Left alone"
    table = plain_table(title, "NODE", "CODE", "COUNT", "FOR EXAMPLE", "BECAUSE")

    def line(where: str, code: str, members: list[tuple[str, str]]) -> None:
        shown = ", ".join(name for name, _ in members[:EXAMPLES]) + (", ..." if len(members) > EXAMPLES else "")
        table.add_row(where, code, str(len(members)), shown, members[0][1])

    ranked = sorted(groups.items())
    for (node, code), members in ranked:
        if code not in many:
            line(node, code, [(pod or "(the node)", message) for pod, message in members])
    for code, count in many.items():
        # who has no pod in it is a node
        of_all = [(pod or node, message) for (node, its), members in ranked if its == code for pod, message in members]
        line(f"{count} nodes", code, of_all)
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
