"""`rebalancer backtest` as people run it."""

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.e2e.cli import rebalancer

KEYS = {"predictor", "simple", "mae", "under", "over", "pinball90", "hotRecall", "hotPrecision", "coverage"}


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
    assert document["schemaVersion"] == "1"
    assert document["default"] == "combined"
    rows = {row["predictor"]: row for row in document["predictors"]}
    assert all(row.keys() >= KEYS for row in rows.values())
    assert {name for name, row in rows.items() if row["simple"]} == {"lastDay", "max", "decayingHistogram"}
    assert {"combined", "weightedP95", "slotPercentile", "recentHours", "holtWinters", "stl"} <= rows.keys()
    assert document["traces"] == ["one", "two"]
    assert {each["pool"] for each in document["proposals"]} == {"small", "large"}
    picture = ElementTree.parse(plot).getroot()
    assert picture.tag.endswith("svg")
    assert "combined" in "".join(picture.itertext())


def test_the_table_tells_the_aims_and_what_to_put_in_the_policy(traces: Path) -> None:
    result = rebalancer("backtest", env={"REBALANCER_TRACES": str(traces)})
    assert result.code == 0, result.err
    assert "combined (default)" in result.out
    assert "lastDay (simple)" in result.out
    assert "Aims of the default" in result.out
    assert "forecast.days.halfLife" in result.out
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
