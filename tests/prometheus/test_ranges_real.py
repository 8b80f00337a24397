"""Eight days of three hundred pods in a real Prometheus, read back to the digit."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock
from rebalancer.model.notation.arrays import Floats
from rebalancer.prometheus.history.ranges import PrometheusHistory
from rebalancer.store.blocks import BlockStore
from tests.prometheus.builders import NoProgress, a_cluster, a_source
from tests.prometheus.fakes import Clock
from tests.real.builders.prometheus_days import LongSeries, fill_days, hourly_rate
from tests.real.servers.prometheus import PrometheusServer, prometheus_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PODS, NODES = 300, 20
NOW = time.time()
UNTIL = NOW + 3600.0
"""The last sample: other tests may run for long between this line and the tests below."""
TODAY = int(NOW // DAY_SECONDS)
SINCE = (TODAY - 8) * DAY_SECONDS
YESTERDAY = TODAY - 1
GAP_DAY, SHORT_DAYS = TODAY - 3, 2
GAP = (120, 150)
"""Slots of GAP_DAY in which nothing was scraped."""


def cores_of(index: int) -> Any:
    return lambda hours: 0.05 + 0.01 * (index % 7) + 0.02 * np.sin(hours / 24 * 2 * np.pi + index) ** 2


def scraped(values: Any) -> Any:
    """Without the samples of the gap."""
    start, end = (GAP_DAY * DAY_SECONDS + slot * STEP_SECONDS for slot in GAP)

    def inner(times: Floats) -> Floats:
        return np.where((times >= start) & (times < end), np.nan, values(times))

    return inner


def between(start: float, end: float, values: Any) -> Any:
    return lambda times: np.where((times >= start) & (times < end), values(times), np.nan)


def container(pod: str, node: str, values: Any, *, container: str = "app", **labels: str) -> LongSeries:
    found = {"namespace": f"n{len(pod) % 3}", "pod": pod, "node": node, "container": container, **labels}
    return LongSeries(metric="container_cpu_usage_seconds_total", labels=found, values=scraped(values))


def stack() -> list[LongSeries]:
    out = []
    for index in range(PODS):
        out.append(container(f"p-{index}", f"node-{index % NODES}", hourly_rate(cores_of(index), SINCE)))
    noon = YESTERDAY * DAY_SECONDS + 43_200
    flat = hourly_rate(lambda hours: np.full(len(hours), 0.1), SINCE)
    twice = hourly_rate(lambda hours: np.full(len(hours), 0.2), SINCE)
    out += [
        # cAdvisor's view of the whole pod, and the same container scraped by a second job
        container("p-0", "node-0", hourly_rate(lambda hours: cores_of(0)(hours) + 5, SINCE), container=""),
        container("p-1", "node-1", hourly_rate(cores_of(1), SINCE), job="kubelet-2"),
        container(
            "reset", "node-0", lambda times: flat(times) - np.where(times >= noon, flat(times[:1] * 0 + noon), 0)
        ),
        container("moved", "node-0", between(SINCE, noon, flat)),
        container("moved", "node-1", between(noon, UNTIL, twice)),
        container("moved", "node-of-old", between(SINCE, noon - 7200, twice)),
        container("was-there", "node-of-old", between(SINCE, YESTERDAY * DAY_SECONDS, flat)),
        container("short", "node-gone", between(noon + 600, noon + 4000, flat)),
    ]
    for index in range(NODES):
        for mode, share in (("idle", 3.0), ("user", 0.6), ("system", 0.3), ("iowait", 0.1)):
            labels = {"instance": f"10.0.0.{index}:9100", "cpu": "0", "mode": mode}
            rate = hourly_rate(lambda hours, share=share: np.full(len(hours), share), SINCE)
            out.append(LongSeries(metric="node_cpu_seconds_total", labels=labels, values=scraped(rate)))
        gauge = between((TODAY - SHORT_DAYS) * DAY_SECONDS, UNTIL, lambda times: np.full(len(times), 0.5))
        out.append(LongSeries(metric="node:cpu:share", labels={"node": f"node-{index}"}, values=gauge))
    rule = {"namespace": "n0", "pod": 'p"\\.*', "node": "node-0"}
    out.append(
        LongSeries(metric="pod:cpu", labels={**rule, "pod": "p.*"}, values=lambda times: np.full(len(times), 0.3))
    )
    return out


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    series = stack()

    def fill(data: Path) -> None:
        fill_days(data, series, days=range(TODAY - 8, int(UNTIL // DAY_SECONDS) + 1), until=UNTIL)

    # so few samples that all the pods of a day can't be computed at once
    with prometheus_server([], fill=fill, flags=["--query.max-samples=60000"]) as running:
        yield running


@pytest.fixture
def snapshot() -> ClusterSnapshot:
    found = a_cluster({f"node-{index}": [f"10.0.0.{index}"] for index in range(NODES)}, cpu=4000)
    return replace(found, nodes=replace(found.nodes, created=np.zeros(NODES)))


@contextmanager
def history_of(server: PrometheusServer, **fields: Any) -> Iterator[PrometheusHistory]:
    history = PrometheusHistory(a_source(server.url, **fields), clock=Clock(NOW), progress=NoProgress())
    try:
        yield history
    finally:
        history.close()


def day_of(history: PrometheusHistory, day: int, snapshot: ClusterSnapshot, *, first: int = 0, end: int = SLOTS) -> Any:
    pull = history.pull(day, first=first, end=end, snapshot=snapshot)
    assert pull.advance()
    return pull.onto(None)


def pod(block: DayBlock, name: str) -> Any:
    return block.pod_millicores[block.pod_row[f"n{len(name) % 3}/{name}"]]


def inside_hours(day: int) -> Any:
    """Slots whose five minutes, and the samples around them, lie within one hour."""
    slot = np.arange(SLOTS)
    return (slot % 12 >= 1) & (slot % 12 <= 10)


@pytest.fixture
def yesterday(server: PrometheusServer, snapshot: ClusterSnapshot) -> Iterator[DayBlock]:
    with history_of(server) as history:
        yield day_of(history, YESTERDAY, snapshot)


def test_every_pod_of_a_day_is_read_to_the_digit(yesterday: DayBlock) -> None:
    fine = inside_hours(YESTERDAY)
    hours = ((YESTERDAY * DAY_SECONDS - SINCE) // 3600) + np.arange(SLOTS) // 12
    for index in range(PODS):
        wanted = cores_of(index)(hours.astype(float)) * 1000
        np.testing.assert_allclose(pod(yesterday, f"p-{index}")[fine], wanted[fine], rtol=2e-3, err_msg=f"p-{index}")
    assert yesterday.notes == ()


def test_nodes_are_what_they_used_without_waiting_for_disks(yesterday: DayBlock) -> None:
    assert set(yesterday.nodes) == {f"node-{index}" for index in range(NODES)}
    np.testing.assert_allclose(yesterday.node_millicores, 900, rtol=1e-3)


def test_a_counter_that_was_reset_leaves_no_spike_and_no_hole(yesterday: DayBlock) -> None:
    values = pod(yesterday, "reset")
    assert np.isfinite(values).all()
    assert values.max() < 110
    np.testing.assert_allclose(values[:143], 100, rtol=2e-3)
    np.testing.assert_allclose(values[146:], 100, rtol=2e-3)


def test_a_pod_that_moved_goes_on_from_where_it_was(yesterday: DayBlock) -> None:
    values = pod(yesterday, "moved")
    np.testing.assert_allclose(values[:143], 100, rtol=2e-3)
    np.testing.assert_allclose(values[147:], 200, rtol=2e-3)


def test_a_pod_that_no_count_has_seen_is_read_all_the_same(yesterday: DayBlock) -> None:
    values = pod(yesterday, "short")
    assert 9 <= np.isfinite(values).sum() <= 13
    np.testing.assert_allclose(values[np.isfinite(values)][2:-2], 100, rtol=2e-3)
    assert f"n{len('was-there') % 3}/was-there" not in yesterday.pods


def test_a_gap_stays_unknown_and_is_reported(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    with history_of(server) as history:
        block = day_of(history, GAP_DAY, snapshot)
    (note,) = block.notes
    day = time.strftime("%Y-%m-%d", time.gmtime(GAP_DAY * DAY_SECONDS))
    assert note.startswith(f"no samples from {day} 10:0")
    known = np.isfinite(block.node_millicores).all(axis=0)
    assert not known[GAP[0] + 1 : GAP[1]].any()
    assert known[: GAP[0]].all()
    assert known[GAP[1] + 1 :].all()


def test_parts_of_a_day_are_the_day(server: PrometheusServer, snapshot: ClusterSnapshot) -> None:
    with history_of(server) as history:
        whole = day_of(history, YESTERDAY, snapshot)
        parts = None
        for first, end in ((0, 100), (100, 101), (101, SLOTS)):
            pull = history.pull(YESTERDAY, first=first, end=end, snapshot=snapshot)
            assert pull.advance()
            parts = pull.onto(parts)
    assert parts is not None
    assert set(parts.pods) == set(whole.pods)
    for name in whole.pods:
        np.testing.assert_array_equal(
            parts.pod_millicores[parts.pod_row[name]], whole.pod_millicores[whole.pod_row[name]]
        )


def test_what_is_too_much_for_this_server_is_asked_in_smaller_pieces(
    server: PrometheusServer, snapshot: ClusterSnapshot
) -> None:
    with history_of(server) as history:
        block = day_of(history, YESTERDAY, snapshot)
        assert history.slots_at_most < SLOTS
    assert np.isfinite(pod(block, "p-7")).all()


def test_an_expression_in_pieces_of_time_is_the_default_query_in_pieces_of_nodes(
    server: PrometheusServer, snapshot: ClusterSnapshot, yesterday: DayBlock
) -> None:
    promql = 'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container="app",pod=~"p-.*",job=""}[5m]))'
    with history_of(server, podCPU={"query": promql}) as history:
        block = day_of(history, YESTERDAY, snapshot)
    assert len(block.pods) == PODS
    for index in (2, 150, 299):
        np.testing.assert_allclose(pod(block, f"p-{index}"), pod(yesterday, f"p-{index}"), rtol=1e-6)


def test_recording_rules_with_two_days_of_retention(
    server: PrometheusServer, snapshot: ClusterSnapshot, tmp_path: Path
) -> None:
    own = {"query": "node:cpu:share", "freshness": "timestamp(node_cpu_seconds_total)", "label": "node"}
    with history_of(server, nodeCPU=own, podCPU={"query": 'pod:cpu{pod=~"p.*"}'}) as source:
        assert day_of(source, TODAY - 12, snapshot) is None
        block = day_of(source, TODAY - 1, snapshot)
        np.testing.assert_allclose(block.node_millicores, 2000)
        np.testing.assert_allclose(block.pod_millicores, 300)
        assert block.pods == ("n0/p.*",)


def test_the_keeper_fills_eight_days_and_then_asks_for_the_last_steps_only(
    server: PrometheusServer, snapshot: ClusterSnapshot, tmp_path: Path
) -> None:
    clock = Clock(NOW - 1800)
    source = PrometheusHistory(a_source(server.url), clock=clock, progress=NoProgress())
    keeper = HistoryKeeper(
        source=source, blocks=BlockStore(tmp_path, cluster="one", source=source.identity), clock=clock
    )
    history = keeper.update(snapshot)
    # the real server's clock is half an hour ahead of this one
    assert any(note.startswith("Prometheus' clock is") for note in history.notes), history.notes
    assert len(history.days) == 0
    clock.at = time.time()
    history = keeper.update(snapshot)
    today = int(clock.at // DAY_SECONDS)
    assert [block.day for block in history.days][:8] == list(range(today - 8, today))
    assert all(block.complete for block in history.days[:8])
    assert [note for note in history.notes if "no samples" not in note] == []
    np.testing.assert_allclose(history.days[1].node_millicores[:, 20:], 900, rtol=1e-3)
    source.close()
