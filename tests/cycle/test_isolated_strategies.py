"""A strategy that fails unexpectedly finds nothing, and the others go on; its cordons stay."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rebalancer.cycle.observe import isolated_strategies
from rebalancer.cycle.observe.isolated_strategies import findings_of
from rebalancer.cycle.observe.observation import find
from rebalancer.model.cluster.steering import DRAINING, MAINTENANCE
from rebalancer.model.errors import ConfigError
from rebalancer.model.parts import FailedParts
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings, StrategyView
from rebalancer.strategies.lifecycle import failed_pods
from tests.builders import NOW, a_node, a_policy, cluster, replicas, usage_of, view_of
from tests.strategies.builders.finding import observation_of

CHOSEN = {"nodeSelector": {"matchLabels": {"kernel": "old"}}}


class Clock:
    def __init__(self) -> None:
        self.at = 0.0
        self.parts = FailedParts(now=lambda: NOW + self.at, monotonic=lambda: self.at)


def a_view(policy: RebalancerPolicy) -> StrategyView:
    nodes, pods = [a_node("hot", used=14_000.0), a_node("a", used=0.0)], replicas("web", {"hot": 2}, used=3_000.0)
    snapshot = cluster(nodes, pods)
    return view_of(snapshot, usage_of(snapshot, nodes, pods), policy)


def broken(error: Exception) -> Callable[[StrategyView], Findings]:
    def find(_: StrategyView) -> Findings:
        raise error

    return find


def test_the_others_find_and_the_note_has_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_pods, "find", broken(KeyError("a mistake of ours")))
    policy = a_policy(strategies=[{"name": "RemoveFailedPods"}, {"name": "LowNodeUtilization"}])
    clock = Clock()
    failed, found = find(observation_of(a_view(policy)), policy, parts=clock.parts)
    assert [each.node for each in found.findings] == [0]
    assert (failed.findings, failed.loads) == ((), None)
    (note,) = failed.notes
    assert note.startswith("part failed: strategy RemoveFailedPods, since 20")
    assert "once: KeyError: 'a mistake of ours' (test_isolated_strategies.py:" in note
    assert [each.name for each in clock.parts.current()] == ["strategy RemoveFailedPods"]


def test_it_is_skipped_until_its_next_attempt_and_then_works(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def twice(_: StrategyView) -> Findings:
        calls.append(1)
        if len(calls) < 3:
            raise KeyError("a mistake of ours")
        return Findings(findings=())

    monkeypatch.setattr(failed_pods, "find", twice)
    policy = a_policy(strategies=[{"name": "RemoveFailedPods"}])
    clock, seen = Clock(), observation_of(a_view(policy))
    counts = []
    for at in (0.0, 0.9, 1.0, 2.9, 3.0):
        clock.at = at
        (found,) = find(seen, policy, parts=clock.parts)
        counts.append((len(calls), bool(found.notes)))
    assert counts == [(1, True), (1, True), (2, True), (2, True), (3, False)]
    assert clock.parts.current() == []


@pytest.mark.parametrize("error", [MemoryError(), ConfigError("not installed")])
def test_errors_of_other_kinds_are_raised(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_pods, "find", broken(error))
    policy = a_policy(strategies=[{"name": "RemoveFailedPods"}])
    with pytest.raises(type(error)):
        find(observation_of(a_view(policy)), policy, parts=Clock().parts)


def test_the_cordons_of_a_strategy_that_fails_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = a_policy(strategies=[{"name": "NodeMaintenance", "args": CHOSEN}])
    monkeypatch.setattr(isolated_strategies, "strategy_for", lambda _: broken(KeyError("a mistake of ours")))
    cordons = {0: (MAINTENANCE, 0.0), 1: (DRAINING, NOW - 900.0)}
    view = replace(a_view(policy), strategy=policy.strategies[0], cordons=cordons, now=NOW)
    found = findings_of(view, Clock().parts, drained_seconds=1000.0)
    assert found.cordons == {0: MAINTENANCE, 1: DRAINING}
    assert found.maintenance_nodes == {0}
    late = findings_of(view, Clock().parts, drained_seconds=800.0)
    assert late.cordons == {0: MAINTENANCE}


def test_a_strategy_without_cordons_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = a_policy(strategies=[{"name": "RemoveFailedPods"}])
    monkeypatch.setattr(failed_pods, "find", broken(KeyError("a mistake of ours")))
    view = replace(a_view(policy), strategy=policy.strategies[0], cordons={0: (MAINTENANCE, 0.0)})
    assert findings_of(view, Clock().parts, drained_seconds=1000.0).cordons == {}
