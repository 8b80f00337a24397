"""A first policy for a cluster that has none, from the cluster and its Prometheus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import say
from rebalancer.cli.invocation import Invocation
from rebalancer.model.errors import ConfigError, ConnectError

if TYPE_CHECKING:
    from rebalancer.policy.metrics_servers import FoundServer

PrometheusOption = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        help="URL of Prometheus. [default: the Service in the cluster that looks like one]",
        show_default=False,
    ),
]
ClusterOption = Annotated[str, typer.Option("--cluster", help="Name of the cluster in records.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedPolicy:
    """A policy with the pools of the cluster."""

    url: str
    """Of Prometheus."""
    text: str
    has_usage: bool
    """Whether its queries have data."""


def proposed_policy(invocation: Invocation, prometheus: str | None, *, cluster: str, command: str) -> ProposedPolicy:
    """The policy for `cluster`, by the Prometheus at a URL; None = the one that is found among the Services. `command`:
    what is typed again with another URL. Raises ConfigError, ConnectError."""
    from rebalancer.bootstrap.commands.proposal import propose

    found = _found_server(invocation, command) if prometheus is None else None
    url = found.url if found is not None else str(prometheus)
    try:
        text, queries = propose(invocation.settings, cluster=cluster, url=url)
    except ConnectError as error:
        if found is None:
            raise
        raise ConnectError(
            f"{error}\noutside the cluster, type: {found.port_forward}\n"
            f"and then: {command} --prometheus {found.forwarded_url}"
        ) from None
    return ProposedPolicy(url=url, text=text, has_usage=queries is not None)


def _found_server(invocation: Invocation, command: str) -> "FoundServer":
    """The likeliest server of the Prometheus API in the cluster; says which. Raises ConfigError for none."""
    from rebalancer.bootstrap.commands.proposal import prometheus_servers

    what = f"type its URL: {command} --prometheus http://HOST:PORT"
    try:
        found = prometheus_servers(invocation.settings)
    except ConnectError as error:
        raise ConnectError(f"looking for Prometheus: {error}; {what}") from None
    if not found:
        raise ConfigError(f"no Service in the cluster looks like Prometheus; {what}")
    say(f"Prometheus: {found[0].url} (Service {found[0].service.namespace}/{found[0].service.name})")
    for each in found[1:]:
        say(f"also there: --prometheus {each.url}")
    return found[0]
