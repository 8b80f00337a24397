"""ServiceSpread by a real history: what peaks together is learned from Prometheus, separated, and stays so."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

from rebalancer.lab import CpuModel, Lab, Scenario
from tests.stories.readers import GENEROUS, a_foreseeing_stage, moved_once
from tests.stories.scenarios.stage import START, a_machine, a_scenario, evicted, moves, service

CALM_CYCLES = 50
MIDNIGHT = START - START % 86_400.0
NODES = ("a", "b", "c", "d")
MORNING, EVENING = (CpuModel(base=1.5, amplitude=0.8, peak_hour=hour, noise=0.05) for hour in (10.0, 22.0))
TOGETHER = ("web", "api", "cart")
POLICY: dict[str, Any] = {"strategies": [{"name": "ServiceSpread"}], "limits": GENEROUS}


def a_shop() -> Scenario:
    """Three services that peak at ten are crowded on `a` and `b`; one that peaks at night and one that never does have
    as many pods on `c` and `d`."""
    return a_scenario(
        [a_machine(name) for name in NODES],
        [
            service("web", {"a": 2}, cpu=MORNING),
            service("api", {"a": 1, "b": 1}, cpu=MORNING),
            service("cart", {"b": 2}, cpu=CpuModel(base=1.0, amplitude=0.9, peak_hour=10.5)),
            service("night", {"c": 2, "a": 1}, cpu=EVENING),
            service("flat", {"c": 1, "d": 2}, cpu=1.2),
        ],
        anchor_hour=2.0,
    )


def on_each(lab: Lab, *services: str) -> Counter[str]:
    """Node -> pods of these services together."""
    with lab.cluster.lock:
        return Counter(pod["spec"]["nodeName"] for name in services for pod in lab.cluster.pods(workload=name))


def services_on(lab: Lab, node: str, *services: str) -> int:
    with lab.cluster.lock:
        return sum(bool(lab.cluster.pods(workload=name, node=node)) for name in services)


def test_services_that_peak_together_are_separated_and_stay_so(tmp_path: Path) -> None:
    start = MIDNIGHT + 2 * 3600.0
    with a_foreseeing_stage(
        a_shop(), tmp_path, start=start, forecast={"mode": "Observe", "interval": "1h"}, **POLICY
    ) as stage:
        lab = stage.lab
        before = on_each(lab, *TOGETHER)
        fair = math.ceil(before.total() / len(NODES))
        assert max(before.values()) > fair
        others = on_each(lab, "night"), on_each(lab, "flat")
        for _ in range(5):
            stage.turn()
        after, moved = on_each(lab, *TOGETHER), len(evicted(lab.log.entries()))
        assert max(after.values()) <= fair
        assert after.total() == before.total()
        for _ in range(CALM_CYCLES):
            stage.turn()
        log = lab.log.entries()
        assert on_each(lab, *TOGETHER) == after
        # who peaks at another time, or never, may share a node with them
        assert (on_each(lab, "night"), on_each(lab, "flat")) == others
    assert len(evicted(log)) == moved == sum(max(count - fair, 0) for count in before.values())
    assert {each.service for each in moves(log)} <= set(TOGETHER)
    assert moved_once(log)


def test_without_enough_days_of_history_nothing_is_said(tmp_path: Path) -> None:
    start = MIDNIGHT + 2 * 3600.0
    cluster = a_shop()
    young = Scenario(
        nodes=cluster.nodes,
        workloads=cluster.workloads,
        rate_window_seconds=cluster.rate_window_seconds,
        anchor_hour=2.0,
        history_days=1.5,
    )
    with a_foreseeing_stage(
        young, tmp_path, start=start, forecast={"mode": "Observe", "interval": "1h"}, **POLICY
    ) as stage:
        for _ in range(2):
            stage.turn()
        assert evicted(stage.lab.log.entries()) == []
