"""`low` is an opt-in: without it room under the target is enough."""

from typing import Any

import pytest

from tests.builders import a_node, a_policy, plan_all
from tests.planner.builders.plans import ANY_REPLICAS, cold, heavy, hot, single


def with_thresholds(**marks: Any) -> Any:
    pool = {"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": marks}
    return a_policy(**ANY_REPLICAS, pools=[pool])


@pytest.mark.parametrize("used", [7_840.0, 8_160.0], ids=["49%", "51%"])
def test_a_hot_node_is_relieved_where_the_others_are_at_half_of_their_cpu(used: float) -> None:
    nodes = [hot(15_840.0), *(cold(f"cold{at}", used=used) for at in range(5))]
    pods = [heavy("hot"), *(single(f"p{at}", used=1_100.0) for at in range(8))]
    assert len(plan_all(nodes, pods, with_thresholds(high=75, target=65)).pods) == 5
    assert bool(plan_all(nodes, pods, with_thresholds(high=75, target=65, low=50)).pods) == (used < 8_000)


def test_in_deviation_mode_the_mean_is_its_default() -> None:
    marks = with_thresholds(high=10, target=5, relativeToMean=True, floor=40).pools[0].thresholds
    assert marks.low == 0


def test_request_thresholds_need_none_either() -> None:
    pool = {
        "name": "general",
        "selector": {"matchLabels": {"pool": "general"}},
        "requestThresholds": {"high": {"cpu": 75}, "target": {"cpu": 65}},
    }
    strategy = {"name": "LowNodeUtilization", "args": {"source": "Requests"}}
    policy = a_policy(**ANY_REPLICAS, pools=[pool], strategies=[strategy])
    assert policy.pools[0].request_thresholds.low == {"cpu": 65}
    pods = [single(f"p{at}", cpu=4_000) for at in range(4)]
    assert plan_all([a_node("hot"), a_node("other")], pods, policy).pods
