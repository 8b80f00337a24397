"""`rebalancer forecast` on the lab, whose Prometheus remembers eight days."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.lab.loads.cpu import MemoryModel
from tests.e2e.scenarios import HOT, lab_stage
from tests.programs.cli import Result, policy_for, rebalancer, write_policy


@pytest.fixture
def forecast(tmp_path: Path) -> Iterator[Callable[..., Result]]:
    with lab_stage(tmp_path) as stage:
        policy = write_policy(tmp_path, stage.policy)

        def run(*more: str) -> Result:
            return rebalancer("forecast", "-f", policy, "--kubeconfig", stage.kubeconfig, *more, cwd=tmp_path)

        yield run


def test_the_hot_node_is_expected_to_be_hot_and_every_number_of_it_is_shown(
    forecast: Callable[..., Result], tmp_path: Path
) -> None:
    result = forecast("-o", "json")
    assert result.code == 0, result.err
    document = result.document
    assert document["schemaVersion"] == "2"
    assert [each["node"] for each in document["nodes"] if each["hot"]] == [HOT]
    first = document["nodes"][0]
    assert first["node"] == HOT
    assert len(first["trajectoryMillicores"]) == 288
    days = [each for each in first["components"]["days"] if each["p95Millicores"] is not None]
    assert sum(each["p95Millicores"] * each["weight"] for each in days) == pytest.approx(
        first["components"]["weightedP95Millicores"], rel=1e-3
    )
    assert any((tmp_path / "rebalancer-history").rglob("*"))
    (memory,) = document["resources"]
    assert (memory["resource"], memory["unit"]) == ("memory", "MiB")
    assert {each["node"] for each in memory["nodes"]} == {each["node"] for each in document["nodes"]}

    shown = forecast("--node", HOT, "--explain")
    assert shown.code == 0, shown.err
    assert "will be hot" in shown.out
    assert "P95 x WEIGHT" in shown.out
    assert not (tmp_path / "rebalancer.db").exists()


def test_a_node_that_is_not_there_is_one_line(forecast: Callable[..., Result]) -> None:
    result = forecast("--node", "nowhere")
    assert result.code == 4
    assert "node nowhere: not found; expected one of node-1" in result.error


def test_leak_is_in_the_forecast_the_plan_and_the_explanation(tmp_path: Path) -> None:
    """800 MiB after six hours of 100 MiB each; the limit of 1000 MiB is two hours away."""
    mib = 2.0**20
    leaky = MemoryModel(base_bytes=200 * mib, growth_bytes_per_hour=100 * mib)
    cluster = scenario(
        nodes=[node("a", memory="16Gi"), node("b", memory="16Gi")],
        workloads=[
            workload("leaky", namespace="shop", place={"a": 1}, memory=leaky, memory_limit="1000Mi", age_seconds=21600),
            workload("web", namespace="shop", place={"b": 2}, memory="500Mi"),
        ],
    )
    with Lab.start(cluster) as lab:
        config = lab.write_kubeconfig(tmp_path / "config")
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, forecast={"mode": "Act"}))

        def call(*arguments: str) -> Result:
            result = rebalancer(*arguments, "-f", policy, "--kubeconfig", config, cwd=tmp_path)
            assert result.code == 0, result.err
            return result

        (leak,) = call("forecast", "-o", "json").document["memoryLeaks"]
        shown = call("forecast").out
        elsewhere = call("forecast", "--node", "b", "-o", "json").document
        (note,) = (each for each in call("plan", "-o", "json").document["cycle"]["notes"] if "leaks memory" in each)
        checks = call("explain", "pod", leak["pod"], "-o", "json").document["checks"]
    hours = (datetime.fromisoformat(leak["killAt"]).timestamp() - lab.clock.started_at) / 3600
    assert hours == pytest.approx(2.0, abs=0.2)
    assert leak["killFrom"] <= leak["killAt"] <= leak["killUntil"]
    assert (leak["service"], leak["node"], leak["limitMebibytes"]) == ("shop/leaky", "a", 1000.0)
    assert leak["mebibytesPerHour"] == pytest.approx(100, rel=0.05)
    assert "Memory leaks" in shown
    assert "1000 MiB" in shown
    assert elsewhere["memoryLeaks"] == []
    assert note.startswith(f"1 pod leaks memory, {leak['pod']} on a: it grows by ")
    assert "its limit of 1000 MiB is reached at 20" in note
    assert [each["message"].startswith("it grows by") for each in checks if each["name"] == "memory leak"] == [True]
