"""The input of each strategy in a cycle."""

import numpy as np
import pytest

from rebalancer.constraints.admission import LedgerState
from rebalancer.cycle.observe import isolated_strategies
from rebalancer.cycle.observe.observation import Observation, find, unsafe
from rebalancer.model.measured.history import SLOTS
from rebalancer.model.measured.peaks import ServiceDayProfiles
from rebalancer.policy.schema.strategies import Strategy
from rebalancer.strategies import Findings, StrategyView
from rebalancer.strategies.registry import Find
from tests.builders import NOW, a_node, a_pod, a_policy, carry_out, cluster, planner_for, usage_of, view_of


def test_only_strategies_that_declare_it_get_services_days(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [a_node("n")]
    snapshot, policy = (
        cluster(nodes, []),
        a_policy(strategies=[{"name": "LowNodeUtilization"}, {"name": "ServiceSpread"}]),
    )
    view = view_of(snapshot, usage_of(snapshot, nodes, []), policy)
    none = np.zeros(0, dtype=np.int32)
    days = ServiceDayProfiles(row_of=none, usual=np.zeros((0, SLOTS)), days=none)
    seen = Observation(
        snapshot=snapshot,
        usage=view.usage,
        node_pools=view.node_pools,
        cpu=view.cpu,
        loads=view.base,
        recent=(),
        ledger_state=LedgerState(),
        projection=view.projection,
        days=days,
        now=NOW,
    )
    given: dict[str, ServiceDayProfiles | None] = {}

    def recording(_strategy: Strategy) -> Find:
        def findings(view: StrategyView) -> Findings:
            given[view.strategy.name] = view.days
            return Findings(findings=())

        return findings

    monkeypatch.setattr(isolated_strategies, "strategy_for", recording)
    find(seen, policy)
    assert given == {"LowNodeUtilization": None, "ServiceSpread": days}


@pytest.mark.parametrize(("switched_off", "stops"), [(True, False), (False, True)])
def test_nodes_that_are_not_ready_do_not_count_in_the_coverage(switched_off: bool, stops: bool) -> None:
    """3 of 10 send no samples; at least 90% must."""
    silent = [a_node(f"off-{number}", ready=not switched_off, used=float("nan")) for number in range(3)]
    nodes = [*silent, *(a_node(f"on-{number}", used=1_000.0) for number in range(7))]
    snapshot, policy = cluster(nodes, []), a_policy()
    view = view_of(snapshot, usage_of(snapshot, nodes, []), policy)
    seen = Observation(
        snapshot=snapshot,
        usage=view.usage,
        node_pools=view.node_pools,
        cpu=view.cpu,
        loads=view.base,
        recent=(),
        ledger_state=LedgerState(),
        projection=view.projection,
        now=NOW,
    )
    refusal = unsafe(seen, policy)
    assert (refusal is not None) is stops
    if refusal is not None:
        assert "7 of 10 Ready nodes" in refusal.message


@pytest.mark.parametrize(
    ("movable", "factor", "goes"),
    [(1_600.0, 0.5, True), (1_000.0, 1.5, False)],
    ids=["evictions relieved less", "evictions relieved more"],
)
def test_what_earlier_evictions_relieved_does_not_say_what_all_together_would(
    movable: float, factor: float, goes: bool
) -> None:
    """1,200 millicores over high, which no pods but these use."""
    nodes = [a_node("hot", used=13_200.0), a_node("cold", used=1_000.0)]
    pods = [a_pod(f"p{at}", "hot", owner=f"own-{at}", used=movable / 4, cpu=500.0) for at in range(4)]
    # kube-scheduler prefers the other node
    pods.append(a_pod("agent", "hot", owner="agent", owner_kind="DaemonSet", cpu=9_000.0))
    snapshot, policy = cluster(nodes, pods), a_policy(guards={"minReplicas": 1})
    usage = usage_of(snapshot, nodes, pods)
    view = view_of(snapshot, usage, policy)
    seen = Observation(
        snapshot=snapshot,
        usage=usage,
        node_pools=view.node_pools,
        cpu=view.cpu,
        loads=view.base,
        recent=(),
        ledger_state=LedgerState(),
        projection=view.projection,
        relief_factor={"general": factor},
        now=NOW,
    )
    outcome = carry_out(planner_for(snapshot, usage, policy, found=find(seen, policy), base=seen.base), snapshot)
    assert bool(outcome.pods) == goes
    assert ("HighUnreachable" in outcome.refusals.values()) != goes
