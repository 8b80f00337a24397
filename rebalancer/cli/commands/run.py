"""`rebalancer run`: the daemon; with `--once` a single cycle and the measurement of its effect."""

import gc
import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.commands.plan import exit_code, show
from rebalancer.cli.common import parse_policy, read_file
from rebalancer.cli.invocation import CLUSTER, TABLES, AllNodesOption, Invocation, NamespaceOption, options
from rebalancer.model.errors import ConfigError, UnsafeDataError
from rebalancer.model.notation.figures import counted

if TYPE_CHECKING:
    from rebalancer.bootstrap.process.settings import Settings
    from rebalancer.cli.state import LabFiles
    from rebalancer.policy import RebalancerPolicy


COLLECTIONS = (10_000, 10, 100)
"""Thresholds of the garbage collector in the daemon. A full collection visits all objects of a large cluster;
with Python's own thresholds one or two came in each cycle."""


@options(*CLUSTER, *TABLES)
def run(
    invocation: Invocation,
    once: Annotated[bool, typer.Option("--once", help="Run one cycle and exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Record cycles, marked as dry runs, without evictions.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="With --once: wait for replacements that bar moves, then for all replacements and a full rate "
            "window, and measure the nodes again. Without waiting no move waits, no node gets a soft taint and no node "
            "is drained.",
        ),
    ] = True,
    on_lab: Annotated[
        str | None,
        typer.Option(
            "--lab", metavar="SCENARIO", help="Run the daemon on a practice cluster: a scenario's name or its file."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Make exactly the evictions of a file of `plan --out` in a single cycle, those of pools and "
            "strategies in dry run too, or none if anything has changed.",
        ),
    ] = None,
    namespace: NamespaceOption = None,
    all_nodes: AllNodesOption = False,
) -> None:
    """Run the daemon until stopped, or with --once a single cycle.

    The daemon runs cycles on a timer, on alerts, on forecasts and on request. A cycle finds hot nodes, evicts pods,
    records the decisions and measures the effect. With --once the evictions of earlier runs that are due are assessed
    first. With --plan it is a single cycle, too.
    """
    settings = invocation.settings
    if plan is not None and dry_run:
        raise ConfigError("--plan: expected without --dry-run")
    if not once and plan is None:
        code = _daemon(invocation.policy_path, settings, dry_run=dry_run, scenario=on_lab)
        logging.shutdown()
        os._exit(code)  # threads may still wait for a server that does not answer
    if on_lab is not None:
        raise ConfigError("run: --lab is for the daemon; for one cycle on a practice cluster use `rebalancer demo`")
    policy, approved = invocation.policy, None
    if plan is not None:
        from rebalancer.bootstrap.commands.plan_files import approved_plan
        from rebalancer.cli.output.plan_file import read_plan_file
        from rebalancer.policy.modes import acting

        # an approved plan is an approval
        policy, approved = acting(policy), approved_plan(read_plan_file(plan), policy, settings)
    from rebalancer.bootstrap.commands.assessments import assess_due
    from rebalancer.bootstrap.commands.contexts import evaluated_context, event_sink
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cycle.evict.remeasure import remeasure
    from rebalancer.cycle.evict.surges import finished
    from rebalancer.cycle.plan.approved import not_made
    from rebalancer.cycle.report.events import publish_events
    from rebalancer.cycle.run import begin_report, execute_cycle

    with (
        TerminalProgress() as progress,
        # without waiting a soft taint cannot be removed once the replacements are scheduled
        evaluated_context(policy, settings, progress=progress, dry_run=dry_run, taints=wait) as active,
    ):
        # assessed first, because backoffs, circuit breakers and relief of this cycle follow from it
        context, evaluation, made = active.context, active.evaluation, assess_due(active)
        report = begin_report(context, policy, dry_run=dry_run, cycle=None if approved is None else approved.id)
        if made:
            report.notes.append(f"{counted(len(made), 'assessment')} of earlier evictions made before this cycle")
        report.notes += () if evaluation is None else evaluation.notes
        try:
            with finished(context.surges, report, context.clock):
                execute_cycle(context, policy, report, approved=approved)
                if wait:
                    remeasure(context, policy, report)
        except BaseException as error:
            # evictions that happened are printed whatever failed afterwards
            if report.evictions:
                report.notes.append(f"ended early: {error or type(error).__name__}")
                show(invocation, report, namespace=namespace, all_nodes=all_nodes)
            raise
        finally:
            if report.evictions and not dry_run:
                with event_sink(settings, context.clock) as events:
                    publish_events(events, report)
    show(invocation, report, namespace=namespace, all_nodes=all_nodes)
    if (code := exit_code(report)) != 0:
        raise typer.Exit(code)
    if approved is not None and (left := not_made(approved, report)):
        raise UnsafeDataError(left)


def _daemon(path: Path, settings: "Settings", *, dry_run: bool, scenario: str | None) -> int:
    from rebalancer.cli.commands.lab import full_promql, introduce, on_the_lab, started
    from rebalancer.cli.state import lab_files
    from rebalancer.daemon.logs import set_up
    from rebalancer.daemon.memory import limit_arenas
    from rebalancer.daemon.reload import PolicyFile
    from rebalancer.daemon.serve import Daemon

    set_up(as_json=not sys.stderr.isatty(), level=settings.log_level)
    gc.set_threshold(*COLLECTIONS)
    limit_arenas()
    with ExitStack() as stack:
        lab = None
        if scenario is not None:
            lab = stack.enter_context(started(scenario))
            files = stack.enter_context(lab_files(lab))
            stack.enter_context(full_promql(lab, files))
            introduce(lab, files)
            settings = settings.model_copy(update=_own_settings(settings, files))

        def parse(data: bytes) -> "RebalancerPolicy":
            policy = parse_policy(data, path=path)
            return policy if lab is None else on_the_lab(policy, lab)

        file = PolicyFile(read=lambda: read_file(path), parse=parse)
        return Daemon(policy_file=file, settings=settings, clock=lab.clock if lab else None, dry_run=dry_run).run()


def _own_settings(settings: "Settings", files: "LabFiles") -> dict[str, str]:
    """The practice cluster's kubeconfig, and its database and history unless they are named."""
    own = {
        "database": files.environment["REBALANCER_DATABASE"],
        "history_dir": files.environment["REBALANCER_HISTORY_DIR"],
    }
    unnamed = {name: value for name, value in own.items() if name not in settings.model_fields_set}
    return {"kubeconfig": str(files.kubeconfig), **unnamed}
