"""A model of kube-scheduler: filters, scores, and where a replacement would land."""
