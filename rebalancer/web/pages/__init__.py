"""Pages of the dashboard, reports and replays, with their charts."""
