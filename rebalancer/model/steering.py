"""Our taint on nodes that kube-scheduler should rather avoid: it knows requests, not real CPU."""

SOFT_TAINT = "rebalancer.dev/steer"
"""Key of the taint; its effect is PreferNoSchedule, its value says why."""

HOT = "hot"
PREDICTED_HOT = "predicted-hot"
NO_ROOM = "no-room"
"""Not hot, but a likely landing that has no room in real CPU."""
CHOSEN = "chosen"
"""To be emptied later, by people's choice."""

DRAINING = "draining"
"""Cordoned by us while it is emptied, and afterwards until it is removed or let go."""
MAINTENANCE = "maintenance"
"""Cordoned by us for as long as it is chosen for maintenance."""

CORDONS = (DRAINING, MAINTENANCE)
"""Values of our taint that say that the cordon is ours, too: only such a node is ever uncordoned by us."""
