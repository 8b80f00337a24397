"""The standard against a real Prometheus: PromQL of one's own, and the default over node_exporter's counters."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.slo import SloSamples
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.policy import HotNodeSlo
from rebalancer.prometheus.connection.client import PrometheusClient, TooMuchError
from rebalancer.prometheus.history.slo import PrometheusSlo
from rebalancer.prometheus.promql.queries import Query
from tests.prometheus.builders import a_cluster, a_source
from tests.real.builders.prometheus_days import LongSeries, fill_days, hourly_rate
from tests.real.servers.prometheus import PrometheusServer, prometheus_server

pytestmark = pytest.mark.real

NOW = time.time()
HOT_FROM = (NOW // 3600 - 4) * 3600
"""An hour, on the hour: `one` is hot in it."""
TODAY = int(NOW // DAY_SECONDS)
SINCE = (TODAY - 1) * float(DAY_SECONDS)
CPUS = 4
PROMQL = (
    '1 - avg by (node) (label_replace(rate(node_cpu_seconds_total{mode="idle"}[10m]), '
    '"node", "$1", "instance", "(.*):9100"))'
)


def busy_share(times: Floats) -> Floats:
    """Of `one`: 90% in that hour, else 20%."""
    return np.where((times >= HOT_FROM) & (times < HOT_FROM + 3600), 0.9, 0.2)


def counters(instance: str, busy: float | None) -> list[LongSeries]:
    """A steady share, or with None that of `one`."""

    def share(hours: Floats) -> Floats:
        return busy_share(SINCE + hours * 3600) if busy is None else np.full(len(hours), busy)

    out = []
    for cpu in range(CPUS):
        for mode in ("idle", "user"):
            cores = (lambda hours: 1.0 - share(hours)) if mode == "idle" else share
            labels = {"instance": f"{instance}:9100", "cpu": str(cpu), "mode": mode, "job": "node-exporter"}
            out.append(LongSeries(metric="node_cpu_seconds_total", labels=labels, values=hourly_rate(cores, SINCE)))
    return out


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    series = [*counters("10.0.0.1", None), *counters("10.0.0.2", 0.5), *counters("10.9.9.9", 0.95)]

    def fill(data: Path) -> None:
        fill_days(data, series, days=(TODAY - 1, TODAY), until=NOW)

    # so few samples that hours of all nodes can't be computed at once
    with prometheus_server([], fill=fill, flags=["--query.max-samples=700"]) as running:
        yield running


@pytest.fixture
def nodes() -> Nodes:
    found = a_cluster({"one": ["10.0.0.1"], "two": ["10.0.0.2"]}, cpu=1000.0 * CPUS).nodes
    found.created[:] = 0.0
    return found


def read(server: PrometheusServer, nodes: Nodes, query: str | None, *, hours: float = 3.0) -> SloSamples:
    """From an hour before `one` is hot."""
    standard = HotNodeSlo.model_validate({"query": query})
    with closing(PrometheusSlo(a_source(server.url), standard)) as reader:
        return reader.read(nodes, start=HOT_FROM - 3600, end=HOT_FROM + (hours - 1) * 3600, step=60.0)


@pytest.mark.parametrize("query", [None, PROMQL])
def test_the_hour_in_which_a_node_was_hot_is_seen(server: PrometheusServer, nodes: Nodes, query: str | None) -> None:
    found = read(server, nodes, query)
    # a rate's window and the samples around a change lie on both sides of it
    steady = np.abs((found.times - HOT_FROM + 1800) % 3600 - 1800) > 900
    np.testing.assert_allclose(found.shares[steady, 0], busy_share(found.times)[steady], rtol=1e-3)
    np.testing.assert_allclose(found.shares[:, 1], 0.5, rtol=1e-3)
    assert steady.sum() > 60
    assert found.partial == ()


def test_what_lies_before_all_samples_is_not_known(server: PrometheusServer, nodes: Nodes) -> None:
    with closing(PrometheusSlo(a_source(server.url), HotNodeSlo())) as reader:
        found = reader.read(nodes, start=SINCE - 7200, end=SINCE - 3600, step=60.0)
    assert np.isnan(found.shares).all()


def test_what_is_too_much_for_this_server_at_once_is_read_all_the_same(server: PrometheusServer, nodes: Nodes) -> None:
    at_once = Query(field="whole", promql=PROMQL)
    with closing(PrometheusClient(a_source(server.url).prometheus)) as client, pytest.raises(TooMuchError):  # type: ignore[arg-type]
        client.query_range(at_once, start=HOT_FROM - 3600, end=HOT_FROM + 7200, step=60.0)
    assert np.isfinite(read(server, nodes, PROMQL).shares).all()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sum by (node", "Prometheus at .* refuses it: .*parse error"),
        ("100 * " + PROMQL, "answers .* times the capacity of .*: expected a share between 0 and 1, not percent"),
    ],
)
def test_a_query_that_answers_no_shares_is_named(
    server: PrometheusServer, nodes: Nodes, query: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^effect\.hotNodeSLO\.query: {message}"):
        read(server, nodes, query)


def test_a_number_that_speaks_of_no_node_is_reported(server: PrometheusServer, nodes: Nodes) -> None:
    (message,) = read(server, nodes, "scalar(vector(1))").partial
    assert message.startswith("effect.hotNodeSLO.query: none of 1 series names a node of this cluster")
