"""A cycle as tables of the terminal."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.tables import UNKNOWN, plain_table, print_notes, print_paragraph, refusal_text
from rebalancer.model.decisions.eviction import COLUMNS, DID_NOT_HAPPEN, Eviction, Outcome
from rebalancer.model.decisions.next_hour import NEXT_HOUR, heat_of_next_hour, others_sentence
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal, NodeLine
from rebalancer.model.notation.figures import age, counted, millicores, percent
from rebalancer.model.notation.heat import heat_sentence
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason, particulars
from rebalancer.policy.schema.strategies.utilization import LowNodeUtilization

MOST_FINDINGS = 30
"""Rows of a table of findings without --all-nodes."""
MOST_STAYING = 3
"""Nodes of the summary that stay hot."""
ROUNDING, SAME_SHARE = 0.0005, 0.02
"""Shares of a node that differ by less are the same figure to a reader, and of the same measurement."""
MOST_NODES = 10
"""Nodes named in one line; a refusal on more nodes has one row for all of them."""
OUTCOME_STYLE = {
    Outcome.PLANNED: "cyan",
    Outcome.EVICTED: "green",
    Outcome.REFUSED: "yellow",
    Outcome.FAILED: "red",
    Outcome.UNKNOWN: "magenta",
}


def print_cycle(
    console: Console,
    report: CycleReport,
    *,
    all_nodes: bool = False,
    namespace: str | None = None,
    selected: bool = False,
) -> None:
    """All tables of one cycle; of its pods only those of `namespace`. `selected`: the report is of some nodes."""
    whole = report
    if namespace is not None:
        report = of_namespace(report, namespace)
    if report.stopped is not None:
        print_paragraph(console, Text("Nothing was planned:", style="bold red"), refusal_text(report.stopped))
    _print_summary(console, whole)
    _print_findings(console, report, each=all_nodes, selected=selected)
    if report.findings and not report.evictions:
        print_paragraph(console, "", _without_evictions(whole, report, namespace))
    tainted = [f"{node} ({reason})" for node, reason in report.soft_tainted.items()]
    _print_nodes_in_a_line(console, "Soft taints:", tainted, each=all_nodes)
    _print_cordons(console, report, each=all_nodes)
    _print_evictions(console, report)
    _print_proposals(console, report)
    _print_waiting(console, report)
    _print_refusals(console, report, each=all_nodes)
    print_nodes(console, report.nodes, all_nodes=all_nodes)
    _print_remaining(console, report, each=all_nodes)
    print_notes(console, report.notes)


def _print_findings(console: Console, report: CycleReport, *, each: bool, selected: bool) -> None:
    if not report.findings:
        if report.stopped is None:
            over = sum(line.hot for line in report.nodes)
            some = f"{counted(over, 'node')} above the high threshold, none to be relieved now{_reasons(report)}."
            none = f"No hot nodes and no other findings{' among the selected nodes' if selected else ''}."
            print_paragraph(console, "", some if over else none)
        return
    hot, others = [], []
    for finding, node in report.findings:
        # LowNodeUtilization by requests also cools nodes, which are not hot
        if finding.goal is Goal.COOL and finding.strategy == LowNodeUtilization.__name__:
            hot.append((node, finding.pool, finding.reason))
        else:
            others.append((node, finding.strategy, finding.reason))
    alike = [
        (node, strategy, f"{reason} ({count} findings)" if count > 1 else reason)
        for (node, strategy, reason), count in Counter(others).items()
    ]
    for title, column, rows in (("Hot nodes", "POOL", hot), ("Findings", "STRATEGY", alike)):
        shown = rows if each else rows[:MOST_FINDINGS]
        more = f" ({len(shown)} of {len(rows)}, all with --all-nodes)" if len(shown) < len(rows) else ""
        table = plain_table(title + more, "NODE", column, "REASON")
        for row in shown:
            table.add_row(*row)
        if shown:
            console.print(table)


def _print_cordons(console: Console, report: CycleReport, *, each: bool) -> None:
    before, now = report.cordons_before, report.cordons
    cordoned = [f"{node} ({reason}{'' if before.get(node) == reason else ', new'})" for node, reason in now.items()]
    uncordoned = [f"{node} ({reason})" for node, reason in before.items() if node not in now]
    _print_nodes_in_a_line(console, "Cordoned:", cordoned, each=each)
    _print_nodes_in_a_line(console, "No longer cordoned:", uncordoned, each=each)


def _print_nodes_in_a_line(console: Console, title: str, nodes: list[str], *, each: bool) -> None:
    if not nodes:
        return
    shown = nodes if each else nodes[:MOST_NODES]
    more = f" and {len(nodes) - len(shown)} more (--all-nodes)" if len(shown) < len(nodes) else ""
    print_paragraph(console, title, f"{', '.join(shown)}{more}")


def _print_summary(console: Console, report: CycleReport) -> None:
    """`6 evictions cool 2 of 3 hot nodes; gen-5 stays at 84.0%: ...`"""
    findings = {node: finding for finding, node in report.findings if finding.goal is Goal.COOL}
    targets = {node: finding.target for node, finding in findings.items()}
    others, price = others_sentence(report), "" if report.score is None else f"{report.score.price:.3g} ordinary ones"
    if not targets:
        if others:
            print_paragraph(console, "", f"{others}{f', at a price of {price}' if price else ''}.")
        return
    happened = [each for each in report.evictions if each.answered.outcome not in DID_NOT_HAPPEN]
    moves = [each for each in happened if each.in_plan.cools]
    in_dry_run = Counter(each.node for each in moves if each.uid in report.not_made)
    made = len(moves) - in_dry_run.total()
    after = {line.name: line.cpu_after for line in report.nodes if line.cpu_after is not None}
    planned = {
        line.name: f"reaches {percent(line.cpu_planned)}, not its target of {percent(targets[line.name])}"
        for line in report.nodes
        if line.name in targets
        and line.cpu_planned is not None
        and line.cpu_planned > targets[line.name] + ROUNDING
        and _by_real_cpu(findings[line.name], line)
    }
    planned |= {each.name: f"stays at {percent(each.share_planned)}: {each.message}" for each in report.remaining}
    planned |= {node: f"stays hot: {counted(count, 'eviction')} in dry run" for node, count in in_dry_run.items()}
    stay = {
        node: f"is at {percent(after[node])}" if node in after else planned[node]
        for node, target in targets.items()
        if (after[node] > target if node in after else node in planned)
    }
    cooled = f"{counted(made, 'eviction')} cool{'s' if made == 1 else ''} {len(targets) - len(stay)} of "
    begins = f"{cooled}{counted(len(targets), 'hot node')}{'' if stay else '.'}"
    shown = [f"{node} {why}" for node, why in list(stay.items())[:MOST_STAYING]]
    more = [f"{len(stay) - len(shown)} more stay hot"] if len(stay) > len(shown) else []
    print_paragraph(console, begins + (";" if stay else ""), "; ".join([*shown, *more]))
    if others:
        print_paragraph(console, "", f"{others}.")
    heat = heat_sentence(heat_of_next_hour(report), of=NEXT_HOUR)
    if price:
        heat += f". All evictions have a price of {price}" if others else f", at a price of {price}"
    print_paragraph(console, "", f"{heat}.")


def _by_real_cpu(finding: Finding, line: NodeLine) -> bool:
    """Whether the finding's target is one of measured CPU, and not of requests or of a peak."""
    before = line.cpu_before
    return finding.resource == CPU and before is not None and abs(finding.cpu_share - before) < SAME_SHARE


