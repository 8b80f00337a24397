"""`rebalancer plan`: what a run would do now. Reads the ledger, writes nothing, evicts nothing."""

from dataclasses import replace
from typing import Annotated

import typer

from rebalancer.bootstrap.contexts import planning_context
from rebalancer.cli.common import (
    CONNECT_EXIT,
    NOT_EMPTY_EXIT,
    UNSAFE_EXIT,
    AllNodesOption,
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    NamespaceOption,
    Output,
    OutputOption,
    PolicyOption,
    print_json,
    read_policy,
    settings_for,
    stdout_console,
)
from rebalancer.cli.output.document import cycle_document
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.tables import print_cycle
from rebalancer.cycle.run import run_cycle
from rebalancer.model.eviction import Outcome
from rebalancer.model.plan import CycleReport
from rebalancer.model.reason import Reason


def plan(
    policy: PolicyOption,
    output: OutputOption = Output.TABLE,
    namespace: NamespaceOption = None,
    all_nodes: AllNodesOption = False,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 when the plan is not empty.")
    ] = False,
    server_dry_run: Annotated[
        bool,
        typer.Option(
            "--server-dry-run", help="Ask the API server about each eviction (each pod alone, with dryRun=All)."
        ),
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Show what a run would do now, with the reason for everything; change nothing."""
    loaded = read_policy(policy)
    settings = settings_for(database=database, kubeconfig=kubeconfig, context=context)
    with TerminalProgress() as progress, planning_context(loaded, settings, progress=progress) as cycle_context:
        report = run_cycle(cycle_context, loaded, dry_run=True, server_dry_run=server_dry_run).report
    show(report, output=output, namespace=namespace, all_nodes=all_nodes)
    if (code := exit_code(report)) != 0:
        raise typer.Exit(code)
    if detailed_exitcode and any(each.outcome is Outcome.PLANNED for each in report.evictions):
        raise typer.Exit(NOT_EMPTY_EXIT)


def exit_code(report: CycleReport) -> int:
    """0, or why the cycle could not be carried out: 5 where we lack rights, else 3."""
    if report.interrupted is not None and report.interrupted.code is Reason.SERVER_FORBIDDEN:
        return CONNECT_EXIT
    return UNSAFE_EXIT if report.stopped is not None or report.interrupted is not None else 0


def show(report: CycleReport, *, output: Output, namespace: str | None, all_nodes: bool) -> None:
    """Print a cycle; `namespace` filters the pods that are shown, never the plan."""
    shown = report
    if namespace is not None:
        shown = replace(
            report,
            evictions=[each for each in report.evictions if each.namespace == namespace],
            refusals=[each for each in report.refusals if each.namespace == namespace],
        )
    if output is Output.JSON:
        print_json(cycle_document(shown))
    else:
        print_cycle(stdout_console(), shown, all_nodes=all_nodes)
