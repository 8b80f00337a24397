"""`rebalancer run --once`: one cycle for real, then its effect."""

from typing import Annotated

import typer

from rebalancer.cli.common import (
    AllNodesOption,
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    NamespaceOption,
    Output,
    OutputOption,
    PolicyOption,
    read_policy,
    settings_for,
)
from rebalancer.cli.plan import exit_code, show
from rebalancer.cli.progress import TerminalProgress
from rebalancer.daemon.assess import assess
from rebalancer.daemon.cycle import begin_report, carry_out
from rebalancer.daemon.wiring import acting_world
from rebalancer.model.errors import ConfigError


def run(
    policy: PolicyOption,
    once: Annotated[bool, typer.Option("--once", help="Run one cycle and exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Record the cycle, marked dry, and evict nothing.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait", help="Wait for the replacements and a full rate window, then measure the nodes again."
        ),
    ] = True,
    output: OutputOption = Output.TABLE,
    namespace: NamespaceOption = None,
    all_nodes: AllNodesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Run one cycle: find hot nodes, evict what cools them, record it, and measure what came of it."""
    if not once:
        raise ConfigError("run: expected --once (the daemon is not part of this version yet)")
    loaded = read_policy(policy)
    settings = settings_for(database=database, kubeconfig=kubeconfig, context=context)
    with (
        TerminalProgress() as progress,
        acting_world(loaded, settings, progress=progress, dry_run=dry_run) as world,
    ):
        report = begin_report(world, loaded, dry_run=dry_run)
        try:
            carry_out(world, loaded, report)
            if wait:
                assess(world, loaded, report)
        except BaseException as error:
            # whatever happens after an eviction, people get to see which pods went
            if report.evictions:
                report.notes.append(f"ended early: {error or type(error).__name__}")
                show(report, output=output, namespace=namespace, all_nodes=all_nodes)
            raise
    show(report, output=output, namespace=namespace, all_nodes=all_nodes)
    if report.stopped is not None or report.interrupted is not None:
        raise typer.Exit(exit_code(report))
