"""How long nodes stay hot, by how long they have been."""

import math

import numpy as np

from bench.replays.remaining import AGES, hot_times, lengths, remaining
from tests.replay.builders import CORES, Recorded, RecordedPod, recording


def test_each_time_in_a_row_is_counted_also_at_the_edges() -> None:
    hot = np.array([[1, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]], dtype=np.bool_)
    assert sorted(lengths(hot).tolist()) == [5.0, 10.0, 10.0]


def test_the_mean_is_over_the_moments_of_an_age() -> None:
    found = {age: (mean or 0.0, times) for age, mean, times in remaining(np.array([5.0, 10.0, 40.0]))}
    assert list(found) == list(AGES)
    # after five minutes 0, 5 and 35 follow; after 10 and 15 minutes 0, 30 and 25
    assert math.isclose(found[5][0], 40 / 3)
    assert math.isclose(found[10][0], 55 / 3)
    # after 30, 35 and 40 minutes 10, 5 and 0
    assert found[30] == (5.0, 1)
    assert list(remaining(np.array([5.0])))[1] == (10, None, 0)


def test_a_node_is_hot_over_the_high_of_the_balanced_policy() -> None:
    cpu = np.full(12, 0.74 * CORES * 1000)
    cpu[[2, 3, 4, 8]] = 0.76 * CORES * 1000
    made = recording(Recorded(nodes=2, steps=12, pods=[RecordedPod(name="p", node=0, cpu=cpu.tolist())]))
    assert hot_times(made).tolist() == [15.0, 5.0]
