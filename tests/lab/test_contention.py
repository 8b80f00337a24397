"""Who waits in the lab: the stated model, in the Prometheus answers and on the page that a real one scrapes."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from rebalancer.lab import Lab, ScenarioError, node, scenario, workload
from rebalancer.lab.prometheus.promql import NotPlainError, parse_rate
from tests.lab.conftest import Client

Start = Callable[..., Lab]

NODE = "max by (instance) (rate(node_pressure_cpu_waiting_seconds_total[5m]))"
PODS = 'max by (pod) (rate(container_pressure_cpu_waiting_seconds_total{container!=""}[5m]))'
THROTTLED = """max by (pod) (rate(container_cpu_cfs_throttled_periods_total{container!=""}[5m])
  / rate(container_cpu_cfs_periods_total{container!=""}[5m]))"""
BURSTS = {"base": 4.0, "burst_cores": 16.0, "burst_share": 0.25}


def one_node(*workloads: Any) -> Any:
    nodes = [node("a", cpu=16, overhead_cores=0.0), node("b", cpu=16, overhead_cores=0.0)]
    return scenario(nodes=nodes, workloads=workloads, history_days=0.02)


def query(lab: Lab, text: str) -> dict[str, float]:
    answer = Client(lab.prometheus_url)(f"/api/v1/query?query={quote(text)}")
    assert answer.code == 200, answer.body
    rows = answer.body["data"]["result"]
    return {next(iter(row["metric"].values())).rsplit("-", 2)[0]: float(row["value"][1]) for row in rows}


def node_pressure(lab: Lab) -> float:
    return query(lab, NODE)["10.0.0.2:9100"]


@pytest.mark.parametrize(("cores", "pressure"), [(1.0, 0.0), (12.8, 0.0), (16.0, 0.5), (19.2, 1.0), (30.0, 1.0)])
def test_a_node_waits_the_more_the_more_is_wanted_of_it(start: Start, cores: float, pressure: float) -> None:
    lab = start(one_node(workload("web", place={"a": 1}, cpu=cores)), stepped=True)
    assert node_pressure(lab) == pytest.approx(pressure)
    assert query(lab, PODS) == pytest.approx({"web": pressure})
    assert query(lab, NODE)["10.0.0.3:9100"] == 0.0


def test_bursts_make_all_wait_and_do_not_show_in_the_mean(start: Start) -> None:
    noisy, web = workload("noisy", place={"a": 1}, cpu=BURSTS), workload("web", place={"a": 1}, cpu=2.0)
    lab = start(one_node(noisy, web), stepped=True)
    # 22 of 16 cores while it bursts, a quarter of the time
    assert node_pressure(lab) == pytest.approx(0.25)
    assert query(lab, PODS) == pytest.approx({"noisy": 0.25, "web": 0.25})
    assert lab.truth.node_cpu_share()["a"] == pytest.approx(6 / 16)


def test_bursts_of_several_come_at_different_times(start: Start) -> None:
    lab = start(one_node(workload("noisy", place={"a": 2}, cpu=BURSTS)), stepped=True)
    assert node_pressure(lab) == pytest.approx(1 - 0.75**2)


def test_bursts_that_the_node_can_hold_hurt_no_pod(start: Start) -> None:
    small = {"base": 4.0, "burst_cores": 4.0, "burst_share": 0.5}
    lab = start(one_node(workload("noisy", place={"a": 1}, cpu=small)), stepped=True)
    assert node_pressure(lab) == 0.0


def test_a_limit_throttles_the_pod_and_spares_the_others(start: Start) -> None:
    limited = workload("limited", place={"a": 1}, cpu=BURSTS, cpu_limit="8")
    lab = start(one_node(limited, workload("web", place={"a": 1}, cpu=2.0)), stepped=True)
    assert query(lab, THROTTLED) == pytest.approx({"limited": 0.25})
    assert query(lab, PODS) == pytest.approx({"limited": 0.25, "web": 0.0})
    # as on Linux: the waiting of throttled tasks is the node's, too
    assert node_pressure(lab) == pytest.approx(0.25)


def test_a_pod_that_left_takes_its_noise_along_within_the_window(start: Start) -> None:
    noisy, web = workload("noisy", place={"a": 1}, cpu=BURSTS), workload("web", place={"a": 1}, cpu=2.0)
    lab = start(one_node(noisy, web), stepped=True)
    lab.cluster.cordon("a")
    Client(lab.url).evict(lab.cluster.pods(workload="noisy")[0])
    lab.clock.sleep(150)
    assert 0.05 < node_pressure(lab) < 0.2
    lab.clock.sleep(300)
    assert node_pressure(lab) == 0.0


def test_the_page_counts_what_the_answers_say(start: Start) -> None:
    limited = workload("limited", place={"b": 1}, cpu=8.0, cpu_limit="8")
    lab = start(one_node(workload("noisy", place={"a": 1}, cpu=BURSTS), limited), stepped=True)

    def counters() -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", Client(lab.url)("/metrics").body, re.MULTILINE):
            if "waiting" in name or "cfs" in name:
                found[name, labels] = float(value)
        return found

    before = counters()
    lab.clock.sleep(100)
    grown = {key: value - before[key] for key, value in counters().items()}
    nodes = {labels: value for (name, labels), value in grown.items() if name.startswith("node_pressure")}
    assert sorted(nodes.values()) == pytest.approx([25.0, 50.0])
    limits = {(name, "container=" in labels): value for (name, labels), value in grown.items() if "limited" in labels}
    assert limits == pytest.approx(
        {
            # the whole pod, and its container
            ("container_pressure_cpu_waiting_seconds_total", False): 50.0,
            ("container_pressure_cpu_waiting_seconds_total", True): 50.0,
            ("container_cpu_cfs_periods_total", True): 1000.0,
            ("container_cpu_cfs_throttled_periods_total", True): 500.0,
        }
    )
    assert not any("cfs" in name and 'pod="noisy' in labels for name, labels in grown)


def test_faults_of_a_node_are_its_pressures_too(start: Start) -> None:
    lab = start(one_node(workload("web", place={"a": 1, "b": 1}, cpu=1.0)), stepped=True)
    lab.faults.set(missing=["a"], nan=["b"])
    found = query(lab, NODE)
    assert list(found) == ["10.0.0.3:9100"]
    assert found["10.0.0.3:9100"] != found["10.0.0.3:9100"]


@pytest.mark.parametrize(
    "text",
    [
        "max by (pod) (rate(a[5m]) + rate(b[5m]))",
        "max by (pod) (rate(a[5m]) / rate(b[1m]))",
        "max by (pod) (irate(a[5m]))",
        "max by (pod) (a)",
    ],
)
def test_other_queries_of_rates_are_refused(text: str) -> None:
    with pytest.raises(NotPlainError):
        parse_rate(text)


def test_the_rate_of_another_counter_is_refused_with_its_name(start: Start) -> None:
    lab = start(one_node(), stepped=True)
    answer = Client(lab.prometheus_url)(f"/api/v1/query?query={quote('max by (a) (rate(node_cpu_seconds_total[5m]))')}")
    assert (answer.code, answer.body["errorType"]) == (400, "bad_data")
    assert "node_cpu_seconds_total" in answer.body["error"]


def test_bursts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ScenarioError, match="burst_share"):
        workload("web", cpu={"burst_share": 1.5})
