"""Schedules of CronJobs that have a name."""

NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Name -> minute, hour, day of the month, month and weekday. Source: the Kubernetes documentation of CronJob."""
