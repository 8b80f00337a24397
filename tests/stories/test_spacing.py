"""Minimum spacing: a cycle waits it out between evictions, and goes on."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service


@pytest.mark.parametrize("scope", ["cluster", "pool", "global", "node"])
def test_a_cycle_waits_for_the_spacing_and_goes_on(scope: str, tmp_path: Path) -> None:
    def count(**limits: object) -> list[float]:
        cluster = a_scenario(
            ("hot", "cool", "free"),
            burner("burner", "hot", 6.0),
            *(service(f"web-{at}", {"hot": 2}, cpu=0.8) for at in range(6)),
        )
        folder = tmp_path / f"{len(limits)}"
        folder.mkdir()
        with a_stage(cluster, folder, limits=limits) as stage:
            stage.turn()
            return [each.at for each in stage.log.evicted]

    without = count()
    times = count(**{scope: {"spacing": "2s"}})
    assert len(times) == len(without) > 3
    assert min(later - earlier for earlier, later in pairwise(times)) >= 2.0
