import resource
import sys

import numpy as np
import pytest

from rebalancer.model.measured.day_grid import DayGrid


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kibibytes on Linux")
def test_rows_of_a_day_that_are_never_added_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grid = DayGrid(rows=1_000_000)  # 1,100 MiB when written
    grid.part("a", 3, 2)[:] = 7
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024
    assert np.flatnonzero(np.isfinite(grid.values)).tolist() == [3, 4]


def test_rows_without_data_are_nan_before_and_after_the_grid_grows() -> None:
    grid = DayGrid(first=10, end=14, rows=1)
    for number in range(2000):
        grid.part(f"p{number}", 11, 1)[:] = number
    assert grid.values[:, 1].tolist() == [float(number) for number in range(2000)]
    assert np.isnan(grid.values[:, [0, 2, 3]]).all()
