"""`rebalancer forecast` on the lab, whose Prometheus remembers eight days."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.scenarios import HOT, lab_stage
from tests.programs.cli import Result, rebalancer, write_policy


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

    shown = forecast("--node", HOT, "--explain")
    assert shown.code == 0, shown.err
    assert "will be hot" in shown.out
    assert "P95 x WEIGHT" in shown.out
    assert not (tmp_path / "rebalancer.db").exists()


def test_a_node_that_is_not_there_is_one_line(forecast: Callable[..., Result]) -> None:
    result = forecast("--node", "nowhere")
    assert result.code == 4
    assert "--node nowhere: expected a node of the cluster" in result.error
