"""What a cluster did over some days, from Prometheus."""

from rebalancer.prometheus.recorded.state import RecordedState, recorded_state

__all__ = ["RecordedState", "recorded_state"]
