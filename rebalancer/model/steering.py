"""Our taint on nodes that kube-scheduler should rather avoid: it knows requests, not real CPU."""

STEERING_TAINT = "rebalancer.dev/steer"
"""Key of the taint; its effect is PreferNoSchedule, its value says why."""

HOT = "hot"
PREDICTED_HOT = "predicted-hot"
NO_ROOM = "no-room"
"""Not hot, but a likely landing that has no room in real CPU."""
