"""The lab's controllers, scheduler and kubelets."""
