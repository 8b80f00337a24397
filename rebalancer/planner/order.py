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


def reliefs(loads: Floats, excess: Floats) -> tuple[Floats, Floats]:
    """(pods,) the share of a node's excess that each pod's load would take away, and by how much it overshoots.

    `loads` (pods, resources), `excess` (resources,). The share, 0..1, is the mean over the resources that exceed, each
    counted up to 1; the overshoot is the largest load/excess less 1.
    """
    over = excess > 0
    if not over.any():
        return np.zeros(len(loads)), np.zeros(len(loads))
    ratio = loads[:, over] / excess[over]
    return np.minimum(ratio, 1.0).mean(axis=1), ratio.max(axis=1) - 1.0


def order_key(
    pod: Pod, share: float, overshoot: float, cost: float
) -> tuple[int, int, float, int, int, float, str, str]:
    """Smaller is better. `cost` is the service level's."""
    step = (0, math.floor(overshoot / OVERSHOOT_STEP)) if share >= 1.0 else (1, -math.ceil(share * RELIEF_STEPS))
    return (*step, cost, pod.priority, QOS_RANK.get(pod.template.qos, 2), -pod.created, pod.namespace, pod.name)
