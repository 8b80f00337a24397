"""`rebalancer plan`: the evictions that a run would make now. Reads the ledger; writes and evicts nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import CONNECT_EXIT, NOT_EMPTY_EXIT, UNSAFE_EXIT, say, unknown, write_file
from rebalancer.cli.invocation import (
    CLUSTER,
    TABLES,
    AllNodesOption,
    Invocation,
    NamespaceOption,
    SelectorOption,
    options,
    selected,
)
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.model.decisions.plan import CycleReport

LONGEST_VALID_SECONDS = 86_400.0
"""Of a plan file. That it was carried out is known as long as its cycle is recorded: a day at least."""


@options(*CLUSTER, *TABLES)
def plan(
    invocation: Invocation,
    namespace: NamespaceOption = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show pods of all namespaces (the default).")
    ] = False,
    selector: SelectorOption = None,
    all_nodes: AllNodesOption = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Plan for `run --once` with the same option. Without waiting no move waits, no node gets a soft taint "
            "and no node is drained.",
        ),
    ] = True,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with code 2 when the plan is not empty.")
    ] = False,
    server_dry_run: Annotated[
        bool,
        typer.Option("--server-dry-run", help="Send each eviction to the API server, one at a time, with dryRun=All."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the plan to a file for `run --plan`.")
    ] = None,
    expire_after: Annotated[
        str, typer.Option("--expire-after", help="When the file expires, at most 24h after the plan.")
    ] = "1h",
) -> None:
    """Show the evictions that a run would make now, and why. Changes nothing."""
    if namespace is not None and all_namespaces:
        raise ConfigError("-n and -A: expected one of them")
    if out is not None and (namespace is not None or selector is not None):
        raise ConfigError("--out: expected neither -n nor -l: the file has the whole plan, and is to be what is shown")
    valid_seconds = _valid_seconds(expire_after)
    with invocation.planning(taints=wait) as context:
        from rebalancer.cli.output.cycle import of_nodes
        from rebalancer.cycle.run import run_cycle
        from rebalancer.model.decisions.eviction import Outcome

        cycle = run_cycle(context, invocation.policy, dry_run=True, server_dry_run=server_dry_run)
        report, snapshot = cycle.report, cycle.observation.snapshot
        if namespace is not None and namespace not in snapshot.namespace_labels:
            raise unknown("namespace", namespace, snapshot.namespace_labels)
        shown = report if selector is None else of_nodes(report, set(selected(snapshot, selector)))
    show(invocation, shown, namespace=namespace, all_nodes=all_nodes, selected=selector is not None)
    if (code := exit_code(report)) != 0:
        raise typer.Exit(code)
    if out is not None:
        _write(invocation, report, out, valid_seconds)
    if detailed_exitcode and any(each.answered.outcome is Outcome.PLANNED for each in report.evictions):
        raise typer.Exit(NOT_EMPTY_EXIT)


def _valid_seconds(text: str) -> float:
    from rebalancer.policy.schema.types import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--expire-after: {error}, got {text!r}") from None
    if not 0 < seconds <= LONGEST_VALID_SECONDS:
        raise ConfigError(f"--expire-after: expected at most 24h, got {text!r}")
    return seconds


def _write(invocation: Invocation, report: "CycleReport", out: Path, valid_seconds: float) -> None:
    from rebalancer.bootstrap.commands.plan_files import plan_file_of
    from rebalancer.cli.output.plan_file import plan_file_text
    from rebalancer.model.notation.figures import clock_time, counted

    plan = plan_file_of(report, invocation.policy, invocation.settings, valid_seconds=valid_seconds)
    write_file(out, plan_file_text(plan), option="--out")
    moves, until = counted(len(plan.evictions), "eviction"), clock_time(plan.expires_at)
    run = f"rebalancer run -f {invocation.policy_path} --plan {out}"
    say(f"{out}: {moves}, valid until {until}; to carry them out: {run}")


def exit_code(report: "CycleReport") -> int:
    """0 for a completed cycle, 5 for missing permissions, 3 for any other cycle that stopped."""
    from rebalancer.model.reason import Reason

    if report.interrupted is not None and report.interrupted.code is Reason.SERVER_FORBIDDEN:
        return CONNECT_EXIT
    return UNSAFE_EXIT if report.stopped is not None or report.interrupted is not None else 0


def show(
    invocation: Invocation,
    report: "CycleReport",
    *,
    namespace: str | None,
    all_nodes: bool,
    selected: bool = False,
) -> None:
    """Print a cycle; `namespace` filters the printed pods, not the plan. `selected`: the report is of some nodes."""
    from rebalancer.cli.output.cycle import of_namespace, print_cycle
    from rebalancer.cli.output.cycle_document import cycle_document
    from rebalancer.cli.output.formats import Shown

    invocation.show(
        lambda: Shown(
            document=cycle_document(report if namespace is None else of_namespace(report, namespace)),
            draw=lambda screen: print_cycle(
                screen, report, all_nodes=all_nodes, namespace=namespace, selected=selected
            ),
            rows="evictions",
        )
    )
