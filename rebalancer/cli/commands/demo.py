"""`rebalancer demo`: the main job on the lab, a practice cluster inside this process."""

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rebalancer.bootstrap.contexts import acting_context
from rebalancer.bootstrap.database import database_shown
from rebalancer.bootstrap.paths import shipped
from rebalancer.bootstrap.settings import Settings
from rebalancer.cli.commands.lab import on_the_lab
from rebalancer.cli.common import (
    DEMO_DATABASE,
    UNSAFE_EXIT,
    DatabaseOption,
    Output,
    OutputOption,
    print_json,
    read_file,
    say,
    settings_for,
    stdout_console,
)
from rebalancer.cli.output.document import merged_document
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.tables import print_cycle, print_nodes
from rebalancer.cycle.remeasure import assess
from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Lab
from rebalancer.model.plan import CycleReport, NodeLine
from rebalancer.policy import RebalancerPolicy, load_policy

CYCLES_AT_MOST = 6


def demo(
    output: OutputOption = Output.TABLE,
    speed: Annotated[float, typer.Option("--speed", min=1, max=120, help="How fast the lab's clock runs.")] = 60.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the lab's noise.")] = 1,
    database: DatabaseOption = None,
) -> None:
    """Cool the hot nodes of a practice cluster: real client, real HTTP, real database; nothing of yours is touched."""
    console = stdout_console() if output is Output.TABLE else Console(stderr=True, quiet=True)
    if database is None and not os.environ.get("REBALANCER_DATABASE"):
        # the lab's clock runs ahead, so the rows of an earlier demo lie in this one's future
        database = f"sqlite:///{DEMO_DATABASE}"
        for suffix in ("", "-wal", "-shm"):
            Path(DEMO_DATABASE + suffix).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder, Lab.start("demo", speed=speed, seed=seed) as lab:
        settings = settings_for(database=database, kubeconfig=str(lab.write_kubeconfig(Path(folder) / "kubeconfig")))
        policy = demo_policy(lab)
        console.print(f"A practice cluster at {lab.url}, its clock {speed:g} times as fast as yours.\n")
        reports = _cycles(lab, policy, settings, console)
        hot = lab.truth.hot(_high(policy))
    if output is Output.JSON:
        print_json(merged_document(reports))
    else:
        console.print()
        _summary(console, reports, sorted(hot), database_shown(settings))
    if hot:
        say(f"by the lab's own account still hot: {', '.join(sorted(hot))}")
        raise typer.Exit(UNSAFE_EXIT)


def demo_policy(lab: Lab) -> RebalancerPolicy:
    """policies/demo.yaml with the lab's address."""
    path = shipped("policies") / "demo.yaml"
    return on_the_lab(load_policy(read_file(path), source=path.name), lab)


def _cycles(lab: Lab, policy: RebalancerPolicy, settings: Settings, console: Console) -> list[CycleReport]:
    """Cycles until no node is hot by the lab's own account, or nothing more can be done."""
    reports: list[CycleReport] = []
    with (
        TerminalProgress() as progress,
        acting_context(policy, settings, progress=progress, clock=lab.clock) as cycle_context,
    ):
        for number in range(1, CYCLES_AT_MOST + 1):
            report = run_cycle(cycle_context, policy, dry_run=False).report
            assess(cycle_context, policy, report)
            reports.append(report)
            console.rule(f"Cycle {number}")
            print_cycle(console, report)
            if not lab.truth.hot(_high(policy)) or not report.evictions:
                break
    return reports


def _high(policy: RebalancerPolicy) -> float:
    return min(pool.thresholds.high for pool in policy.pools if pool.thresholds is not None) / 100


def _summary(console: Console, reports: list[CycleReport], hot: list[str], database: str) -> None:
    document: dict[str, Any] = merged_document(reports)
    lines = [
        NodeLine(
            name=line["name"],
            pool=line["pool"] or "",
            cpu_before=line["cpuShareBefore"],
            cpu_planned=line["cpuSharePlanned"],
            cpu_after=line["cpuShareAfter"],
            hot=line["hot"],
        )
        for line in document["nodes"]
    ]
    console.rule("Before the first cycle, as planned in it, measured after the last")
    print_nodes(console, lines, all_nodes=True)
    evicted = sum(each["outcome"] == "evicted" for each in document["evictions"])
    verdict = f"still hot: {', '.join(hot)}" if hot else "no node is hot any more"
    console.print(f"\n{evicted} evictions in {len(reports)} cycle(s); by the lab's own account {verdict}.")
    console.print(f"Everything is recorded in {database}: see `rebalancer db status`.")
