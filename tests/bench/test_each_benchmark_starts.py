"""Every benchmark runs at a tiny size and prints figures. The aims are for the full size."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import BENCHES

ROOT = Path(__file__).parents[2]
STEP_SECONDS, STEPS_A_DAY, DAYS = 300, 288, 13

TINY: dict[str, Sequence[str]] = {
    "backtest": ["--no-leave-one-out"],
    "cache": ["--pods", "600", "--nodes", "20", "--events", "300"],
    "churn": ["--events", "600", "--pods", "100"],
    "coefficients": [],
    "commands": ["--turns", "1", "--only", "limits"],
    "daemon": ["--nodes", "20", "--alerts", "1", "--cycles", "1"],
    "day": ["--hours", "0.25", "--workers", "1"],
    "evictions": ["--hot", "2"],
    "forecast": ["--nodes", "6"],
    "gain": ["--seed", "1", "--nodes", "4", "--days", "0.125"],
    "history": ["--pods", "20", "--nodes", "3", "--stored", "60"],
    "journal": ["--nodes", "300", "--entries", "20"],
    "landing": ["--nodes", "50", "--moves", "10", "--pending", "100"],
    "ledger": ["--seconds", "0.2"],
    "list": ["--pods", "60", "--nodes", "4", "--rounds", "1"],
    "pages": ["--nodes", "20", "--turns", "1", "--pause", "0", "--only", "overview", "--only", "node"],
    "peer": ["--pods", "60", "--nodes", "4", "--rounds", "1"],
    "plan": ["--family", "least", "--family", "cost", "--seeds", "1", "--workers", "1", "--nodes", "60"],
    "remaining": ["--seed", "1", "--nodes", "4", "--days", "0.25"],
    "replay": ["--nodes", "10"],
    "report": ["--nodes", "2", "--evictions", "3", "--hot", "1", "--turns", "1"],
    "room": ["--clusters", "1", "--nodes", "12"],
    "scale": ["--sizes", "20,40"],
    "spread": ["--nodes", "6"],
    "strategies": ["--nodes", "40"],
    "try": ["--nodes", "6", "--days", "0.25", "--workers", "1"],
    "value": ["--seed", "1", "--nodes", "4", "--days", "0.25"],
    "week": ["--seed", "1", "--nodes", "4", "--days", "0.25"],
}
"""Name -> options. Aims are missed or met by chance at such a size: 0 and 1 are both the end of a run."""

TEXT = {"backtest", "coefficients"}
"""They print tables."""


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder of recorded CPU, as `REBALANCER_TRACES` names them."""
    hours = np.arange(DAYS * STEPS_A_DAY) * STEP_SECONDS / 3_600
    random = np.random.default_rng(1)
    for number in range(4):
        values = 40 + 25 * np.sin((hours + number) * 2 * np.pi / 24) + random.normal(0, 3, len(hours))
        times = np.datetime64("2026-03-02T00:00:00") + STEP_SECONDS * np.arange(len(hours)).astype("timedelta64[s]")
        rows = [f"{at},{value:.3f}" for at, value in zip(times, values, strict=True)]
        (tmp_path / f"trace-{number}.csv").write_text("timestamp,value\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_every_benchmark_has_a_tiny_size() -> None:
    assert TINY.keys() == BENCHES.keys()


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchmark_starts_and_prints_figures(name: str, traces: Path) -> None:
    env = {**os.environ, "REBALANCER_TRACES": str(traces)}
    command = [sys.executable, "-m", "bench", name, *TINY[name]]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert not re.search(rf"^{name}: \w+Error:", done.stderr, re.MULTILINE), done.stderr[-2000:]
    if not done.stdout and re.search(r"needs (PostgreSQL|KUBEBUILDER_ASSETS)", done.stderr):
        pytest.skip(done.stderr.strip())
    lines = done.stdout.splitlines()
    assert lines
    if name not in TEXT:
        figures = [json.loads(line) for line in lines]
        assert {each["bench"] for each in figures} == {name}
        assert all(isinstance(each["value"], int | float | None) for each in figures)
