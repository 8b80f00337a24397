"""`rebalancer run`: the daemon; with `--once` one cycle for real, then its effect."""

import logging
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.bootstrap.contexts import acting_context
from rebalancer.bootstrap.settings import Settings
from rebalancer.cli.commands.plan import exit_code, show
from rebalancer.cli.common import (
    AllNodesOption,
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    NamespaceOption,
    Output,
    OutputOption,
    PolicyOption,
    parse_policy,
    read_file,
    read_policy,
    settings_for,
)
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cycle.remeasure import assess
from rebalancer.cycle.run import begin_report, execute_cycle
from rebalancer.daemon.logs import set_up
from rebalancer.daemon.reload import PolicyFile
from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy


def run(
    policy: PolicyOption,
    once: Annotated[bool, typer.Option("--once", help="Run one cycle and exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Record the cycle, marked dry, and evict nothing.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Wait for the replacements and a full rate window, then measure the nodes again. "
            "Without it no node is steered away from, and none is drained.",
        ),
    ] = True,
    on_lab: Annotated[
        str | None,
        typer.Option("--lab", metavar="SCENARIO", help="Run the daemon on a practice cluster: a scenario or its file."),
    ] = None,
    output: OutputOption = Output.TABLE,
    namespace: NamespaceOption = None,
    all_nodes: AllNodesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Run as a daemon: on a timer, on alerts and when triggered, until stopped. With --once run one cycle: find hot
    nodes, evict what cools them, record it, and measure what came of it."""
    settings = settings_for(database=database, kubeconfig=kubeconfig, context=context)
    if not once:
        code = _daemon(policy, settings, dry_run=dry_run, scenario=on_lab)
        logging.shutdown()
        os._exit(code)  # whatever thread still waits for a server that doesn't answer
    if on_lab is not None:
        raise ConfigError("run: --lab is for the daemon; for one cycle on a practice cluster try `rebalancer demo`")
    loaded = read_policy(policy)
    with (
        TerminalProgress() as progress,
        # whoever doesn't wait can't remove a taint once the replacements have landed
        acting_context(loaded, settings, progress=progress, dry_run=dry_run, steer=wait) as cycle_context,
    ):
        report = begin_report(cycle_context, loaded, dry_run=dry_run)
        try:
            execute_cycle(cycle_context, loaded, report)
            if wait:
                assess(cycle_context, loaded, report)
        except BaseException as error:
            # whatever happens after an eviction, people get to see which pods went
            if report.evictions:
                report.notes.append(f"ended early: {error or type(error).__name__}")
                show(report, output=output, namespace=namespace, all_nodes=all_nodes)
            raise
    show(report, output=output, namespace=namespace, all_nodes=all_nodes)
    if report.stopped is not None or report.interrupted is not None:
        raise typer.Exit(exit_code(report))


def _daemon(path: Path, settings: Settings, *, dry_run: bool, scenario: str | None) -> int:
    # `run --once` needs neither the web server nor the practice cluster
    from rebalancer.cli.commands.lab import on_the_lab
    from rebalancer.daemon.serve import Daemon
    from rebalancer.lab import Lab, ScenarioError

    set_up(as_json=not sys.stderr.isatty())
    with ExitStack() as stack:
        lab = None
        if scenario is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                lab = stack.enter_context(Lab.start(scenario))
            except ScenarioError as error:
                raise ConfigError(str(error)) from None
            settings = settings.model_copy(update={"kubeconfig": str(lab.write_kubeconfig(folder / "kubeconfig"))})

        def parse(data: bytes) -> RebalancerPolicy:
            policy = parse_policy(data, path=path)
            return policy if lab is None else on_the_lab(policy, lab)

        file = PolicyFile(read=lambda: read_file(path), parse=parse)
        return Daemon(policy_file=file, settings=settings, clock=lab.clock if lab else None, dry_run=dry_run).run()
