"""`rebalancer advise`: configuration of kube-scheduler that suits the observed cluster, and of workloads that suits
recorded days."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rebalancer.cli.commands.replay import (
    DaskOption,
    SeedOption,
    Source,
    SourceOption,
    WorkersOption,
    between,
)
from rebalancer.cli.common import Output, Since, Until
from rebalancer.cli.invocation import CLUSTER, TABLES, Invocation, Shared, options

if TYPE_CHECKING:
    from rebalancer.cli.output.tables import Screen

RECORDED: tuple[Shared, ...] = ("policy", "kubeconfig", "context", "verbose", *TABLES)
Most = Annotated[int, typer.Option("--most", min=1, help="Replay at most so many alone; the others only with all.")]
Advice = TypeVar("Advice")

app = typer.Typer(help="Advise on configuration that makes evictions unnecessary.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Advise on configuration that makes evictions unnecessary."""


@app.command("scheduler")
@options(*CLUSTER, *TABLES, output=Output.YAML)
def scheduler(invocation: Invocation) -> None:
    """Print a KubeSchedulerConfiguration for this cluster.

    With the measurements behind each change. With `-o yaml` it is a file for kube-scheduler; the other formats have the
    advice behind it.
    """
    from rebalancer.cli.commands.explain import observed_cluster
    from rebalancer.cli.output.advised import advice_document, advised_yaml
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import plain_table
    from rebalancer.planner.advice.advice import advise

    policy = invocation.policy
    with observed_cluster(invocation) as scene:
        found = advise(
            scene.snapshot,
            scene.placement.without_pending(),
            scene.config,
            strategies=policy.strategies,
            pools=scene.pools,
            now=scene.now,
        )
    if invocation.output is Output.YAML:
        typer.echo(advised_yaml(found), nl=False)
        return

    def draw(screen: "Screen") -> None:
        table = plain_table("Advice", "TOPIC", "SUBJECT", "OBSERVATION", "RECOMMENDATION")
        for each in found.advice:
            table.add_row(str(each.topic), each.subject, each.observation, each.recommendation)
        screen.print(table)

    invocation.show(lambda: Shown(document=advice_document(found), draw=draw, rows="advice"))


@app.command("jobs")
@options(*RECORDED)
def jobs(
    invocation: Invocation,
    since: Since = "7d",
    until: Until = None,
    source: SourceOption = None,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    dask: DaskOption = None,
    most: Most = 5,
) -> None:
    """Print the Jobs whose pods keep nodes hot.

    With the patch that lets their pods be evicted, and the hot node-hours that this would save: recorded days are
    replayed with the policy, and again with Jobs that may be evicted. Changes nothing in the cluster.
    """
    from rebalancer.cli.output.advised_workloads import jobs_shown
    from rebalancer.replay.advice.jobs import advise_jobs

    times = between(since, until, time.time())
    found = _of_days(invocation, advise_jobs, times, source, most=most, seed=seed, workers=workers, dask=dask)
    invocation.show(lambda: jobs_shown(found))


@app.command("requests")
@options(*RECORDED)
def requests(
    invocation: Invocation,
    since: Since = "7d",
    until: Until = None,
    source: SourceOption = None,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    dask: DaskOption = None,
    most: Most = 5,
) -> None:
    """Print the services whose CPU requests make nodes hot.

    Their pods use far more than they request, so kube-scheduler places too many of them together. With the patch that
    sets the requests, and the hot node-hours that this would save: recorded days are replayed with the policy, and
    again with other requests. Changes nothing in the cluster.
    """
    from rebalancer.cli.output.advised_workloads import requests_shown
    from rebalancer.replay.advice.requests import advise_requests

    times = between(since, until, time.time())
    found = _of_days(invocation, advise_requests, times, source, most=most, seed=seed, workers=workers, dask=dask)
    invocation.show(lambda: requests_shown(found))


def _of_days(
    invocation: Invocation,
    advise: Callable[..., Advice | None],
    times: tuple[float, float],
    source: Source | None,
    *,
    most: int,
    workers: int | None,
    dask: str | None,
    **replayed: Any,
) -> Advice:
    from rebalancer.bootstrap.recordings import replay as replays
    from rebalancer.cli.output.progress import TerminalProgress

    policy, settings, (start, end) = invocation.policy, invocation.settings, times
    origin = None if source is None else replays.Source(source.value)
    with TerminalProgress() as progress:
        recording = replays.recorded(policy, settings, start=start, end=end, source=origin, progress=progress)
        count = workers or os.cpu_count() or 1
        run = partial(replays.replay, recording, policy, workers=count, scheduler=dask, progress=progress, **replayed)
        found = advise(recording, policy, run=run, most=most)
    assert found is not None  # nothing interrupts the runs
    return found
