"""Types of columns, as numpy has them."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Rows = NDArray[np.int64]
"""Indices of rows."""