def of_namespace(report: CycleReport, namespace: str) -> CycleReport:
    """The report with the pods of one namespace; nodes and findings are all there."""
    return replace(
        report,
        evictions=[each for each in report.evictions if each.namespace == namespace],
        refusals=[each for each in report.refusals if each.namespace == namespace],
    )


def of_nodes(report: CycleReport, names: set[str]) -> CycleReport:
    """The report with some of its nodes, and the pods on them."""
    elsewhere = len({node for _, node in report.findings} - names)
    note = f"findings on {counted(elsewhere, 'node')} that -l does not select are not shown"
    return replace(
        report,
        soft_tainted={node: reason for node, reason in report.soft_tainted.items() if node in names},
        cordons={node: reason for node, reason in report.cordons.items() if node in names},
        cordons_before={node: reason for node, reason in report.cordons_before.items() if node in names},
        notes=[*report.notes, *([note] if elsewhere else [])],
        nodes=[each for each in report.nodes if each.name in names],
        findings=[(finding, node) for finding, node in report.findings if node in names],
        evictions=[each for each in report.evictions if each.node in names],
        remaining=[each for each in report.remaining if each.name in names],
        refusals=[each for each in report.refusals if each.node in names],
    )


def _without_evictions(whole: CycleReport, shown: CycleReport, namespace: str | None) -> str:
    if not whole.evictions:
        return f"No useful eviction is allowed{_reasons(shown)}."
    return f"No eviction in namespace {namespace}, {len(whole.evictions)} in others{_reasons(shown)}."


