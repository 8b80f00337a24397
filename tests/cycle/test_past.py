"""What earlier cycles saw requested on nodes, for strategies that read it."""

from typing import Any

import numpy as np
import pytest

from rebalancer.cycle.observe.past import past_seconds, requested_now
from tests.builders import GIB, NOW, a_node, a_pod, a_policy, cluster

MARKS = {"high": 75, "target": 65}
POOLS = [
    {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": MARKS} for name in ("spot", "general")
]


def test_what_is_requested_is_counted_on_the_nodes_that_take_pods() -> None:
    gpu = {"nvidia.com/gpu": 4.0, "ephemeral-storage": 1e9}
    nodes = [
        a_node("a", extended=gpu),
        a_node("b"),
        a_node("off", ready=False),
        a_node("cordoned", unschedulable=True),
        a_node("other"),
    ]
    pods = [
        a_pod("web-0", "a", owner="web", cpu=500.0, template={"extendedRequests": {"nvidia.com/gpu": 2.0}}),
        # it still holds what it requests
        a_pod("web-1", "a", owner="web", cpu=700.0, terminating=True),
        a_pod("web-2", "off", owner="web"),
    ]
    sample = requested_now(cluster(nodes, pods), np.array([True, True, True, True, False]), NOW)
    assert sample.at == NOW
    assert dict(sample.nodes) == {
        "a": {"cpu": 1_200.0, "memory": 2 * GIB, "pods": 2.0, "nvidia.com/gpu": 2.0},
        "b": {"cpu": 0.0, "memory": 0.0, "pods": 0.0, "nvidia.com/gpu": 0.0},
    }


@pytest.mark.parametrize(
    ("args", "interval", "seconds"),
    [({}, "2m", 1_200.0), ({"afterRoomFor": "2m"}, "5m", 1_620.0), ({"afterRoomFor": "6h"}, "2m", 23_760.0)],
    ids=["twice the time", "five cycles more", "a tenth more"],
)
def test_it_goes_back_as_far_as_a_strategy_needs(args: dict[str, Any], interval: str, seconds: float) -> None:
    strategy = {"name": "PoolPreference", "interval": interval, "args": {"order": ["spot", "general"], **args}}
    assert past_seconds(a_policy(pools=POOLS, strategies=[strategy])) == seconds
    assert past_seconds(a_policy(pools=POOLS[1:])) == 0.0
