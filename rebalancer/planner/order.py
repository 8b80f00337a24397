"""Which candidate first: by what it relieves against the excess, then by what its move costs.

One pod that covers the excess is better than several, and among those the one that overshoots least; otherwise the
largest. Reliefs are compared in coarse steps, so that a few millicores never outweigh priority, QoS or age. The order
is total: the last tie-break is the name.
"""

import math

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.snapshot import Pod

Floats = NDArray[np.float64]

OVERSHOOT_STEP = 0.25
RELIEF_STEPS = 10
QOS_RANK = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


def relief(load: Floats, excess: Floats) -> float:
    """The share of a node's excess that a pod's load (resources,) would take away, 0..1: the mean over the resources
    that exceed, each counted up to 1."""
    over = excess > 0
    if not over.any():
        return 0.0
    return float(np.minimum(load[over] / excess[over], 1.0).mean())


def order_key(pod: Pod, load: Floats, excess: Floats) -> tuple[int, int, int, int, float, str, str]:
    """Smaller is better."""
    over = excess > 0
    share = relief(load, excess)
    if share >= 1.0:
        overshoot = float((load[over] / excess[over]).max()) - 1.0
        step = (0, math.floor(overshoot / OVERSHOOT_STEP))
    else:
        step = (1, -math.ceil(share * RELIEF_STEPS))
    return (*step, pod.priority, QOS_RANK.get(pod.shape.qos, 2), -pod.created, pod.namespace, pod.name)
