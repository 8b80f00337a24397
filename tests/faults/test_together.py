"""Calls of a plan that go together under faults. `make soak` runs many seeds."""

from pathlib import Path

import pytest

from tests.faults.scenarios.together import calls_together


@pytest.mark.parametrize("seed", [1, 2])
def test_calls_that_go_together_under_faults_are_reserved_limited_and_recorded(seed: int, tmp_path: Path) -> None:
    faults = calls_together(tmp_path, seed=seed)
    assert faults.wrong == []
    assert faults.counts["evictions"] > 0
    assert faults.counts["most calls together"] > 1
