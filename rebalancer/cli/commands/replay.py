"""`rebalancer replay`: recorded days of the cluster, simulated again under one or several policies."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import (
    PAGE_TABLES,
    Output,
    PageOutput,
    Since,
    Stopped,
    Until,
    beside,
    parse_moment,
    read_file,
    read_policy,
    say,
    shown_path,
    write_file,
)
from rebalancer.cli.invocation import Invocation, options
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.model.recordings.replay import Replay
    from rebalancer.policy import RebalancerPolicy
    from rebalancer.replay.comparison.variants import Variant


class Source(StrEnum):
    """Values of `--source`."""

    JOURNAL = "journal"
    PROMETHEUS = "prometheus"


SourceOption = Annotated[
    Source | None,
    typer.Option(
        "--source",
        help="Where the days are read from. [default: the daemon's journal, if this history folder has it of all "
        "days, else Prometheus]",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulated scheduler.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes for the runs. [default: the number of CPUs]")
]
DaskOption = Annotated[
    str | None,
    typer.Option(
        "--dask", help="Address of a Dask scheduler whose workers take the runs, such as tls://10.0.0.1:8786."
    ),
]


@options("policy", "kubeconfig", "context", "verbose", "utc")
def replay(
    invocation: Invocation,
    since: Since = "7d",
    until: Until = None,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", help="Path to another policy file to compare with; may be given several times."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="FIELD=VALUE,VALUE",
            help="Compare values of a field, such as pools[0].thresholds.high=70,75,80; several options multiply.",
        ),
    ] = None,
    lift: Annotated[
        bool,
        typer.Option("--lift", help="Show what each rule of the policy costs: a run for each, with it alone lifted."),
    ] = False,
    goal: Annotated[
        str | None,
        typer.Option(
            "--goal",
            help="Name the run with the fewest evictions that keeps a bound such as hot<=1% or evictions<=100.",
        ),
    ] = None,
    source: SourceOption = None,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    dask: DaskOption = None,
    output: Annotated[
        PageOutput, typer.Option("--output", "-o", help="Output format; csv has a row for each run, html is one page.")
    ] = PageOutput.TABLE,
    file: Annotated[
        Path | None, typer.Option("--file", help="File to write instead of stdout; with -o json, yaml, csv or html.")
    ] = None,
) -> None:
    """Show what the last days would have been with a policy: hot node-hours, evictions, the services that it moves, and
    what keeps nodes hot. The days are simulated from their records: pods come, go and use CPU as recorded,
    kube-scheduler's model places them, and the policy's cycles decide with what was known at each time. Changes nothing
    in the cluster. The page of the newest replay is kept in REBALANCER_HISTORY_DIR, where the dashboard links it.
    Interrupted once, it shows the figures until then."""
    if file is not None and output in PAGE_TABLES:
        raise ConfigError("--file: expected with -o json, yaml, csv or html")
    now = time.time()
    start, end = between(since, until, now)
    from rebalancer.bootstrap.process.paths import newest_replay
    from rebalancer.bootstrap.recordings import replay as replays
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.replay.comparison.variants import read_goal
    from rebalancer.web.pages.replay_page import render_replay

    policy, settings = invocation.policy, invocation.settings
    origin = None if source is None else replays.Source(source.value)
    if goal is not None:
        read_goal(goal)  # a mistake is reported before the work
    candidates, notes = _candidates(invocation.policy_path, policy, against or [], sweep or [], lift=lift)
    with TerminalProgress() as progress:
        recording = replays.recorded(policy, settings, start=start, end=end, source=origin, progress=progress)
        with interruptible() as interrupt:
            made = replays.replay(
                recording,
                policy,
                candidates,
                seed=seed,
                workers=workers or os.cpu_count() or 1,
                scheduler=dask,
                progress=progress,
                stopping=lambda: interrupt.number != 0,
            )
    if made is None:
        raise Stopped(interrupt.number)
    notes = (*covered(made, end - start), *notes)
    page = render_replay(made, now=now, goal=goal or "", notes=notes)
    _write(made, page, goal or "", notes, output, file)
    if interrupt.number:
        raise Stopped(interrupt.number)
    _keep(page, newest_replay(settings.history_dir, policy.cluster))


def between(since: str, until: str | None, now: float) -> tuple[float, float]:
    """The times of `--since` and `--until`. Raises ConfigError."""
    start = parse_moment("--since", since, now)
    end = min(now if until is None else parse_moment("--until", until, now), now)
    if start >= end:
        raise ConfigError(f"--since {since}: expected a time before {'now' if end == now else f'--until {until}'}")
    return start, end


def covered(made: "Replay", asked_seconds: float) -> Sequence[str]:
    """How much of the time is covered, where that isn't all of it; why is in the gaps."""
    from rebalancer.model.measured.history import STEP_SECONDS
    from rebalancer.model.notation.figures import age

    covered = made.end - made.start
    missing = asked_seconds - covered
    return [f"covers {age(covered)} of the {age(asked_seconds)} asked for"] if missing > 2 * STEP_SECONDS else []


