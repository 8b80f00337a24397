"""`rebalancer lab`: a practice cluster for kubectl, a Prometheus or this program."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import Stopped, say
from rebalancer.cli.state import LabFiles, lab_files
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.lab import Lab
    from rebalancer.policy import RebalancerPolicy


def lab(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario, or path to a scenario file.")] = "demo",
    port: Annotated[int, typer.Option("--port", help="Port of the API server; 0 selects a free port.")] = 0,
    speed: Annotated[
        float, typer.Option("--speed", min=1, help="Speed of the cluster's clock, as a multiple of real time.")
    ] = 1.0,
    past: Annotated[
        str,
        typer.Option("--past", help="Time before the start that its real Prometheus has, for replays, such as 2d."),
    ] = "20m",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Path of the kubeconfig file to write. [default: in the user's state folder, removed at the end]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve a practice cluster on loopback until interrupted."""
    past_seconds = _past_seconds(past)
    with (
        started(scenario, port=port, speed=speed) as running,
        lab_files(running, kubeconfig=kubeconfig) as files,
        full_promql(running, files, speed=speed, past_seconds=past_seconds),
    ):
        introduce(running, files)
        try:
            while True:
                time.sleep(3600)
        except Stopped:
            say("the practice cluster is stopped")


def _past_seconds(past: str) -> float:
    """Raises ConfigError."""
    from rebalancer.policy.schema.types import parse_duration

    try:
        return parse_duration(past)
    except ValueError as error:
        raise ConfigError(f"--past: {error}, got {past!r}") from None


@contextmanager
def started(scenario: str, *, port: int = 0, speed: float = 1.0) -> "Iterator[Lab]":
    """A running practice cluster. Raises ConfigError."""
    from rebalancer.lab import Lab, ScenarioError

    try:
        running = Lab.start(scenario, port=port, speed=speed)
    except ScenarioError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"lab: {error.strerror or error}") from None
    with running:
        yield running


@contextmanager
def full_promql(running: "Lab", files: LabFiles, *, speed: float = 1.0, past_seconds: float = 0.0) -> "Iterator[None]":
    """All of PromQL on the practice cluster, where Prometheus is installed and time runs as in reality."""
    from rebalancer.lab.prometheus.real import installed
    from rebalancer.policy.schema.types import format_duration

    if speed != 1.0 or not installed():
        why = "the clock is not that of real time" if speed != 1.0 else "prometheus and promtool are not on PATH"
        say(f"Without a real Prometheus: {why}. Policies other than demo.yaml need its PromQL.")
        yield
        return
    # earlier the pods were not there
    most = min((each.age_seconds for each in running.cluster.scenario.workloads), default=math.inf)
    if past_seconds > most:
        expected, given = format_duration(most), format_duration(past_seconds)
        raise ConfigError(f"--past: expected at most {expected}, the age of the scenario's pods, got {given}")
    with ExitStack() as stack:
        try:
            stack.enter_context(running.full_promql(files.folder / "prometheus", past_seconds=past_seconds))
        except OSError as error:
            say(f"Without a real Prometheus: {error}")
        yield


def introduce(running: "Lab", files: LabFiles) -> None:
    """Say where the practice cluster is, and what to type to use it."""
    files.write_env()
    say(f"Kubernetes API:  {running.url}")
    full = running.full_prometheus_url is not None
    answers = "all of PromQL, by a real Prometheus" if full else "plain selectors and the simplest aggregations only"
    say(f"Prometheus API:  {running.prometheus_url} ({answers}; scrape {running.url}/metrics)")
    say(f"Policies for it: {files.policies}")
    say("In another shell:")
    for name, value in files.environment.items():
        say(f"  export {name}={value}")
    say("  kubectl get nodes")


def on_the_lab(policy: "RebalancerPolicy", lab: "Lab") -> "RebalancerPolicy":
    """The policy with the lab's Prometheus instead of its own."""
    if policy.usage.prometheus is None:
        return policy
    prometheus = policy.usage.prometheus.model_copy(update={"url": lab.prometheus_url})
    return policy.model_copy(update={"usage": policy.usage.model_copy(update={"prometheus": prometheus})})
