"""The scheduler is another one than our model of it: predictions fail, limits and budgets hold."""

from collections import Counter
from pathlib import Path

from rebalancer.lab import CpuModel, Scenario
from tests.stories.readers import Log, most_in_any_window, service_of
from tests.stories.scenarios.stage import NO_COOLDOWNS, TURN_SECONDS, a_scenario, a_stage, codes, service

CYCLES = 30
NODES = tuple(f"node-{number}" for number in range(8))
SERVICES = tuple(f"s{number}" for number in range(8))
NODE_AT_MOST, CLUSTER_AT_MOST, SERVICE_AT_MOST = 2, 5, 2
NODE_WINDOW, CLUSTER_WINDOW, SERVICE_WINDOW = 600.0, 600.0, 1800.0
IN_FLIGHT, CLUSTER_IN_FLIGHT = 1, 3

LIMITS = {
    "cluster": {"inFlight": CLUSTER_IN_FLIGHT, "evictions": [{"max": CLUSTER_AT_MOST, "per": f"{CLUSTER_WINDOW:g}s"}]},
    "node": {"evictions": [{"max": NODE_AT_MOST, "per": f"{NODE_WINDOW:g}s"}]},
    "service": {"inFlight": IN_FLIGHT, "evictions": [{"max": SERVICE_AT_MOST, "per": f"{SERVICE_WINDOW:g}s"}]},
}


def a_packed_shop() -> Scenario:
    """The scheduler packs: what leaves a hot node goes to the fullest, which is often where it came from."""
    workloads = []
    for number, name in enumerate(SERVICES):
        place = Counter(NODES[(number + each) % 4] for each in range(4))
        place[NODES[4 + number % 4]] += 1
        cpu = CpuModel(base=1.9, amplitude=0.1, noise=0.3)
        workloads.append(
            service(name, place, cpu=cpu, cpu_request="900m", pdb={"max_unavailable": 1}, start_seconds=40.0)
        )
    return a_scenario(NODES, *workloads, scheduler="differs", anchor_hour=12.0)


def most_at_once(log: Log) -> int:
    """How many evictions were in flight at the same moment, ever."""
    ends = [(each.at, 1) for each in log.moves]
    ends += [(each.ready_at, -1) for each in log.moves if each.ready_at is not None]
    now = most = 0
    for _, change in sorted(ends):
        now += change
        most = max(most, now)
    return most


def test_with_a_wrong_model_no_limit_and_no_budget_is_broken(tmp_path: Path) -> None:
    with a_stage(a_packed_shop(), tmp_path, limits=LIMITS, safety={}) as stage:
        stage.turns(CYCLES)
        log = stage.log
    moved, gone = log.moves, log.evicted
    # the model is wrong indeed, and there was something to do
    assert len(moved) > 10
    assert log.returned

    assert most_in_any_window((each.at for each in gone), CLUSTER_WINDOW) <= CLUSTER_AT_MOST
    for name in NODES:
        assert most_in_any_window((each.at for each in gone if each.node == name), NODE_WINDOW) <= NODE_AT_MOST
    for name in SERVICES:
        times = [each.at for each in gone if service_of(each) == name]
        assert most_in_any_window(times, SERVICE_WINDOW) <= SERVICE_AT_MOST
        # which is what its PodDisruptionBudget allows, too
        assert log.most_out_at_once(name) <= IN_FLIGHT
    assert most_at_once(log) <= CLUSTER_IN_FLIGHT
    # an hour's cooldown for a service on a node: no node is relieved of one twice, nothing goes round in circles
    ways = Counter((each.service, each.source) for each in moved)
    assert max(ways.values()) == 1
    undone = Counter(one.service for one, _ in log.to_and_fro)
    assert max(undone.values(), default=0) <= 1


def one_hour(folder: Path, **give_up: str) -> Log:
    """Without any other cooldown; the log."""
    safety = {"cooldowns": {**NO_COOLDOWNS, "backoff": give_up}}
    folder.mkdir()
    with a_stage(a_packed_shop(), folder, limits=LIMITS, safety=safety) as stage:
        stage.turns(CYCLES)
        assert "EvictionBackoff" in codes(stage.reports)
        return stage.log


def tried_again(log: Log) -> int:
    """How often a service was moved off a node to which it had come back, once that could be seen."""
    moved = log.moves
    return sum(
        (one.service, one.source) == (back.service, back.source) and one.at >= back.at + 2 * TURN_SECONDS
        for back in log.returned
        for one in moved
    )


def test_what_came_back_is_left_alone(tmp_path: Path) -> None:
    """The whole hour long; without that memory it isn't."""
    assert tried_again(one_hour(tmp_path / "memory")) == 0
    assert tried_again(one_hour(tmp_path / "none", initial="1s", max="1s")) > 1
