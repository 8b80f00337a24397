"""Recorded alerts in a replay: each asks for its node as long as it fired.

Whether its node is as hot as then is measured in the replay, as in the daemon: an alert about a node that the replay
has cooled changes nothing.
"""

from collections.abc import Sequence

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.triggers.alert_requests import (
    ActionableEpisode,
    AlertedNodes,
    excess_since,
    resolve_episode,
    with_alerts,
)
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.model.decisions.alerts import Alert, AlertEpisode
from rebalancer.model.recordings.recording import RecordedAlert
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools


class ReplayedAlerts:
    """The alerts of a recording that a policy has a rule for."""

    def __init__(self, alerts: Sequence[RecordedAlert], policy: RebalancerPolicy) -> None:
        found = [
            AlertEpisode(
                id=number,
                alert=Alert(
                    fingerprint=str(number),
                    firing=True,
                    labels=each.labels,
                    annotations=each.annotations,
                    starts_at=each.at,
                    ends_at=each.until,
                ),
                received_at=each.at,
                next_at=each.at,
            )
            for number, each in enumerate(alerts)
        ]
        self._policy = policy
        self._episodes = sorted(
            (each for each in found if policy.alerts.rule_for(each.alert) is not None),
            key=lambda each: each.alert.starts_at,
        )
        self._started = 0

    @property
    def next_at(self) -> float:
        """When the next alert begins; inf for none."""
        left = self._episodes[self._started :]
        return left[0].alert.starts_at if left else float("inf")

    def asked(self, context: CycleContext, request: CycleRequest | None, now: float) -> CycleRequest | None:
        """The request with the nodes of the alerts that fire now."""
        while self.next_at <= now:
            self._started += 1
        firing = [each for each in self._episodes[: self._started] if each.alert.fires_at(now)]
        if not firing:
            return request
        policy, snapshot = self._policy, context.cluster.snapshot()
        moves = context.records.recent_moves(min(excess_since(each, policy, now) for each in firing))
        nodes = AlertedNodes(snapshot, NodePools.of(policy.pools, snapshot.nodes).by_node, moves)
        read = [resolve_episode(each, nodes, policy, now=now) for each in firing]
        return with_alerts(request, [each for each in read if isinstance(each, ActionableEpisode)])
