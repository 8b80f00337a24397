"""A request for a cycle: its trigger, and the part of the cluster that it covers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalancer.model.alerts import ThresholdOverride
from rebalancer.model.plan import Trigger

# what a cycle with several triggers is recorded as: the most urgent
_URGENCY = (Trigger.PERIODIC, Trigger.FORECAST, Trigger.ALERT, Trigger.MANUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestScope:
    """Which part of the cluster one reason asks to be looked at."""

    strategy: str | None = None
    """Name of the strategy; None = all."""
    pools: frozenset[str] | None = None
    """None = all that the strategy looks at."""
    nodes: frozenset[str] | None = None
    """None = all."""


WHOLE_CLUSTER = RequestScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRequest:
    """What a cycle is to do."""

    trigger: Trigger = Trigger.MANUAL
    scopes: frozenset[RequestScope] = frozenset({WHOLE_CLUSTER})
    """Looked at is what any of them asks for."""
    marks: Mapping[str, ThresholdOverride] = field(default_factory=dict)
    """Node -> what an alert calls hot there."""
    due: Mapping[str, float] = field(default_factory=dict)
    """Nodes that are to be relieved now, ahead of their peak -> when it is too late for that (they are hot by then)."""

    def merged(self, other: "CycleRequest") -> "CycleRequest":
        """Both in one."""
        return CycleRequest(
            trigger=max(self.trigger, other.trigger, key=_URGENCY.index),
            scopes=self.scopes | other.scopes,
            marks={**self.marks, **other.marks},
            due={**self.due, **other.due},
        )

    def nodes_for(self, strategy: str, pool_of_node: Mapping[str, str]) -> frozenset[str] | None:
        """The nodes that a strategy is to look at; None = all, empty = it isn't asked for."""
        mine = [scope for scope in self.scopes if scope.strategy in (None, strategy)]
        if any(scope.pools is None and scope.nodes is None for scope in mine):
            return None
        return frozenset(
            node
            for node, pool in pool_of_node.items()
            if any(
                (scope.pools is None or pool in scope.pools) and (scope.nodes is None or node in scope.nodes)
                for scope in mine
            )
        )