def _candidates(
    path: Path, policy: "RebalancerPolicy", against: Sequence[Path], sweep: Sequence[str], *, lift: bool
) -> "tuple[list[Variant], Sequence[str]]":
    """The policies, with labels of their own, and notes on combinations of a sweep that are no policy."""
    from rebalancer.policy.source import policy_in
    from rebalancer.replay.comparison.lifted import lifted
    from rebalancer.replay.comparison.variants import Variant, variants
    from rebalancer.strategies.external.plugins import args_of

    others = [read_policy(each) for each in against]
    names = [shown_path(each) for each in (path, *against)]
    if len({*names}) < len(names):
        raise ConfigError(f"--against {against[-1]}: expected each policy file once")
    short = [Path(each).name for each in names]
    labels = short if len({*short}) == len(short) else names
    files = [Variant(label=label, policy=each, part="") for label, each in zip(labels[1:], others, strict=True)]
    data, source = read_file(path), shown_path(path)
    if not sweep:
        given = Variant(label=labels[0], policy=policy, part="")
        rules = lifted(policy_in(data, source=source), source=source, args_of=args_of) if lift else ()
        return [given, *(replace(each, policy=beside(each.policy, path=path)) for each in rules), *files], ()
    if lift:
        raise ConfigError("--lift: expected without --sweep")
    swept = variants(policy_in(data, source=source), source=source, sweeps=sweep, args_of=args_of)
    made = [replace(each, policy=beside(each.policy, path=path)) for each in swept.policies]
    return [*made, *files], [f"left out: {each}" for each in swept.left_out]


def _write(made: "Replay", page: str, goal: str, notes: Sequence[str], output: PageOutput, file: Path | None) -> None:
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.replay import print_replay, replay_document, when
    from rebalancer.replay.comparison.summary import summary_of

    _, summary = summary_of(made, when, goal=goal, notes=notes)
    wide = output is PageOutput.WIDE
    shown = Shown(
        document=replay_document(summary), draw=lambda screen: print_replay(screen, summary, wide=wide), rows="runs"
    )
    if output in PAGE_TABLES:
        shown.print(Output(output.value))
        return
    text = page if output is PageOutput.HTML else shown.text(Output(output.value))
    if file is None:
        sys.stdout.write(text)
    else:
        write_file(file, text, option="--file")


def replace_page(page: str, path: Path) -> None:
    """Write the page in place of an older one: a reader sees either. Raises OSError."""
    written = path.with_suffix(".html.new")
    written.write_text(page, encoding="utf-8")
    written.replace(path)


def _keep(page: str, path: Path) -> None:
    """Replace the newest replay."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_page(page, path)
    except OSError as error:
        say(f"{path}: {error.strerror or error}: the page is not kept")
    else:
        say(f"page: {path}")


@dataclass
class Interrupt:
    """The first signal that asked the command to end."""

    number: int = 0
    """The signal; 0 for none."""


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """The first SIGINT or SIGTERM is recorded; the second one ends the process."""
    interrupt = Interrupt()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def record(number: int, frame: FrameType | None) -> None:
        interrupt.number = number
        restore()
        say("interrupted: the figures until here follow; interrupt again to end without them")

    for number in before:
        signal.signal(number, record)
    try:
        yield interrupt
    finally:
        restore()
