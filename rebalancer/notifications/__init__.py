"""Notifications out: messages, their rendering for Slack and Alertmanager, and the queue that sends them."""
