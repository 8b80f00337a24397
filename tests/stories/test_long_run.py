"""Fifty cycles with load that changes: what is moved stays away, and it helps."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rebalancer.lab import CpuModel, Lab, Scenario
from tests.stories.readers import Log
from tests.stories.scenarios.stage import HIGH, START, TURN_SECONDS, a_scenario, a_stage, burner, service

CYCLES = 50
NODES = tuple(f"node-{number}" for number in range(10))
SERVICES = tuple(f"s{number}" for number in range(8))
FEWEST, MOST_OF_A_SERVICE = 5, 3
"""Moves: of all services, or it was no story; of one service."""
TAINTS_AT_MOST = 2


def a_busy_shop() -> Scenario:
    """Pods use about three times what they request, more or less by the minute. The first nodes have the greedy ones
    and look emptier than the others by requests, so the scheduler likes them best."""
    greedy = {"cpu": CpuModel(base=2.2, amplitude=0.2, peak_hour=15, noise=0.8)}
    modest = {"cpu": CpuModel(base=0.6, amplitude=0.2, peak_hour=15, noise=0.8)}
    workloads = []
    for number, name in enumerate(SERVICES):
        nodes = [NODES[(number * 5 + each) % 6] if number < 4 else NODES[(number + each) % 10] for each in range(6)]
        workloads.append(service(name, Counter(nodes), cpu_request="700m", **(greedy if number < 4 else modest)))
    workloads += [burner(f"burner-{name}", name, 2.0) for name in NODES[:3]]
    workloads += [burner(f"idle-{name}", name, 0.2, cpu_request="7") for name in NODES[4:]]
    return a_scenario(NODES, *workloads, anchor_hour=11.0)


def hot_node_minutes(lab: Lab) -> float:
    """By the lab's own truth, from the first cycle's moment on."""
    timeline = lab.truth.timeline(start=START + TURN_SECONDS, end=lab.clock.now(), step_seconds=60.0)
    return float(sum(share > HIGH / 100 for _, shares in timeline for share in shares.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What fifty cycles brought."""

    hot_minutes: float
    log: Log


def fifty_cycles(folder: Path, mode: str) -> Course:
    """With the usual cooldowns."""
    folder.mkdir()
    soft_taint = {"mode": mode, "maxNodes": TAINTS_AT_MOST}
    with a_stage(a_busy_shop(), folder, safety={}, softTaint=soft_taint) as stage:
        stage.turns(CYCLES)
        stage.lab.clock.sleep(TURN_SECONDS)  # the last replacements get Ready
        return Course(hot_minutes=hot_node_minutes(stage.lab), log=stage.log)


def left_alone() -> float:
    """Hot-node-minutes without any rebalancing. The same seed: the same load."""
    with Lab.start(a_busy_shop(), stepped=True, start_time=START) as lab:
        lab.clock.sleep(CYCLES * TURN_SECONDS)
        return hot_node_minutes(lab)


def test_over_fifty_cycles_nothing_returns_and_nothing_oscillates(tmp_path: Path) -> None:
    alone = left_alone()
    unsteered, soft_tainted = fifty_cycles(tmp_path / "off", "Off"), fifty_cycles(tmp_path / "taint", "Taint")

    moved = soft_tainted.log.moves
    assert len(moved) >= FEWEST
    # every replacement was bound, to another node, and got Ready
    assert all(each.target and each.ready_at is not None for each in moved)
    assert soft_tainted.log.returned == unsteered.log.returned == []
    # it helped, and without the soft taint most of it would not have been possible
    assert alone > 60
    assert soft_tainted.hot_minutes < alone / 10
    assert unsteered.hot_minutes > alone / 2
    # nothing is moved to and fro
    assert max(Counter(each.service for each in moved).values()) <= MOST_OF_A_SERVICE
    ways = {(each.service, each.source, each.target) for each in moved}
    assert not [each for each in ways if (each[0], each[2], each[1]) in ways]
    assert soft_tainted.log.to_and_fro == []
    assert 0 < soft_tainted.log.most_tainted_at_once(NODES) <= TAINTS_AT_MOST
    assert unsteered.log.stints == []
