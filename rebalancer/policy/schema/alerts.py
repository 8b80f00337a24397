"""The `alerts` section of the policy file: which alert sets off which strategy, at which marks."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rebalancer.model.alerts import Alert
from rebalancer.policy.schema.types import AsTuple, Duration, FieldError, NonEmpty, Percent, Section, at_least


class AlertRule(Section):
    """Alerts of this name (and labels) set off a strategy. Marks that the alert carries go before those given here."""

    alert: NonEmpty
    """Its `alertname`."""
    labels: dict[str, str] = {}
    """Labels that it must have."""
    strategy: Literal["LowNodeUtilization"] = "LowNodeUtilization"
    """The strategy that it sets off; the policy must have it."""
    high: Percent | None = None
    """A node is hot for this alert above it; absent: the alert's annotation says so."""
    target: Percent | None = None
    """What the node is cooled to; absent: the annotation says so, or it is as far below high as the pool's own."""

    @model_validator(mode="after")
    def _in_order(self) -> "AlertRule":
        if self.high is not None and self.target is not None and self.target >= self.high:
            raise FieldError("target", f"expected target < high, got {self.target:g} and {self.high:g}")
        return self

    def names(self, alert: Alert) -> bool:
        """Whether it is about this alert."""
        return self.alert == alert.name and self.labels.items() <= alert.labels.items()


class Alerts(Section):
    """Alertmanager's webhook. What an alert rule calls hot is hot for us, and its `for` is our debounce."""

    rules: Annotated[tuple[AlertRule, ...], AsTuple] = ()
    """Alerts that no rule names are counted and forgotten."""
    node_labels: Annotated[tuple[NonEmpty, ...], AsTuple, Field(min_length=1)] = ("node", "instance")
    """Labels that may name the node, in this order: its name, or one of its addresses (a port is cut off)."""
    cluster_label: NonEmpty = "cluster"
    """An alert that has it must name this cluster."""
    require_cluster: bool = False
    """An alert without it is refused."""
    high_annotation: NonEmpty = "rebalancer_high"
    """Annotation with the percentage above which the node is hot."""
    target_annotation: NonEmpty = "rebalancer_target"
    """Annotation with the percentage that it is cooled to."""
    min_high: Percent = 50.0
    """No alert may set a high below it."""
    expire_after: Annotated[Duration, at_least(60)] = 3600.0
    """An episode that is open for so long, and that nothing was heard of since, is closed."""
    max_age: Annotated[Duration, at_least(60)] = 43200.0
    """An alert that started earlier, and of which we have not heard before, is a replay and ignored."""

    def rule_for(self, alert: Alert) -> AlertRule | None:
        """The first rule that names the alert."""
        return next((rule for rule in self.rules if rule.names(alert)), None)
