"""`rebalancer try`: the last days of this cluster, replayed with a first policy, before anything is installed."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.commands.replay import WorkersOption, between, covered, interruptible, replace_page
from rebalancer.cli.common import Since, Stopped, say
from rebalancer.cli.invocation import TABLES, Invocation, options
from rebalancer.cli.proposing import ClusterOption, PrometheusOption, ProposedPolicy, proposed_policy
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.bootstrap.process.settings import Settings
    from rebalancer.cli.commands.replay import Interrupt
    from rebalancer.cli.output.formats import Shown
    from rebalancer.model.recordings.replay import Replay
    from rebalancer.policy import RebalancerPolicy
    from rebalancer.replay.comparison.lines import ReplaySummary
    from rebalancer.web.pages.replay_page import NextStep

LABEL = "balanced"
"""Of the run: the shipped policy that the first policy is made from."""
FIRST_SECONDS = 86_400.0
"""What the first answer covers: a day is read and replayed within a minute."""


@options("kubeconfig", "context", "verbose", *TABLES)
def try_out(
    invocation: Invocation,
    prometheus: PrometheusOption = None,
    cluster: ClusterOption = "my-cluster",
    since: Since = "7d",
    workers: WorkersOption = None,
    file: Annotated[Path, typer.Option("--file", help="Page to write; an older one is replaced.")] = Path(
        "rebalancer-try.html"
    ),
) -> None:
    """Show what it would have done here, without any set-up.

    Finds Prometheus among the cluster's Services and the node pools by their labels, and replays the last days with the
    balanced policy: hot node-hours, evictions, the services that it moves, and what keeps nodes hot. The page of the
    last day comes first and is replaced by that of all days. Needs no policy, no database and no installation. Reads
    Nodes, Pods, their owners and Prometheus, and changes nothing in the cluster.
    """
    now = time.time()
    start, _ = between(since, None, now)
    _check_writable(file)
    made = proposed_policy(invocation, prometheus, cluster=cluster, command="rebalancer try")
    if not made.has_usage:
        raise ConfigError(
            f"{made.url}: no CPU of nodes and pods found: expected a Prometheus that scrapes node_exporter and "
            "cAdvisor, as that of kube-prometheus-stack does"
        )
    from rebalancer.policy import load_policy

    policy = load_policy(made.text.encode(), source="the proposed policy")
    with tempfile.TemporaryDirectory(prefix="rebalancer-try-") as folder, interruptible() as interrupt:
        # days that the first answer has read are not read again; the database doesn't exist
        scratch = {"history_dir": folder, "database": f"sqlite:///{folder}/none.db"}
        settings = invocation.settings.model_copy(update=scratch)
        replayed = _replays(policy, settings, made.text, start=start, now=now, workers=workers, interrupt=interrupt)
        for replay, is_last in replayed:
            summary = _page(replay, made, file, asked_seconds=now - start, cluster=cluster)
            if not is_last:
                _say_first(summary, file)
    invocation.show(lambda: _shown(summary))
    say(f"page: {file}; next: rebalancer policy init --prometheus {made.url} --cluster {cluster} -f policy.yaml")
    if interrupt.number:
        raise Stopped(interrupt.number)


def _replays(
    policy: "RebalancerPolicy",
    settings: "Settings",
    text: str,
    *,
    start: float,
    now: float,
    workers: int | None,
    interrupt: "Interrupt",
) -> "Iterator[tuple[Replay, bool]]":
    """The last day, then all days where there are more; with whether it is the last."""
    from rebalancer.bootstrap.recordings import replay as replays
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.replay.comparison.variants import Variant

    for since in sorted({start, max(start, now - FIRST_SECONDS)}, reverse=True):
        with TerminalProgress() as progress:
            recording = replays.recorded(
                policy,
                settings,
                start=since,
                end=now,
                source=replays.Source.PROMETHEUS,
                progress=progress,
                earlier_days=0,  # the policy doesn't act on forecasts
            )
            replay = replays.replay(
                recording,
                policy,
                [Variant(label=LABEL, policy=policy, part=text)],
                workers=workers or os.cpu_count() or 1,
                progress=progress,
                stopping=lambda: interrupt.number != 0,
            )
        if replay is None:
            raise Stopped(interrupt.number)
        # a Prometheus that begins within the last day has no more
        is_last = since == start or bool(covered(replay, now - since)) or interrupt.number != 0
        yield replay, is_last
        if is_last:
            return


def _page(replay: "Replay", made: ProposedPolicy, file: Path, *, asked_seconds: float, cluster: str) -> "ReplaySummary":
    """Write the page of a replay; returns what it shows."""
    from rebalancer.cli.output.replay import when
    from rebalancer.replay.comparison.summary import summary_of
    from rebalancer.web.pages.replay_page import render_replay

    notes = covered(replay, asked_seconds)
    page = render_replay(replay, now=time.time(), notes=notes, next_steps=_next_steps(made.url, cluster))
    try:
        replace_page(page, file)
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror or error}: expected a file that can be written") from None
    _, summary = summary_of(replay, when, notes=notes)
    return summary


def _say_first(summary: "ReplaySummary", file: Path) -> None:
    from rebalancer.cli.output.replay import when
    from rebalancer.replay.comparison.messages import sentences

    first, second, *_ = sentences(summary, summary.of_policies[0], when)
    say(f"the last 24h: {first[0].lower()}{first[1:]}, {second}; page: {file}; all days follow")


def _shown(summary: "ReplaySummary") -> "Shown":
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.replay import print_replay, replay_document

    return Shown(document=replay_document(summary), draw=lambda screen: print_replay(screen, summary), rows="runs")


def _next_steps(url: str, cluster: str) -> "list[NextStep]":
    from rebalancer.web.pages.replay_page import NextStep

    return [
        NextStep(
            purpose="Write the policy of this page to a file:",
            command=f"rebalancer policy init --prometheus {url} --cluster {cluster} -f policy.yaml",
        ),
        NextStep(purpose="Show the evictions that it would make now:", command="rebalancer plan -f policy.yaml"),
        NextStep(
            purpose="Show what each of its rules costs, by a replay without it:",
            command="rebalancer replay -f policy.yaml --lift",
        ),
        NextStep(
            purpose="Install it in dry run, which is the chart's default:",
            command="helm install rebalancer deploy/helm/rebalancer --namespace rebalancer --create-namespace "
            "--set image.repository=REGISTRY/rebalancer --set-file policy=policy.yaml",
        ),
    ]


def _check_writable(file: Path) -> None:
    """Raises ConfigError before the work where the page could not be written."""
    folder = file.parent
    if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"--file {file}: expected a file in a folder that can be written")
