"""Above 100 nodes the scheduler scores a sample: how large it is, and who wins."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.placement.draws.sampling import nodes_to_find, winners


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        (10, 0, 10),
        (10, 40, 10),
        (99, 5, 99),
        (100, 5, 100),
        (1_000, 0, 420),
        (1_000, 40, 400),
        (5_000, 0, 500),
        (6_000, 0, 300),  # never under 5%
        (6_000, 40, 2_400),
        (15_000, 0, 750),
        (150, 100, 150),
        (1_000, 1, 100),  # never under 100 nodes
    ],
)
def test_the_scheduler_looks_for_so_many_feasible_nodes(nodes: int, percentage: int, expected: int) -> None:
    assert nodes_to_find(nodes, percentage) == expected


scores = st.lists(st.one_of(st.integers(0, 4).map(float), st.just(-np.inf)), min_size=1, max_size=8)


def by_counting(values: list[float], sample: int) -> dict[int, float]:
    """Every sample drawn once; of its best each is as likely."""
    feasible = [index for index, value in enumerate(values) if value > -np.inf]
    drawn = list(combinations(feasible, min(sample, len(feasible))))
    chance = dict.fromkeys(feasible, 0.0)
    for each in drawn:
        best = [index for index in each if values[index] == max(values[other] for other in each)]
        for index in best:
            chance[index] += 1.0 / len(best) / len(drawn)
    return {index: share for index, share in chance.items() if share > 0}


@given(scores, st.integers(1, 9))
def test_every_node_wins_as_often_as_counting_all_samples_says(values: list[float], sample: int) -> None:
    rows, shares = winners(np.array(values), sample, enough=1.0)
    got = {int(row): float(share) for row, share in zip(rows, shares, strict=True) if share > 1e-12}
    expected = by_counting(values, sample)
    assert got == pytest.approx(expected)
    if expected:
        assert shares.sum() == pytest.approx(1.0)


def test_the_list_ends_when_enough_is_listed_but_never_amid_equals() -> None:
    # 1,000 nodes of which the best ten are equal: a sample of 420 has one of them with 1 - 0.58^10
    values = np.zeros(1_000)
    values[:10] = 5.0
    rows, shares = winners(values, 420, enough=0.99)
    assert sorted(rows.tolist()) == list(range(10))
    assert 0.99 < shares.sum() < 1.0
    rows, shares = winners(values, 420, enough=0.9999)
    assert len(rows) == 1_000
    assert shares.sum() == pytest.approx(1.0)


def test_of_no_feasible_node_none_wins() -> None:
    rows, shares = winners(np.full(3, -np.inf), 2, enough=0.99)
    assert len(rows) == len(shares) == 0
