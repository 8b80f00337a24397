"""`rebalancer demo`: cycles on the lab, a practice cluster inside this process."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import UNSAFE_EXIT, Output, read_file, say
from rebalancer.cli.invocation import TABLES, Invocation, options, settings_for
from rebalancer.cli.state import demo_database
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rebalancer.bootstrap.process.settings import Settings
    from rebalancer.lab import Lab
    from rebalancer.model.decisions.plan import CycleReport
    from rebalancer.policy import RebalancerPolicy

CYCLES_AT_MOST = 6


@options(*TABLES)
def demo(
    invocation: Invocation,
    speed: Annotated[
        float,
        typer.Option(
            "--speed", min=1, max=120, help="Speed of the practice cluster's clock, as a multiple of real time."
        ),
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the practice cluster's noise.")] = 1,
) -> None:
    """Cool the hot nodes of a practice cluster, with the real client over HTTP and a database of its own. Your own
    clusters and databases are not contacted."""
    from rebalancer.bootstrap.wiring.database import database_shown
    from rebalancer.cli.output.cycle_document import merged_document
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import Screen
    from rebalancer.lab import Lab

    as_tables = invocation.output in (Output.TABLE, Output.WIDE)
    console = Screen(wide=invocation.output is Output.WIDE, quiet=not as_tables)
    database = _new_database()
    with tempfile.TemporaryDirectory() as folder, Lab.start("demo", speed=speed, seed=seed) as lab:
        kubeconfig = lab.write_kubeconfig(Path(folder) / "kubeconfig")
        settings = settings_for(
            database=database, kubeconfig=str(kubeconfig), history_dir=str(Path(folder) / "history")
        )
        policy = demo_policy(lab)
        console.print(f"Practice cluster at {lab.url}; its clock runs at {speed:g} times real time.\n")
        reports = _cycles(lab, policy, settings, console)
        hot = lab.truth.hot(_high(policy))

    def draw(_: Screen) -> None:
        console.print()
        _summary(console, reports, sorted(hot), database_shown(settings))

    invocation.show(lambda: Shown(document=merged_document(reports), draw=draw, rows="evictions"))
    if hot:
        say(f"still hot, measured by the practice cluster: {', '.join(sorted(hot))}")
        raise typer.Exit(UNSAFE_EXIT)


def _new_database() -> str:
    """The demo's own, whatever REBALANCER_DATABASE names: its evictions would count in the limits of a real cluster.

    Raises ConfigError.
    """
    file = demo_database()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # the lab's clock runs ahead, so the rows of an earlier demo lie in this one's future
        for suffix in ("", "-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{file.parent}: {error.strerror}: set XDG_STATE_HOME to a writable folder") from None
    return f"sqlite:///{file}"


def demo_policy(lab: "Lab") -> "RebalancerPolicy":
    """policies/demo.yaml with the address of the lab."""
    from rebalancer.bootstrap.process.paths import shipped
    from rebalancer.cli.commands.lab import on_the_lab
    from rebalancer.policy import load_policy

    path = shipped("policies") / "demo.yaml"
    return on_the_lab(load_policy(read_file(path), source=path.name), lab)


def _cycles(lab: "Lab", policy: "RebalancerPolicy", settings: "Settings", console: "Console") -> "list[CycleReport]":
    """Cycles until the lab measures no hot node, or no eviction is possible."""
    from rebalancer.bootstrap.commands.contexts import acting_context
    from rebalancer.cli.output.cycle import print_cycle
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cycle.evict.remeasure import remeasure
    from rebalancer.cycle.run import run_cycle

    reports: list[CycleReport] = []
    with (
        TerminalProgress() as progress,
        acting_context(policy, settings, progress=progress, clock=lab.clock) as cycle_context,
    ):
        # the history ends with the demo: no note on what fills it
        quiet = replace(cycle_context, forecasts=replace(cycle_context.forecasts, basis=lambda _now: ""))
        for number in range(1, CYCLES_AT_MOST + 1):
            report = run_cycle(quiet, policy, dry_run=False).report
            remeasure(quiet, policy, report)
            reports.append(report)
            console.rule(f"Cycle {number}")
            print_cycle(console, report)
            if not lab.truth.hot(_high(policy)) or not report.evictions:
                break
    return reports


def _high(policy: "RebalancerPolicy") -> float:
    return min(pool.thresholds.high for pool in policy.pools if pool.thresholds is not None) / 100


def _summary(console: "Console", reports: "list[CycleReport]", hot: list[str], database: str) -> None:
    from rebalancer.cli.output.cycle import print_nodes
    from rebalancer.cli.output.cycle_document import merged_nodes
    from rebalancer.model.decisions.eviction import Outcome
    from rebalancer.model.decisions.next_hour import NEXT_HOUR
    from rebalancer.model.notation.figures import counted
    from rebalancer.model.notation.heat import Heat, heat_sentence

    console.rule("Node CPU before the first cycle, planned in it, and measured after the last")
    print_nodes(console, merged_nodes(reports), all_nodes=True)
    evicted = sum(each.answered.outcome is Outcome.EVICTED for report in reports for each in report.evictions)
    verdict = f"still hot: {', '.join(hot)}" if hot else "no node is hot any more"
    done = f"{counted(evicted, 'eviction')} in {counted(len(reports), 'cycle')}"
    console.print(f"\n{done}. Measured by the practice cluster: {verdict}.")
    before = sum(line.hot for line in reports[0].nodes)
    heat = Heat(before=float(before), after=float(len(hot)), evictions=evicted)
    console.print(f"{heat_sentence(heat, of=NEXT_HOUR)}.", highlight=False)
    console.print(f"All decisions are recorded in {database}; see `rebalancer db status --database {database}`.")
