"""A replay of a policy with parts in dry run, and of one that alerts alone start."""

from rebalancer.model.recordings.replay import ReplayRun
from tests.replay.test_run import a_hot_node, ours, run

__all__ = ["ours"]


def test_a_replay_simulates_parts_in_dry_run_as_if_they_acted(ours: ReplayRun) -> None:
    dry = run(a_hot_node(), strategies=[{"name": "LowNodeUtilization", "mode": "DryRun"}])
    assert [(each.at, each.pod) for each in dry.evictions] == [(each.at, each.pod) for each in ours.evictions]


def test_a_replay_of_a_policy_for_alerts_has_no_cycle_without_one() -> None:
    alone = run(a_hot_node(), strategies=[{"name": "LowNodeUtilization", "triggers": ["Alert"]}])
    assert (alone.evictions, alone.cycles) == ((), ())
