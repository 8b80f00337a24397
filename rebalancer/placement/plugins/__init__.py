"""kube-scheduler's filter and score plugins."""
