"""Interference in the lab: the noisy pod leaves, its neighbours stop waiting, and nothing goes to and fro."""

from pathlib import Path
from typing import Any

from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, service

CYCLES, FEWER_CYCLES = 50, 20
NOISY = {"base": 6.0, "burst_cores": 8.0, "burst_share": 0.5}
"""With it a busy machine of 16 cores is crowded half of the time, an idle one hardly."""
POLICY: dict[str, Any] = {"strategies": [{"name": "Interference"}]}


def waiting(stage: Stage) -> dict[str, float]:
    """Node -> share of time in which some task waits, by the lab's own model."""
    found = stage.lab.contention.window_mean(stage.lab.clock.now(), window_seconds=60.0)
    return {machine.name: float(found.nodes[row]) for row, machine in enumerate(found.columns.machines)}


def neighbours(noisy: dict[str, float], **fields: Any) -> Any:
    """`a` has four modest pods and a noisy one, whose twin runs alone on `twin`; `b` has some work, `c` little."""
    machines = [a_machine(name) for name in ("a", "b", "c", "twin")]
    services = [
        service("batch", {"a": 1, "twin": 1}, cpu=noisy, cpu_request="1", **fields),
        service("web", {"a": 4}, cpu=1.0, cpu_request="1500m"),
        service("mail", {"b": 5, "c": 1}, cpu=1.0, cpu_request="1"),
    ]
    return a_scenario(machines, *services)


def test_the_noisy_pod_leaves_and_nothing_moves_again(tmp_path: Path) -> None:
    with a_stage(neighbours(NOISY), tmp_path, **POLICY) as stage:
        assert waiting(stage)["a"] > 0.3
        stage.turns(CYCLES)
        (moved,) = stage.log.moves
        # the scheduler takes the emptiest by requests; both others would do
        assert (moved.service, moved.source) == ("batch", "a")
        assert moved.target in ("b", "c")
        assert max(waiting(stage).values()) < 0.3
        finding = next(each for report in stage.reports for each, node in report.findings if node == "a")
        assert "shop/batch" in finding.reason


def test_a_pod_that_makes_every_machine_wait_comes_to_rest(tmp_path: Path) -> None:
    """Its bursts are too much for any machine: it moves as long as that is better for its neighbours, and no longer."""
    with a_stage(neighbours(NOISY | {"burst_cores": 60.0}), tmp_path, **POLICY) as stage:
        stage.turns(FEWER_CYCLES)
        done = stage.log.moves
        assert 1 <= len(done) <= 2
        assert {(each.service, each.source) for each in done} <= {("batch", "a"), ("batch", "b"), ("batch", "twin")}
        assert not any(each.target == "a" for each in done)
        assert [report.evictions for report in stage.reports[10:] if report.evictions] == []


def test_a_pod_that_its_own_limit_throttles_stays_and_so_do_its_neighbours(tmp_path: Path) -> None:
    with a_stage(neighbours(NOISY, cpu_limit="6"), tmp_path, **POLICY) as stage:
        assert waiting(stage)["a"] > 0.3
        stage.turns(5)
        assert stage.log.moves == []
