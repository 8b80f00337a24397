"""`rebalancer lab`: a practice cluster for kubectl, a Prometheus or this program."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import Stopped, say
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.lab import Lab
    from rebalancer.policy import RebalancerPolicy


def lab(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario, or path to a scenario file.")] = "demo",
    port: Annotated[int, typer.Option("--port", help="Port of the API server; 0 selects a free port.")] = 0,
    speed: Annotated[float, typer.Option("--speed", min=1, help="Speed of the cluster's clock, in real time.")] = 1.0,
    kubeconfig: Annotated[Path, typer.Option("--kubeconfig", help="Path of the kubeconfig file to write.")] = Path(
        "lab.kubeconfig"
    ),
) -> None:
    """Serve a practice cluster on the loopback interface until interrupted."""
    from rebalancer.lab import ScenarioError
    from rebalancer.lab import run as run_lab

    def ready(running: "Lab") -> None:
        say(f"Kubernetes API:  {running.url}")
        say(f"Prometheus API:  {running.prometheus_url} (plain selectors only; scrape {running.url}/metrics)")
        say(f"Example:         KUBECONFIG={kubeconfig} kubectl get nodes")

    try:
        run_lab(scenario, port=port, speed=speed, kubeconfig=kubeconfig, on_ready=ready)
    except Stopped:
        say("the practice cluster is stopped")
    except ScenarioError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"lab: {error.strerror or error}") from None


def on_the_lab(policy: "RebalancerPolicy", lab: "Lab") -> "RebalancerPolicy":
    """The policy with the lab's Prometheus instead of its own."""
    if policy.usage.prometheus is None:
        return policy
    prometheus = policy.usage.prometheus.model_copy(update={"url": lab.prometheus_url})
    return policy.model_copy(update={"usage": policy.usage.model_copy(update={"prometheus": prometheus})})
