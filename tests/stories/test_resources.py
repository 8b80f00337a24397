"""Resources besides CPU in lives of clusters: memory, and one of the user's own."""

from pathlib import Path

from rebalancer.lab import Scenario
from tests.stories.scenarios.stage import (
    a_machine,
    a_scenario,
    a_stage,
    burner,
    codes,
    evicted,
    messages,
    moves,
    service,
)


def short_of_memory(**web: object) -> Scenario:
    """By CPU and by requests only `cold` takes what leaves `hot`; of its 16 GiB 15 are in use."""
    return a_scenario(
        [a_machine("hot", memory="16Gi"), a_machine("cold", memory="16Gi")],
        [
            burner("burner", "hot", 11.0, memory="1Gi"),
            burner("cache", "cold", 1.0, memory="13Gi"),
            service("web", {"hot": 2, "cold": 1}, memory="1Gi", **web),
        ],
    )


def test_19_3_a_landing_that_cpu_allows_and_memory_forbids_is_refused_with_both_figures(tmp_path: Path) -> None:
    with a_stage(short_of_memory(), tmp_path) as stage:
        report = stage.turn()
        assert evicted(stage.lab.log.entries()) == []
        assert codes(report, "web-") == {"NoNodeWithMemory"}
        (said,) = messages(report, "web-")
    assert "cold would keep 6.2% of its memory (1.0 of 16.0 GiB), at least 10.0% must stay available" in said


def test_19_3_what_a_policy_allows_may_fill_the_memory(tmp_path: Path) -> None:
    guards = {"minAge": "1m", "minMemoryAvailable": 5}
    with a_stage(short_of_memory(), tmp_path, guards=guards) as stage:
        stage.turn()
        stage.lab.clock.sleep(60)
        log = stage.lab.log.entries()
    assert [(each.service, each.target) for each in moves(log)] == [("web", "cold")]