def _reasons(shown: CycleReport) -> str:
    """Refers to the tables of refusals and of nodes that stay hot, if one follows."""
    return "; the reasons are below" if shown.refusals or shown.remaining else ""


def _print_evictions(console: Console, report: CycleReport) -> None:
    if not report.evictions:
        return
    title = "Planned evictions (dry run)" if report.dry_run else "Evictions"
    others = (each.title.upper() for each in COLUMNS)
    # the reason is that of the node, which the findings have
    columns = ("POD", "SERVICE", "FROM", "TO", "CPU", "OUTCOME", "DETAIL", *others)
    table = plain_table(title, *columns, wide=("SERVICE", "REASON"))
    for eviction in report.evictions:
        outcome = "waits" if _still_waits(eviction) else str(eviction.answered.outcome)
        table.add_row(
            eviction.full_name,
            str(eviction.service),
            eviction.node,
            _target(eviction),
            millicores(eviction.cpu_millicores),
            Text(outcome, style=OUTCOME_STYLE[eviction.answered.outcome]),
            eviction.answered.detail,
            *(each.text(eviction) for each in COLUMNS),
        )
    console.print(table)


def _print_proposals(console: Console, report: CycleReport) -> None:
    """`Proposals: 7bk2xw (3 evictions from pool a by LowNodeUtilization)`"""
    proposed = [f"{each.id} ({each.summary})" for each in report.proposals]
    if proposed:
        print_paragraph(console, "Proposals:", ", ".join(proposed) + "; to approve one: rebalancer approve ID")


def _print_waiting(console: Console, report: CycleReport) -> None:
    moves = [each for each in report.evictions if _still_waits(each)]
    if not moves:
        return
    table = plain_table("Waiting", "POD", "EXPECTED IN", "WAITS FOR")
    for move in moves:
        table.add_row(move.full_name, _expected_in(move, report), move.waits_for)
    console.print(table)


def _still_waits(move: Eviction) -> bool:
    """Whether a planned move waits; one that was made waits no longer."""
    return bool(move.waits_for) and move.answered.outcome is Outcome.PLANNED


def _expected_in(move: Eviction, report: CycleReport) -> str:
    """Time from the end of the cycle until the move is expected to be possible."""
    if move.reserved.not_before is None:
        return UNKNOWN
    ended = report.started_at if report.finished_at is None else report.finished_at
    return age(move.reserved.not_before - ended)


def _print_remaining(console: Console, report: CycleReport, *, each: bool) -> None:
    if not report.remaining:
        return
    shown = report.remaining if each else report.remaining[:MOST_FINDINGS]
    more = (
        f" ({len(shown)} of {len(report.remaining)}, all with --all-nodes)"
        if len(shown) < len(report.remaining)
        else ""
    )
    table = plain_table(f"Nodes that stay hot{more}", "NODE", "POOL", "PLANNED", "CODE", "REASON", "WOULD HELP MOST")
    for node in shown:
        helps = f"{node.setting}: {node.value}" if node.value else node.setting
        pool, planned = node.pool or UNKNOWN, percent(node.share_planned)
        planned += "" if node.resource == CPU else f" {node.resource}"
        table.add_row(node.name, pool, planned, str(node.code), node.message, helps or UNKNOWN)
    console.print(table)


