"""`rebalancer lab`: serve the practice cluster for kubectl, a Prometheus or this program, until interrupted."""

from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli.common import Stopped, say
from rebalancer.lab import Lab
from rebalancer.lab import run as run_lab
from rebalancer.lab.scenarios.scenario import ScenarioError
from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy


def lab(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario, or a file.")] = "demo",
    port: Annotated[int, typer.Option("--port", help="0 = a free one.")] = 0,
    speed: Annotated[float, typer.Option("--speed", min=1, help="How fast its clock runs.")] = 1.0,
    kubeconfig: Annotated[Path, typer.Option("--kubeconfig", help="Where to write its kubeconfig.")] = Path(
        "lab.kubeconfig"
    ),
) -> None:
    """Serve a practice cluster on loopback until interrupted."""

    def ready(running: Lab) -> None:
        say(f"Kubernetes API:  {running.url}")
        say(f"Prometheus API:  {running.prometheus_url} (plain selectors; {running.url}/metrics to scrape)")
        say(f"Try:             KUBECONFIG={kubeconfig} kubectl get nodes")

    try:
        run_lab(scenario, port=port, speed=speed, kubeconfig=kubeconfig, on_ready=ready)
    except Stopped:
        say("the lab is closed")
    except ScenarioError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"lab: {error.strerror or error}") from None


def on_the_lab(policy: RebalancerPolicy, lab: Lab) -> RebalancerPolicy:
    """The policy with the lab's Prometheus in place of its own."""
    if policy.usage.prometheus is None:
        return policy
    prometheus = policy.usage.prometheus.model_copy(update={"url": lab.prometheus_url})
    return policy.model_copy(update={"usage": policy.usage.model_copy(update={"prometheus": prometheus})})
