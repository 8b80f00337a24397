"""Whole replays: what the runs are compared with, and by one mark."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.bootstrap.recordings.replay import replay
from rebalancer.cycle.plan import planning
from rebalancer.model.errors import ConfigError
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.comparison.summary import summary_of
from rebalancer.replay.comparison.variants import Variant
from rebalancer.replay.runner.replay import AS_RECORDED, WITHOUT
from tests.replay.builders import Recorded, RecordedPod, policy, recording

STEPS = 48


def cooled_then() -> Recording:
    """Node 0 is hot until rebalancer moves two of its pods after an hour."""
    pods = [RecordedPod(name=f"a{at}-1-x", service=f"a{at}", cpu=1300.0, request=600.0) for at in range(5)]
    for at in range(2):
        name = f"m{at}-1"
        pods.append(RecordedPod(name=f"{name}-old", service=f"m{at}", cpu=1000.0, request=600.0, ends=12.0))
        pods.append(
            RecordedPod(
                name=f"{name}-new",
                service=f"m{at}",
                cpu=1000.0,
                request=600.0,
                node=1,
                begins=12.0,
                replaced=f"{name}-old",
            )
        )
    return recording(Recorded(nodes=2, steps=STEPS, pods=pods))


def under(name: str, **thresholds: Any) -> RebalancerPolicy:
    pool = {
        "name": name,
        "selector": {"matchLabels": {"pool": "general"}},
        "thresholds": {"high": 75, "target": 65, "low": 55, **thresholds},
    }
    return policy(pools=[pool], guards={"minReplicas": 1})


def variant(label: str, of: RebalancerPolicy) -> Variant:
    return Variant(label=label, policy=of, part="")


def test_what_rebalancer_did_then_is_compared_with_a_run_without_it() -> None:
    first = under("general")
    made = replay(cooled_then(), first, [variant("this", first)])
    assert made is not None
    assert made.without.label == WITHOUT
    assert made.without.hot_node_minutes > 3 * made.as_recorded.hot_node_minutes
    assert sorted(each.pod for each in made.as_recorded.evictions) == ["m0-1-old", "m1-1-old"]
    assert made.as_recorded.evictions[0].service.name == "m0"
    assert made.error == pytest.approx(0.0, abs=0.1)
    _, summary = summary_of(made, str)
    assert [each.label for each in summary.runs] == [AS_RECORDED, WITHOUT, "this"]
    assert [each.evictions for each in summary.runs][:2] == [2, 0]


def test_a_policy_with_other_pools_is_counted_by_the_same_mark() -> None:
    first, other = under("general"), under("gold", high=95, target=90)
    made = replay(cooled_then(), first, [variant("this", first), variant("other", other)])
    assert made is not None
    other_run = made.runs[1]
    assert not other_run.evictions
    assert other_run.hot_node_minutes == pytest.approx(made.without.hot_node_minutes)


def test_without_a_fixed_mark_there_is_nothing_to_count() -> None:
    relative = under("general", high=10, target=5, low=5, relativeToMean=True, floor=60)
    with pytest.raises(ConfigError, match="no pool has a fixed"):
        replay(cooled_then(), relative, [variant("this", relative)])


def test_the_scheduler_s_configuration_is_read_before_the_runs(tmp_path: Path) -> None:
    missing = policy(scheduler={"configFile": str(tmp_path / "scheduler.yaml")})
    with pytest.raises(ConfigError, match="to be readable"):
        replay(cooled_then(), missing, [variant("this", missing)])


def test_a_replay_plans_the_same_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = replay(cooled_then(), under("general"), [variant("this", under("general"))])
    seconds = count(step=1000.0)
    monkeypatch.setattr(planning, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    slow = replay(cooled_then(), under("general"), [variant("this", under("general"))])
    assert usual is not None
    assert slow is not None
    assert slow.runs[0].evictions
    assert slow.runs[0].cycles == usual.runs[0].cycles
