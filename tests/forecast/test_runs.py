import numpy as np
import pytest

from rebalancer.forecast.series.runs import any_of_runs, sums_of_runs


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_rows_are_summed_as_from_the_definition(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = chance.integers(1, 9, 30)
    starts = np.cumsum(np.append(0, sizes[:-1]))
    values = chance.random((int(sizes.sum()), 24), dtype=np.float32)
    values[chance.random(len(values)) < 0.1, 3] = np.nan
    present = chance.random(values.shape) < chance.random((len(values), 1)) + 0.3
    assert sums_of_runs(values, starts) == pytest.approx(np.add.reduceat(values, starts, axis=0), nan_ok=True)
    assert any_of_runs(present, starts).tolist() == np.logical_or.reduceat(present, starts, axis=0).tolist()


def test_no_rows_have_no_runs() -> None:
    none = np.empty(0, dtype=np.intp)
    assert sums_of_runs(np.empty((0, 4), dtype=np.float32), none).shape == (0, 4)
    assert any_of_runs(np.empty((0, 4), dtype=np.bool_), none).shape == (0, 4)
