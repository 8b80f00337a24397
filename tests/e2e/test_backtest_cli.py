"""`rebalancer backtest` as people run it: on traces, and on the lab's own past."""

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab, node, scenario, workload
from tests.programs.cli import Result, policy_for, rebalancer, write_policy

KEYS = {"predictor", "baseline", "mae", "under", "over", "pinball90", "hotRecall", "hotPrecision", "coverage"}


def write_trace(folder: Path, name: str, days: int, *, level: float) -> Path:
    lines = ["timestamp,value"]
    for step in range(days * 288 + 20):  # it begins 100 minutes before midnight
        minutes = step * 5 + 22 * 60 + 20
        day, rest = divmod(minutes, 1440)
        value = level * (1 + 0.5 * math.sin(step / 288 * 2 * math.pi)) + (step * 7919 % 13) / 5
        lines.append(f"2026-01-{day + 1:02d} {rest // 60:02d}:{rest % 60:02d}:00,{value:.3f}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_trace(folder, "one", 7, level=30)
    write_trace(folder, "two", 6, level=10)
    return folder


def test_the_document_compares_every_predictor_and_names_the_default(traces: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    result = rebalancer("backtest", "--traces", traces, "-o", "json", "--plot", plot)
    assert result.code == 0, result.err
    document = result.document
    assert document["schemaVersion"] == "2"
    assert document["default"] == "combined"
    rows = {row["predictor"]: row for row in document["predictors"]}
    assert all(row.keys() >= KEYS for row in rows.values())
    assert {name for name, row in rows.items() if row["baseline"]} == {"lastDay", "max", "decayingHistogram"}
    assert {"combined", "weightedP95", "slotPercentile", "recentHours"} <= rows.keys()
    assert document["traces"] == ["one", "two"]
    assert [each["pool"] for each in document["pools"]] == ["small", "large"]
    assert all(row.keys() >= KEYS for each in document["pools"] for row in each["predictors"])
    assert [each["pool"] for each in document["proposal"]["pools"]] == ["small", "large"]
    picture = ElementTree.parse(plot).getroot()
    assert picture.tag.endswith("svg")
    shown = "".join(picture.itertext())
    assert all(name in shown for name in rows)
    assert "forecast (up) against actual" in shown
    assert sum(each.tag.endswith("circle") for each in picture.iter()) == document["forecasts"]


def test_the_table_tells_the_aims_and_what_to_put_in_the_policy(traces: Path) -> None:
    result = rebalancer("backtest", env={"REBALANCER_TRACES": str(traces)}, cold=True)
    assert result.code == 0, result.err
    assert "combined (default)" in result.out
    assert "lastDay (baseline)" in result.out
    assert "Acceptance criteria of the default" in result.out
    assert "combined in each pool" in result.out
    assert "Day weights for nodes like pool small: keep what you have" in result.out
    assert result.err == ""


def test_a_folder_without_traces_is_one_line(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        result = rebalancer("backtest", "--traces", folder)
        assert result.code == 4
        assert str(folder) in result.error
        assert "expected a folder with CSV files" in result.error


def test_a_bad_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = write_trace(tmp_path, "one", 7, level=30)
    good = path.read_text()
    for bad, expected in (
        (good.replace("timestamp,value", "time,cpu", 1), "expected CSV with the columns timestamp,value"),
        (good + "soon,1\n", f"{path}:{len(good.splitlines()) + 1}: timestamp: expected a time"),
        (good + "2026-01-09 00:00:00,much\n", f"{path}:{len(good.splitlines()) + 1}: value: expected a number"),
        ("", "expected CSV with the columns timestamp,value"),
    ):
        path.write_text(bad)
        result = rebalancer("backtest", "--traces", tmp_path)
        assert result.code == 4
        assert expected in result.error


def test_traces_that_are_too_short_are_refused(tmp_path: Path) -> None:
    write_trace(tmp_path, "one", 3, level=30)
    result = rebalancer("backtest", "--traces", tmp_path)
    assert result.code == 4
    assert "at least 6 whole days, the longest has 3" in result.error


def test_a_plot_that_cannot_be_written_is_one_line(traces: Path, tmp_path: Path) -> None:
    result = rebalancer("backtest", "--traces", traces, "--plot", tmp_path / "none" / "plot.svg")
    assert result.code == 4
    assert "expected a file that can be written" in result.error


@pytest.fixture
def on_the_lab(tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """Two pools: three nodes that follow the day, n0 above 60% at its peak; three that don't."""
    curve = {"amplitude": 0.6, "noise": 0.1, "peak_hour": 10.0}
    nodes = [
        node(f"n{number}", cpu=8, pool="web" if number < 3 else "batch", overhead_cores=0.3) for number in range(6)
    ]
    workloads = [
        workload("shop", place={"n0": 4, "n1": 2, "n2": 2}, cpu={"base": 1.0, **curve}),
        workload("crunch", place={"n3": 2, "n4": 2, "n5": 1}, cpu={"base": 1.5, "noise": 0.2}),
    ]
    marks = {"high": 60, "target": 50, "low": 40}
    with Lab.start(scenario(nodes=nodes, workloads=workloads), speed=1.0) as lab:
        lab.write_kubeconfig(tmp_path / "kubeconfig")

        def run(*more: str | Path, **sections: Any) -> Result:
            pools = [
                {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": marks}
                for name in ("web", "batch")
            ]
            policy = write_policy(tmp_path, policy_for(lab.prometheus_url, pools=pools, **sections))
            return rebalancer("backtest", "-f", policy, "--kubeconfig", tmp_path / "kubeconfig", *more, cwd=tmp_path)

        yield run


def test_the_clusters_own_days_are_compared_pool_by_pool(on_the_lab: Callable[..., Result], tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    result = on_the_lab("--days", "15", "-o", "json", "--plot", plot)
    assert result.code == 0, result.err
    assert result.err == ""
    document = result.document
    assert document["schemaVersion"] == "2"
    assert document["default"] == "combined"
    rows = {row["predictor"]: row for row in document["predictors"]}
    assert all(row.keys() >= KEYS for row in rows.values())
    assert {"combined", "weightedP95", "slotPercentile", "recentHours", "holtWinters", "stl"} <= rows.keys()
    # the lab remembers eight days: four of them are scored, but for the one that a midnight closes just now
    assert document["forecasts"] + document["excludedNodeDays"] == 6 * 4
    assert document["forecasts"] >= 6 * 3
    assert (document["cluster"], document["days"]) == ("test", 15)
    assert any("Prometheus has nothing of 7 of 15 days" in note for note in document["notes"])
    web, batch = document["pools"]
    assert (web["pool"], batch["pool"]) == ("web", "batch")
    assert web["hotDays"] == web["forecasts"] / 3  # n0, every day
    assert batch["hotDays"] == 0
    default = next(row for row in web["predictors"] if row["predictor"] == "combined")
    assert default["hotRecall"] == 1.0
    assert default["mae"] < 0.05
    assert web["peakHourErrorHours"] < 3
    assert document["proposal"]["policy"] is None
    assert len(list((tmp_path / "rebalancer-history").rglob("*.day"))) == 9
    page = plot.read_text()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<svg" in page

    again = on_the_lab("--days", "6", forecast={"predictor": "weightedP95"})
    assert again.code == 0, again.err
    assert "weightedP95 (default)" in again.out
    assert "Day weights for pool web: keep what you have: 6 scored days are needed" in again.out


def test_a_history_that_is_too_short_is_one_line(on_the_lab: Callable[..., Result]) -> None:
    result = on_the_lab(usage={"source": "MetricsServer"})
    assert result.code == 3
    assert "0 of the last 15 days are closed, expected at least 5 for a backtest" in result.error


def test_a_prometheus_that_is_not_there_is_one_line(on_the_lab: Callable[..., Result]) -> None:
    gone = {**policy_for("http://127.0.0.1:1")["usage"]}
    result = on_the_lab(usage=gone)
    assert result.code == 3
    assert "127.0.0.1:1" in result.error
