"""Import of a DeschedulerPolicy of kubernetes-sigs/descheduler."""
