"""A request for a cycle: its trigger and the part of the cluster that it covers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from rebalancer.model.decisions.alerts import ThresholdOverride
from rebalancer.model.decisions.plan import Trigger
from rebalancer.policy.schema.types import TRIGGERS, TriggerName

# what a cycle with several triggers is recorded as: the most urgent
_URGENCY = (Trigger.PERIODIC, Trigger.FORECAST, Trigger.ALERT, Trigger.MANUAL)

_BY_ITSELF: Mapping[Trigger, TriggerName] = {
    Trigger.PERIODIC: "Periodic",
    Trigger.ALERT: "Alert",
    Trigger.FORECAST: "Forecast",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestScope:
    """A part of the cluster."""

    strategy: str | None = None
    """Name of the strategy; None = all."""
    pools: frozenset[str] | None = None
    """None = all pools of the strategy."""
    nodes: frozenset[str] | None = None
    """None = all."""
    trigger: Trigger | None = None
    """What asks for it: strategies without this trigger are left out. None = that of the request."""

    def covers(self, strategy: str, triggers: Collection[TriggerName]) -> bool:
        """Whether it is about the strategy of this name, which these triggers start. A person may ask for any."""
        name = _BY_ITSELF.get(self.trigger or Trigger.MANUAL)
        return self.strategy in (None, strategy) and (name is None or name in triggers)


WHOLE_CLUSTER = RequestScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRequest:
    """See the module."""

    trigger: Trigger = Trigger.MANUAL
    scopes: frozenset[RequestScope] = frozenset({WHOLE_CLUSTER})
    """The cycle covers their union."""
    thresholds: Mapping[tuple[str, str], ThresholdOverride] = field(default_factory=dict)
    """(node, resource) -> thresholds of an alert."""
    due: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(node, resource) to be relieved ahead of its peak -> when it is hot (seconds since the epoch)."""

    def __post_init__(self) -> None:
        scopes = frozenset(replace(each, trigger=each.trigger or self.trigger) for each in self.scopes)
        object.__setattr__(self, "scopes", scopes)

    def merged(self, other: "CycleRequest") -> "CycleRequest":
        """The union of both requests."""
        return CycleRequest(
            trigger=max(self.trigger, other.trigger, key=_URGENCY.index),
            scopes=self.scopes | other.scopes,
            thresholds={**self.thresholds, **other.thresholds},
            due={**self.due, **other.due},
        )

    def nodes_for(
        self, strategy: str, pool_of_node: Mapping[str, str], *, triggers: Collection[TriggerName] = TRIGGERS
    ) -> frozenset[str] | None:
        """The nodes that the request covers for the strategy of this name, which `triggers` start; None = all."""
        mine = [scope for scope in self.scopes if scope.covers(strategy, triggers)]
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
