"""`rebalancer plan`: the evictions that a run would make now. Reads the ledger; writes and evicts nothing."""

from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import CONNECT_EXIT, NOT_EMPTY_EXIT, UNSAFE_EXIT, unknown
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
) -> None:
    """Show the evictions that a run would make now, and why. Changes nothing."""
    if namespace is not None and all_namespaces:
        raise ConfigError("-n and -A: expected one of them")
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
    if detailed_exitcode and any(each.answered.outcome is Outcome.PLANNED for each in report.evictions):
        raise typer.Exit(NOT_EMPTY_EXIT)


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
