"""Draining nodes of a pool that is in dry run, acts, and is in dry run again: its evictions, cordons and records."""

from pathlib import Path
from typing import Any

from rebalancer.cycle.run import run_cycle
from rebalancer.policy.modes import acting
from tests.stories.readers import cordoned
from tests.stories.scenarios.stage import GENEROUS, Stage, a_machine, a_scenario, a_stage, service

KEY, VALUE = "example.com/upgrade", "kernel"
THRESHOLDS = {"high": 75, "target": 65, "low": 50}
SECTIONS: dict[str, Any] = {
    "pools": [
        {"name": name, "mode": mode, "selector": {"matchLabels": {"pool": name}}, "thresholds": THRESHOLDS}
        for name, mode in (("a", "DryRun"), ("b", "Act"))
    ],
    "strategies": [{"name": "NodeMaintenance", "args": {"annotation": f"{KEY}={VALUE}", "maxConcurrentNodes": 1}}],
    "limits": {**GENEROUS, "service": {"inFlight": 100}},
}


def drained(stage: Stage) -> set[str]:
    return {each.node for each in stage.log.evicted}


def test_a_pool_in_dry_run_is_neither_drained_nor_cordoned(tmp_path: Path) -> None:
    machines = [
        a_machine(f"{pool}{number}", labels={"pool": pool}, annotations={KEY: VALUE} if number == 1 else {})
        for pool in "ab"
        for number in (1, 2, 3)
    ]
    services = [service(f"web-{pool}", {f"{pool}1": 2, f"{pool}2": 1}, node_selector={"pool": pool}) for pool in "ab"]
    with a_stage(a_scenario(machines, *services), tmp_path, **SECTIONS) as stage:
        stage.lab.clock.sleep(300.0)
        report = stage.cycle()
        assert (drained(stage), cordoned(stage.lab)) == ({"b1"}, {"b1"})
        assert {(each.node, each.answered.detail) for each in report.evictions if each.reserved.dry_run} == {
            ("a1", "dry run of pool a")
        }
        assert report.cordons.keys() == {"b1"}
        stage.turns(3)
        assert (drained(stage), cordoned(stage.lab)) == ({"b1"}, {"b1"})

        before, stage.policy = stage.policy, acting(stage.policy)
        stage.turns(6)
        assert (drained(stage), cordoned(stage.lab)) == ({"a1", "b1"}, {"a1", "b1"})

        # a mode that is strict again gives the node back
        stage.policy = before
        stage.turn()
        assert cordoned(stage.lab) == {"b1"}
        assert run_cycle(stage.world, stage.policy, dry_run=True).report.stopped is None
