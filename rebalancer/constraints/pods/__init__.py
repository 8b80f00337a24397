"""Rules about a pod, whatever the plan: guards, lists, service levels."""
