"""`rebalancer policy init`: asks the cluster and its Prometheus for a first policy."""

from contextlib import ExitStack, closing

from rebalancer.bootstrap.process.paths import shipped
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.cluster import client_of
from rebalancer.cycle.context import NullProgress
from rebalancer.kube.probe import list_nodes, list_services
from rebalancer.policy import load_policy
from rebalancer.policy.metrics_servers import FoundServer, found_servers
from rebalancer.policy.proposal import CANDIDATES, ProposedQueries, proposed_policy
from rebalancer.prometheus.readings.reader import PrometheusUsage

EXAMPLE = "balanced.yaml"


def prometheus_servers(settings: Settings) -> list[FoundServer]:
    """Servers of the Prometheus API among the cluster's Services, likeliest first. Raises ConfigError, ConnectError."""
    with ExitStack() as stack:
        return found_servers(list_services(client_of(settings, stack)))


def propose(settings: Settings, *, cluster: str, url: str) -> tuple[str, ProposedQueries | None]:
    """(text of the policy, the queries that have data there; None for none). Raises ConfigError, ConnectError."""
    with ExitStack() as stack:
        labels = list_nodes(client_of(settings, stack)).labels
    example = (shipped("policies") / EXAMPLE).read_text(encoding="utf-8")

    def with_queries(queries: ProposedQueries | None) -> str:
        return proposed_policy(example, cluster=cluster, labels=labels, url=url, queries=queries)

    for candidate in CANDIDATES:
        text = with_queries(candidate)
        policy = load_policy(text.encode(), source="the proposed policy")
        with closing(PrometheusUsage(policy.usage, NullProgress())) as reader:
            if reader.probe().ok:
                return text, candidate
    return with_queries(None), None