def _target(eviction: Eviction) -> str:
    if not eviction.target_nodes:
        return "none (finished)"
    return target_text(eviction.target_nodes[0])


def target_text(target: tuple[str, float]) -> str:
    """A target node, with its probability unless it is certain."""
    node, probability = target
    return node if probability > 0.995 else f"{node} ({probability:.0%})"


def _print_refusals(console: Console, report: CycleReport, *, each: bool) -> None:
    """A row for each node and reason; one row for a reason that holds on many nodes."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for refusal in report.refusals:
        pod = f"{refusal.namespace}/{refusal.name}" if refusal.name else ""
        groups.setdefault((refusal.node, str(refusal.code)), []).append((pod, refusal.message))
    if not groups:
        return
    nodes_of = Counter(code for _, code in groups)
    by_cause = sorted(nodes_of.items(), key=lambda item: (item[0] == Reason.GOAL_REACHED, item[0]))
    many = {code: count for code, count in by_cause if count > MOST_NODES and not each}
    title = "Not evicted (each node with --all-nodes)" if many else "Not evicted"
    table = plain_table(title, "NODE", "CODE", "COUNT", "EXAMPLE", "REASON", legend="CODE")

    def row(where: str, code: str, members: list[tuple[str, str]]) -> None:
        table.add_row(where, code, str(len(members)), members[0][0], _reason_of_all(code, members))

    # what is not needed is no obstacle, so it comes last
    ranked = sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] == Reason.GOAL_REACHED, item[0][1]))
    for (node, code), members in ranked:
        if code not in many:
            row(node, code, [(pod or "(the node)", message) for pod, message in members])
    for code, count in many.items():
        of_all = [(pod or node, message) for (node, its), members in ranked if its == code for pod, message in members]
        row(f"{count} nodes", code, of_all)
    console.print(table)


def _reason_of_all(code: str, members: Sequence[tuple[str, str]]) -> str:
    """A message that all (name, message) share; else the code's sentence, and the particulars of the first."""
    name, message = members[0]
    if all(each == message for _, each in members):
        return message
    sentence = Reason(code).sentence
    return f"{sentence}; {name}: {particulars(message, sentence)}"


def print_nodes(console: Console, lines: Iterable[NodeLine], *, all_nodes: bool) -> None:
    """CPU shares of all nodes, or of those that change or are hot."""
    shown = [line for line in lines if all_nodes or line.hot or line.changed]
    if not shown:
        return
    measured = any(line.cpu_after is not None for line in shown)
    table = plain_table("Node CPU", "NODE", "POOL", "BEFORE", "", "PLANNED", "", "MEASURED")
    for line in shown:
        name = Text(line.name, style="bold red" if line.hot else "")
        after = ("->", percent(line.cpu_after)) if measured else ("", "")
        cells = (percent(line.cpu_before), "->", _planned(line), *after)
        table.add_row(name, line.pool or UNKNOWN, *cells)
    console.print(table)
    for resource in dict.fromkeys(each.resource for line in shown for each in line.resources):
        table = plain_table(f"Node {resource}", "NODE", "POOL", "BEFORE", "", "PLANNED")
        for line in shown:
            of = next(each for each in line.resources if each.resource == resource)
            name = Text(line.name, style="bold red" if line.hot else "")
            table.add_row(name, line.pool or UNKNOWN, percent(of.before), "->", percent(of.planned))
        console.print(table)


def _planned(line: NodeLine) -> str:
    """The mean, with the 99th percentile where it differs."""
    mean, p99 = percent(line.cpu_planned), percent(line.cpu_planned_p99)
    return mean if p99 in (mean, UNKNOWN) else f"{mean} (p99 {p99})"
