"""Strategies that the timer, alerts or forecasts alone start: requests, the timer, readiness, the next cycle."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.daemon import triggers
from rebalancer.daemon.readiness import Readiness
from rebalancer.daemon.triggers import Timer, TriggerQueue
from rebalancer.model.decisions.plan import Trigger
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.types import TRIGGERS
from tests.builders import a_policy
from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service

POOLS = {"n1": "general", "n2": "general"}
BY_ALERT = a_policy(strategies=[{"name": "LowNodeUtilization", "triggers": ["Alert"]}])
EITHER = a_policy(
    strategies=[
        {"name": "LowNodeUtilization", "triggers": ["Alert"], "interval": "10s"},
        {"name": "RemoveDuplicates", "interval": "1h"},
    ]
)


@pytest.mark.parametrize("trigger", [Trigger.PERIODIC, Trigger.ALERT, Trigger.FORECAST])
def test_a_request_covers_the_strategies_that_its_trigger_starts(trigger: Trigger) -> None:
    asked, name = CycleRequest(trigger=trigger), str(trigger).capitalize()
    assert asked.nodes_for("A", POOLS, triggers=(name,)) is None  # type: ignore[arg-type]
    assert asked.nodes_for("A", POOLS, triggers=tuple(set(TRIGGERS) - {name})) == set()


def test_a_person_may_start_every_strategy() -> None:
    assert CycleRequest(trigger=Trigger.MANUAL).nodes_for("A", POOLS, triggers=("Alert",)) is None


def test_in_a_merged_request_each_part_keeps_its_trigger() -> None:
    alert = CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({RequestScope(nodes=frozenset({"n1"}))}))
    both = CycleRequest(trigger=Trigger.PERIODIC).merged(alert)
    assert both.nodes_for("A", POOLS, triggers=("Alert",)) == {"n1"}
    assert both.nodes_for("A", POOLS, triggers=("Periodic",)) is None
    assert both.nodes_for("A", POOLS, triggers=("Forecast",)) == set()


def test_a_periodic_cycle_leaves_a_hot_node_to_the_alert(tmp_path: Path) -> None:
    from rebalancer.cycle.run import run_cycle

    cluster = a_scenario(("a", "b"), burner("heat", "a", 9.0), service("web", {"a": 5, "b": 1}))
    with a_stage(cluster, tmp_path, strategies=[{"name": "LowNodeUtilization", "triggers": ["Alert"]}]) as stage:
        stage.lab.clock.sleep(300.0)
        found = [
            run_cycle(stage.world, stage.policy, request=CycleRequest(trigger=each), dry_run=True).report.findings
            for each in (Trigger.PERIODIC, Trigger.FORECAST, Trigger.ALERT, Trigger.MANUAL)
        ]
        assert [bool(each) for each in found] == [False, False, True, True]


def requests(policy: RebalancerPolicy, monkeypatch: pytest.MonkeyPatch, *, leftovers: bool = False) -> int:
    """Requests of a timer in a third of a second, after the first one, with all intervals a hundredth as long."""
    monkeypatch.setattr(triggers, "LEFTOVERS_SECONDS", 0.1)
    queue = TriggerQueue()
    timer = Timer(queue, leftovers=lambda: leftovers)
    timer.start(policy)
    try:
        assert queue.take(10.0, monotonic=time.monotonic) is not None
        return sum(queue.take(0.3, monotonic=time.monotonic) is not None for _ in range(1))
    finally:
        timer.stop()


def test_the_timer_starts_no_cycle_where_no_strategy_is_periodic(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requests(BY_ALERT, monkeypatch) == 0


def test_what_earlier_cycles_left_is_ended_where_no_strategy_is_periodic(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requests(BY_ALERT, monkeypatch, leftovers=True) == 1
    assert requests(EITHER, monkeypatch, leftovers=True) == 0, "the periodic one ends it"


def cycles_check(policy: RebalancerPolicy, *, ago: float) -> tuple[bool, str]:
    resources: Any = SimpleNamespace(leadership=SimpleNamespace(holds=lambda: True))
    active: Any = SimpleNamespace(policy=policy)
    file: Any = None
    heartbeat: Any = None
    readiness = Readiness(active=lambda: active, resources=resources, file=file, heartbeat=heartbeat)
    readiness._cycle_due_since = time.monotonic() - ago
    check = readiness._cycles_check()
    return check.ok, check.sentence


def test_a_leader_is_late_by_its_periodic_strategies_alone() -> None:
    assert cycles_check(BY_ALERT, ago=1e6) == (True, "none is periodic")
    assert cycles_check(EITHER, ago=3600.0) == (True, "the last one ended 3600s ago, one is due every 3600s")
    assert cycles_check(EITHER, ago=3 * 3600.0 + 120.0)[0] is False
