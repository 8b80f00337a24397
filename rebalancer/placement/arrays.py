"""Array types of this room. Rows are indices of nodes."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

EPS = 1e-6
"""Slack for sums of fractional bookings; whole pods add up exactly."""
