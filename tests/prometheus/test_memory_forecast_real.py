"""Eight days of memory in a real Prometheus, as node_exporter and cAdvisor name it: read, forecast and judged."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cli.output.backtest_report import document, print_report
from rebalancer.cycle.context import NullProgress
from rebalancer.forecast import forecast
from rebalancer.forecast.backtest.own_days import replay
from rebalancer.forecast.series.resource import ForecastResource
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, MIB, STEP_SECONDS, History
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import GIB, a_policy
from tests.prometheus.builders import a_cluster
from tests.prometheus.fakes import Clock
from tests.real.builders.prometheus_days import LongSeries, fill_days
from tests.real.servers.prometheus import PrometheusServer, prometheus_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODES, PODS = 16, 6
"""Nodes, and pods of each."""
WHOLE, OWN = 32 * GIB, 1.5 * GIB
"""Of each node, and what its own processes use."""
NOW = time.time()
TODAY = int(NOW // DAY_SECONDS)
SINCE = (TODAY - 8) * DAY_SECONDS
OF_MEMORY = ForecastResource(name=MEMORY)


def working_set(number: int) -> Callable[[Floats], Floats]:
    """Bytes: a level, a day, a batch of twenty minutes at another size each day, and slow growth of some."""
    random = np.random.default_rng(number)
    level = random.uniform(0.5, 3.0) * GIB
    daily, growth = random.uniform(0.0, 0.3), random.choice([0.0, 0.0, 0.01])
    batch_at, batches = random.integers(0, 72) * 1200.0, level * random.gamma(2.0, 0.15, 12)

    def values(times: Floats) -> Floats:
        days = (times - SINCE) / DAY_SECONDS
        usual = level * (1.0 + daily * np.sin(2 * np.pi * days) + growth * days)
        inside = (times % DAY_SECONDS >= batch_at) & (times % DAY_SECONDS < batch_at + 1200.0)
        return usual + np.where(inside, batches[np.clip(days.astype(int), 0, 11)], 0.0)

    return values


def pods_of(node: int) -> range:
    return range(node * PODS, (node + 1) * PODS)


def in_use(node: int) -> Callable[[Floats], Floats]:
    return lambda times: OWN + np.sum([working_set(pod)(times) for pod in pods_of(node)], axis=0)


def stack() -> list[LongSeries]:
    out = []
    for node in range(NODES):
        instance = {"instance": f"10.0.0.{node}:9100", "job": "node-exporter"}
        used = in_use(node)
        whole = LongSeries(
            metric="node_memory_MemTotal_bytes", labels=instance, values=lambda times: np.full(len(times), WHOLE)
        )
        available = LongSeries(
            metric="node_memory_MemAvailable_bytes",
            labels=instance,
            values=lambda times, used=used: WHOLE - used(times),
        )
        out += [whole, available]
        for pod in pods_of(node):
            labels = {"namespace": "shop", "pod": f"db-{pod}", "node": f"node-{node}"}
            values = working_set(pod)
            for container, share in (("app", 0.8), ("sidecar", 0.2), ("", 1.0), ("POD", 0.001)):
                out.append(
                    LongSeries(
                        metric="container_memory_working_set_bytes",
                        labels={**labels, "container": container},
                        values=lambda times, values=values, share=share: share * values(times),
                    )
                )
    return out


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    def fill(data: Path) -> None:
        fill_days(data, stack(), days=range(TODAY - 8, TODAY + 1), until=NOW)

    with prometheus_server([], fill=fill) as running:
        yield running


@pytest.fixture(scope="module")
def snapshot() -> ClusterSnapshot:
    pods = {f"shop/db-{pod}": f"node-{node}" for node in range(NODES) for pod in pods_of(node)}
    found = a_cluster({f"node-{node}": [f"10.0.0.{node}"] for node in range(NODES)}, pods)
    nodes = replace(found.nodes, created=np.zeros(NODES), memory_capacity_bytes=np.full(NODES, float(WHOLE)))
    return replace(found, nodes=nodes)


@pytest.fixture(scope="module")
def history(server: PrometheusServer, snapshot: ClusterSnapshot, tmp_path_factory: pytest.TempPathFactory) -> History:
    policy = a_policy(usage={"prometheus": {"url": server.url}})
    settings = Settings(history_dir=str(tmp_path_factory.mktemp("history")))
    with history_keepers(policy, settings, progress=NullProgress(), clock=Clock(NOW)) as keepers:
        return keepers[MEMORY].update(snapshot)


def test_eight_days_of_memory_are_read_from_node_exporter_and_cadvisor(history: History) -> None:
    assert [block.day for block in history.days] == list(range(TODAY - 8, TODAY + 1))
    block = history.days[3]
    ends = block.day * DAY_SECONDS + (np.arange(20, 280) + 1) * float(STEP_SECONDS)
    read = block.pod_millicores[block.pod_row["shop/db-7"], 20:280]
    wanted = working_set(7)(ends) / MIB
    # a sample is up to 145 s old, so the edges of a batch differ
    assert np.mean(np.isclose(read, wanted, rtol=1e-2)) > 0.95
    node = block.node_millicores[block.node_row["node-1"], 20:280]
    assert np.mean(np.isclose(node, in_use(1)(ends) / MIB, rtol=1e-2)) > 0.9


def test_every_node_has_a_forecast_of_memory_over_what_its_pods_use(
    history: History, snapshot: ClusterSnapshot
) -> None:
    found = forecast(
        history,
        snapshot,
        policy=Forecast(),
        pool_of=np.zeros(NODES, dtype=np.int32),
        pools=["general"],
        now=NOW,
        resource=OF_MEMORY,
    )
    assert [each.days_used for each in found.nodes] == [8] * NODES
    hours = NOW + np.arange(0, 86_400, 300.0)
    highest = np.array([in_use(node)(hours).max() for node in range(NODES)]) / MIB
    upper = np.array([each.peak_millicores for each in found.nodes])
    assert np.mean(highest <= upper) >= 0.75
    assert (upper < 1.6 * highest).all()


def test_forecasts_of_memory_are_judged_by_the_same_backtest(history: History, snapshot: ClusterSnapshot) -> None:
    result = replay(
        history,
        snapshot,
        policy=Forecast(),
        pool_of=np.zeros(NODES, dtype=np.int32),
        highs={"general": 0.85},
        now=NOW,
        days=8,
        resource=OF_MEMORY,
    )
    print_report(Console(width=160), result, Forecast(), of_traces=False)
    default, best = result.score("combined"), result.best_simple
    print(f"loss at 0.95: {default.errors.pinball:.4f}, best baseline {best.predictor}: {best.errors.pinball:.4f}")
    assert result.total.forecasts == 4 * NODES
    assert 0.85 <= default.errors.coverage <= 1.0
    assert default.errors.pinball < 1.25 * min(best.errors.pinball, best.bare.pinball)
    shown = document(result, Forecast())
    assert shown["resource"] == MEMORY
    assert "pinball95" in shown["predictors"][0]
