"""Hot minutes from means of five minutes, against the same load by the minute."""

import numpy as np
import pytest

from rebalancer.replay.comparison.hot_minutes import hot_minutes


def by_the_minute(load: np.ndarray) -> int:
    """Minutes at whose end the mean of the last five was over 0.75, of a load by the second."""
    sums = np.concatenate([[0.0], np.cumsum(load)])
    ends = np.arange(300, len(load) + 1, 60)
    return int(((sums[ends] - sums[ends - 300]) / 300.0 > 0.75).sum())


@pytest.mark.parametrize("period_minutes", [30.0, 45.0, 60.0, 1440.0])
@pytest.mark.parametrize("height", [0.02, 0.06, 0.2])
def test_short_and_long_peaks_last_about_as_long_as_they_did(period_minutes: float, height: float) -> None:
    seconds = np.arange(2 * 86_400)
    load = 0.72 + height * np.sin(2 * np.pi * seconds / (60.0 * period_minutes))
    means = load.reshape(1, -1, 300).mean(axis=2)
    counted = hot_minutes(means, np.array([0.75])).sum()
    assert counted == pytest.approx(by_the_minute(load), rel=0.08, abs=3)


def test_a_node_is_not_hot_while_it_is_not_known() -> None:
    means = np.array([[0.9, 0.9, np.nan, np.nan, 0.9, 0.5, 0.5], [0.9] * 7])
    counted = hot_minutes(means, np.array([0.75, np.nan]))
    assert counted[0].tolist()[:4] == [5.0, 5.0, 0.0, 0.0]
    assert 3.0 <= counted[0, 4] <= 5.0
    assert counted[0, 6] == 0.0
    assert not counted[1].any()
