"""The `alerts` section of the policy file: which alerts trigger which strategy, with which thresholds."""

from typing import Annotated

from pydantic import Field, model_validator

from rebalancer.model.decisions.alerts import Alert
from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy.schema.types import AsTuple, Duration, FieldError, NonEmpty, Percent, Section, at_least

THRESHOLD_STRATEGY = "LowNodeUtilization"
"""The strategy whose thresholds an alert may replace."""


class AlertRule(Section):
    """Alerts of this name (and labels) start a strategy for their node. Thresholds in the alert's annotations take
    precedence."""

    alert: NonEmpty
    """The `alertname`."""
    labels: dict[str, str] = {}
    """Labels that the alert must have."""
    strategy: NonEmpty = THRESHOLD_STRATEGY
    """The strategy that it starts for its node; must be one of the policy. Thresholds and `resource` are for
    LowNodeUtilization; the others decide by their own arguments, as in their periodic cycles."""
    resource: NonEmpty = CPU
    """The resource that the alert is about: `cpu`, `memory` or a name of `usage.prometheus.resources`. The alert's
    annotation takes precedence. The node's pool must have thresholds of it."""
    high: Percent | None = None
    """A node above it is hot for this alert. Default: the alert's annotation, else the pool's."""
    target: Percent | None = None
    """The node is cooled to it. Default: the alert's annotation, else as far below `high` as the pool's."""

    @property
    def sets_thresholds(self) -> bool:
        """Whether the strategy takes thresholds of an alert."""
        return self.strategy == THRESHOLD_STRATEGY

    @model_validator(mode="after")
    def _in_order(self) -> "AlertRule":
        for field in () if self.sets_thresholds else ("high", "target", "resource"):
            if field in self.model_fields_set:
                raise FieldError(field, f"expected it with {THRESHOLD_STRATEGY} only, got it with {self.strategy}")
        if self.high is not None and self.target is not None and self.target >= self.high:
            raise FieldError("target", f"expected target < high, got {self.target:g} and {self.high:g}")
        return self

    def names(self, alert: Alert) -> bool:
        """Whether the rule applies to an alert."""
        return self.alert == alert.name and self.labels.items() <= alert.labels.items()


class Alerts(Section):
    """Alertmanager's webhook. A node with such an alert is hot; the `for` of the alert rule replaces the stabilization
    window."""

    rules: Annotated[tuple[AlertRule, ...], AsTuple] = ()
    """Which alerts trigger cycles. Other alerts are counted and ignored."""
    node_labels: Annotated[tuple[NonEmpty, ...], AsTuple, Field(min_length=1)] = ("node", "instance")
    """Labels that may identify the node, in this order: by its name or one of its addresses (a port is ignored)."""
    cluster_label: NonEmpty = "cluster"
    """Label that identifies the cluster. An alert of another cluster is ignored."""
    require_cluster: bool = False
    """Whether alerts without that label are ignored."""
    high_annotation: NonEmpty = "rebalancer_high"
    """Annotation that holds `high` for the node, in percent."""
    target_annotation: NonEmpty = "rebalancer_target"
    """Annotation that holds `target` for the node, in percent."""
    resource_annotation: NonEmpty = "rebalancer_resource"
    """Annotation that holds the name of the resource. An alert about an unknown resource is ignored."""
    min_high: Percent = 50.0
    """Lowest `high` that an alert may set."""
    min_target: Percent | None = None
    """Lowest `target` that an alert's annotation may set. Default: 10 below `minHigh`."""
    max_excess: Percent = 30.0
    """Most that alerts take off a node of their resource, in percent of its capacity. It counts all evictions from the
    node since the alert came, at least those within `expireAfter`; the last pod may exceed it. The pool's own `target`
    holds in any case."""
    expire_after: Annotated[Duration, at_least(60)] = 3600.0
    """An open alert is closed after this time without news of it."""
    max_age: Annotated[Duration, at_least(60)] = 43200.0
    """A new alert that started longer ago is a replay and ignored."""

    @model_validator(mode="after")
    def _target_below_high(self) -> "Alerts":
        if self.min_target is not None and self.min_target >= self.min_high:
            raise FieldError(
                "minTarget", f"expected minTarget < minHigh, got {self.min_target:g} and {self.min_high:g}"
            )
        return self

    @property
    def lowest_target(self) -> float:
        """`minTarget` or its default, in percent."""
        return self.min_target if self.min_target is not None else max(self.min_high - 10.0, 0.0)

    def rule_for(self, alert: Alert) -> AlertRule | None:
        """The first rule that applies to the alert."""
        return next((rule for rule in self.rules if rule.names(alert)), None)

    def resource_of(self, alert: Alert) -> str:
        """The resource that an alert with a rule is about, known or not."""
        rule = self.rule_for(alert)
        stated = alert.annotations.get(self.resource_annotation, "").strip()
        return stated or (rule.resource if rule is not None else CPU)
