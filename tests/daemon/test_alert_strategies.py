"""Alerts that start another strategy than LowNodeUtilization: for their node alone, by the rules of that strategy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import node, scenario, workload
from rebalancer.model.decisions.alerts import Alert
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy
from tests.builders import NO_LIMITS
from tests.daemon.test_worker import Around, around
from tests.e2e.servers import ALERT, POOL, alert_policy

KEY = "example.com/retire"
MAINTENANCE = {"name": "NodeMaintenance", "args": {"annotation": KEY}}
LOW = {"name": "LowNodeUtilization"}
RULE = {"alert": "NodeBroken", "strategy": "NodeMaintenance"}
SECTIONS: dict[str, Any] = {
    "strategies": [LOW, MAINTENANCE],
    "alerts": {"rules": [RULE, {"alert": ALERT}]},
    "limits": NO_LIMITS,
    "guards": {"minAge": "1m", "minReplicas": 1},
}


def chosen_nodes() -> Any:
    """Two nodes that are chosen for maintenance, a calm one that is not, and room."""
    chosen = [node(name, cpu=8, annotations={KEY: "yes"}) for name in ("old-1", "old-2")]
    services = [
        workload(f"svc-{name}", namespace="shop", place={name: 1, "spare": 1}, cpu=0.2, cpu_request="200m")
        for name in ("old-1", "old-2", "calm")
    ]
    return scenario(nodes=[*chosen, node("calm", cpu=8), node("spare", cpu=16)], workloads=services)


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Around]:
    with around(tmp_path, practice=chosen_nodes(), **SECTIONS) as made:
        yield made


def alert(it: Around, name: str, node: str, **annotations: str) -> None:
    one = Alert(
        fingerprint=f"{name} {node}",
        firing=True,
        labels={"alertname": name, "node": node},
        annotations=annotations,
        starts_at=it.lab.clock.now(),
    )
    it.inbox.receive([one], max_age_seconds=3600)


def test_an_alert_starts_the_strategy_of_its_rule_on_its_node_alone(it: Around) -> None:
    alert(it, "NodeBroken", "old-1")
    report = it.work()
    assert report.trigger is Trigger.ALERT
    assert [(finding.strategy, name) for finding, name in report.findings] == [("NodeMaintenance", "old-1")]
    assert it.evicted() == ["old-1"]
    assert it.state("old-1")[1] == "1 evicted"


def test_an_alert_about_a_node_that_its_strategy_does_not_choose_evicts_nothing(it: Around) -> None:
    alert(it, "NodeBroken", "calm", rebalancer_high="50", rebalancer_target="40", strategy="LowNodeUtilization")
    report = it.work()
    assert (report.findings, it.evicted()) == ([], [])
    assert it.state("calm")[1] == "NodeMaintenance found nothing on the node: nothing is evicted"


def test_an_alert_that_starts_one_strategy_starts_no_other(it: Around) -> None:
    # the node is chosen for maintenance, and this alert is about its load
    alert(it, ALERT, "old-1", rebalancer_high="90")
    assert it.work().findings == []
    assert it.evicted() == []


def test_guards_hold_in_a_cycle_that_an_alert_started(tmp_path: Path) -> None:
    closed = {**SECTIONS, "guards": {"minReplicas": 3}}
    with around(tmp_path, practice=chosen_nodes(), **closed) as it:
        alert(it, "NodeBroken", "old-1")
        it.work()
        assert it.evicted() == []
        assert it.state("old-1")[1] == "found by NodeMaintenance, but nothing may be evicted: MinReplicas 1"


def test_a_node_in_no_pool_of_the_strategy_starts_no_cycle(tmp_path: Path) -> None:
    unlabelled = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    pools = [POOL | {"selector": unlabelled}, {"name": "other", "selector": {"matchLabels": {"x": "y"}}}]
    strategies = [LOW | {"pools": ["all"]}, MAINTENANCE | {"pools": ["other"]}]
    with around(tmp_path, practice=chosen_nodes(), **{**SECTIONS, "pools": pools, "strategies": strategies}) as it:
        alert(it, "NodeBroken", "old-1")
        assert it.worker.work(None) is None
        assert it.state("old-1")[1] == "old-1 is in no pool of NodeMaintenance"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"strategy": "Interference"},
            r"alerts\.rules\[0\]\.strategy: expected one of LowNodeUtilization, "
            r"NodeMaintenance, got 'Interference'",
        ),
        ({"strategy": "Nonsense"}, r"alerts\.rules\[0\]\.strategy: expected one of .*, got 'Nonsense'"),
        (
            {"strategy": "NodeMaintenance", "high": 80},
            r"alerts\.rules\[0\]\.high: expected it with LowNodeUtilization "
            r"only, got it with NodeMaintenance",
        ),
    ],
)
def test_a_rule_names_a_strategy_of_the_policy_and_thresholds_that_it_takes(rule: dict[str, Any], words: str) -> None:
    document = alert_policy("http://127.0.0.1:9090", **{**SECTIONS, "alerts": {"rules": [{"alert": "A", **rule}]}})
    with pytest.raises(ConfigError, match=words):
        load_policy(json.dumps(document).encode(), source="policy.yaml")
