"""Cycles that alerts start, for nodes whose pool or strategy is in dry run."""

from pathlib import Path

import pytest

from rebalancer.model.decisions.eviction import Outcome
from tests.builders import an_eviction
from tests.daemon.test_alert_requests import report, result_of
from tests.daemon.test_worker import around
from tests.store.builders import build_finding

PLANNED, EVICTED = Outcome.PLANNED, Outcome.EVICTED


@pytest.mark.parametrize(
    ("evictions", "result"),
    [
        ([(True, PLANNED), (True, PLANNED)], "2 would be evicted (dry run)"),
        ([(False, EVICTED), (True, PLANNED)], "1 evicted"),
        ([(False, Outcome.UNKNOWN)], "1 evicted"),
    ],
)
def test_evictions_in_dry_run_are_told_as_such(evictions: list[tuple[bool, Outcome]], result: str) -> None:
    made = [an_eviction(dry_run=dry_run, outcome=outcome) for dry_run, outcome in evictions]
    assert result_of(report(findings=[(build_finding(), "n1")], evictions=made))[0] == result


THRESHOLDS = {"high": 75, "target": 65, "low": 50}
HOSTNAME = "kubernetes.io/hostname"


def test_an_alert_evicts_nothing_from_a_pool_in_dry_run(tmp_path: Path) -> None:
    others = {"key": HOSTNAME, "operator": "NotIn", "values": ["warm-1"]}
    pools = [
        {"name": "one", "mode": "DryRun", "selector": {"matchLabels": {HOSTNAME: "warm-1"}}, "thresholds": THRESHOLDS},
        {"name": "rest", "selector": {"matchExpressions": [others]}, "thresholds": THRESHOLDS},
    ]
    with around(tmp_path, pools=pools) as it:
        it.lab.clock.sleep(30)
        for name in ("warm-1", "warm-2"):
            it.alert(name)
        made = it.work()
        assert set(it.evicted()) == {"warm-2"}
        assert {each.node for each in made.evictions if each.reserved.dry_run} == {"warm-1"}
        assert it.state("warm-1")[1].endswith("would be evicted (dry run)")


def test_an_alert_evicts_nothing_by_a_strategy_in_dry_run(tmp_path: Path) -> None:
    with around(tmp_path, strategies=[{"name": "LowNodeUtilization", "mode": "DryRun"}]) as it:
        it.lab.clock.sleep(30)
        it.alert("warm-1")
        made = it.work()
        assert it.evicted() == []
        assert [each.answered.detail for each in made.evictions] == ["dry run of strategy LowNodeUtilization"]
