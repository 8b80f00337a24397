"""A daemon that has days to look back on: a node that is cool now is relieved ahead of its peak, and what was expected
is written down before that."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from rebalancer.lab import Lab, node, scenario, workload
from tests.e2e.servers import DaemonProcess, daemon, evicted, until
from tests.programs.cli import policy_for

MORNING = {"base": 0.62, "amplitude": 0.9, "peak_hour": 12.0}
"""1.18 cores at twelve, a tenth of it in the night. It is six o'clock in the lab."""
POOL = {"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 65, "low": 50}}
SAFETY = {"cooldowns": dict.fromkeys(("node", "service", "serviceNode", "poolAfterScaleUp"), "0s")}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    nodes = [node(f"node-{number}", cpu=16, overhead_cores=0.3) for number in range(1, 6)]
    usual = {"namespace": "shop", "cpu_request": "500m", "memory_request": "256Mi"}
    busy = [workload(name, place={"node-1": 6}, cpu=MORNING, **usual) for name in ("busy", "eager")]
    with Lab.start(scenario(nodes=nodes, workloads=busy, rate_window_seconds=60.0, anchor_hour=6.0)) as started:
        yield started


@pytest.fixture(scope="module")
def running(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("forecast")
    usage = policy_for(lab.prometheus_url)["usage"] | {"rateWindow": "1m"}
    # so early that the first look can't wait for the second
    forecast = {"mode": "Act", "interval": "1h", "leadTime": "6h"}
    policy = policy_for(lab.prometheus_url, pools=[POOL], usage=usage, forecast=forecast, safety=SAFETY)
    history = {"REBALANCER_HISTORY_DIR": str(folder / "history")}
    with daemon(folder, policy, lab.write_kubeconfig(folder / "config"), env=history) as started:
        yield started


def rows(running: DaemonProcess, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(running.log_file.parent / "rebalancer.db")) as connection:
        return connection.execute(query).fetchall()


def test_a_node_that_is_cool_now_is_relieved_ahead_of_its_peak(lab: Lab, running: DaemonProcess) -> None:
    assert lab.truth.node_cpu_share()["node-1"] < 0.6
    until(lambda: evicted(lab, "node-1"), running.tail)
    (looked, *_) = until(lambda: running.events("forecast run"), running.tail)
    assert (looked["nodes"], looked["hot"], looked["due"]) == (5, 1, ["node-1"])
    (line, *_) = running.events("peak expected")
    assert line["node"] == "node-1"
    assert "to be relieved" in line["why"] or "late" in line["why"]
    until(lambda: any(each["trigger"] == "forecast" for each in running.events("cycle")), running.tail)
    for each in until(lambda: running.events("eviction"), running.tail):
        assert "expected at" in each["reason"]


def test_it_is_written_down_before_it_is_acted_on(lab: Lab, running: DaemonProcess) -> None:
    until(lambda: evicted(lab, "node-1"), running.tail)
    assert rows(running, "SELECT count(*) FROM forecasts WHERE kind = 'daily'") == [(5,)]
    ((node_name, before),) = rows(
        running,
        "SELECT node, made_at < (SELECT min(planned_at) FROM evictions) FROM forecasts WHERE kind = 'ahead'",
    )
    assert (node_name, before) == ("node-1", 1)


def test_the_forecasts_of_a_pool_wait_for_their_outcomes(lab: Lab, running: DaemonProcess) -> None:
    until(lambda: running.events("forecast run"), running.tail)
    kept = "SELECT pool, evaluated_at, length(data) > 0 FROM forecast_outcomes ORDER BY pool"
    assert rows(running, kept) == [("all", None, 1), ("memory\x1fall", None, 1)]


def test_metrics_show_what_is_expected(lab: Lab, running: DaemonProcess) -> None:
    until(lambda: running.metric("rebalancer_forecast_nodes", state="known") == 5, running.tail)
    assert running.metric("rebalancer_forecast_nodes", state="hot") == 1
    assert running.metric("rebalancer_forecast_duration_seconds_count") >= 1
    assert running.metric("rebalancer_forecast_last_timestamp_seconds") > lab.clock.started_at
