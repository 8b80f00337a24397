"""kube-scheduler's decision for one pod."""
