"""The soft taint on nodes that kube-scheduler should avoid: it knows requests, not CPU usage."""

SOFT_TAINT = "rebalancer.dev/steer"
"""Key of the taint; its effect is PreferNoSchedule, its value is the cause."""

HOT = "hot"
PREDICTED_HOT = "predicted-hot"
NO_ROOM = "no-room"
"""Not hot, but a likely target node without headroom in CPU usage."""
CHOSEN = "chosen"
"""Chosen by an administrator to be emptied later."""

DRAINING = "draining"
"""Cordoned by the rebalancer while the node is emptied, and afterwards until it is removed or released."""
MAINTENANCE = "maintenance"
"""Cordoned by the rebalancer for as long as the node is chosen for maintenance."""

CORDONS = (DRAINING, MAINTENANCE)
"""Values of the taint on nodes that the rebalancer has cordoned: only these are ever uncordoned by it."""
