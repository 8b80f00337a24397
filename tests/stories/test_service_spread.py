"""ServiceSpread by a real history: what peaks together is learned from Prometheus, separated, and stays so."""

import math
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rebalancer.lab import CpuModel, Lab, Scenario
from tests.stories.scenarios.stage import GENEROUS, START, ForeseeingStage, a_foreseeing_stage, a_scenario, service

CALM_CYCLES = 50
MIDNIGHT = START - START % 86_400.0
NODES = ("a", "b", "c", "d")
MORNING, EVENING = (CpuModel(base=1.5, amplitude=0.8, peak_hour=hour, noise=0.05) for hour in (10.0, 22.0))
TOGETHER = ("web", "api", "cart")
POLICY: dict[str, Any] = {
    "strategies": [{"name": "ServiceSpread"}],
    "limits": GENEROUS,
    "forecast": {"mode": "Observe", "interval": "1h"},
}


def a_shop(**fields: Any) -> Scenario:
    """Three services that peak at ten are crowded on `a` and `b`; one that peaks at night and one that never does have
    as many pods on `c` and `d`."""
    return a_scenario(
        NODES,
        service("web", {"a": 2}, cpu=MORNING),
        service("api", {"a": 1, "b": 1}, cpu=MORNING),
        service("cart", {"b": 2}, cpu=CpuModel(base=1.0, amplitude=0.9, peak_hour=10.5)),
        service("night", {"c": 2, "a": 1}, cpu=EVENING),
        service("flat", {"c": 1, "d": 2}, cpu=1.2),
        anchor_hour=2.0,
        **fields,
    )


def a_morning(cluster: Scenario, folder: Path) -> AbstractContextManager[ForeseeingStage]:
    return a_foreseeing_stage(cluster, folder, start=MIDNIGHT + 2 * 3600.0, **POLICY)


def on_each(lab: Lab, *services: str) -> Counter[str]:
    """Node -> pods of these services together."""
    with lab.cluster.lock:
        return Counter(pod["spec"]["nodeName"] for name in services for pod in lab.cluster.pods(workload=name))


def test_services_that_peak_together_are_separated_and_stay_so(tmp_path: Path) -> None:
    with a_morning(a_shop(), tmp_path) as stage:
        lab = stage.lab
        before = on_each(lab, *TOGETHER)
        fair = math.ceil(before.total() / len(NODES))
        assert max(before.values()) > fair
        others = on_each(lab, "night"), on_each(lab, "flat")
        stage.turns(5)
        after, moved = on_each(lab, *TOGETHER), len(stage.log.evicted)
        assert max(after.values()) <= fair
        assert after.total() == before.total()
        stage.turns(CALM_CYCLES)
        log = stage.log
        assert on_each(lab, *TOGETHER) == after
        # who peaks at another time, or never, may share a node with them
        assert (on_each(lab, "night"), on_each(lab, "flat")) == others
    assert len(log.evicted) == moved == sum(max(count - fair, 0) for count in before.values())
    assert {each.service for each in log.moves} <= set(TOGETHER)
    assert log.moved_once


def test_without_enough_days_of_history_nothing_is_found(tmp_path: Path) -> None:
    with a_morning(a_shop(history_days=1.5), tmp_path) as stage:
        stage.turns(2)
        assert stage.log.evicted == []
