"""Whether a replacement may land where kube-scheduler would put it."""
