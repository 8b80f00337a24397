"""HorizontalPodAutoscalers as the snapshot has them."""

from collections.abc import Iterator

from rebalancer.kube.snapshot.owners import known_kind
from rebalancer.kube.snapshot.quarantine import whole
from rebalancer.kube.snapshot.records import Condition, Meta, Object, Wire
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.cluster.autoscaling import DEFAULT_TOLERANCE, HorizontalAutoscaler, ScalingMetric
from rebalancer.model.cluster.objects import Int32
from rebalancer.model.notation.quantity import readable

NEEDED = ("AbleToScale", "ScalingActive")
"""Conditions that are not False while it scales."""


class CrossReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class MetricFigure(Wire, frozen=True):
    """A target or a current value; of a target one of the two is set."""

    average_utilization: Int32 | None = None
    average_value: str | None = None


class ResourceMetric(Wire, frozen=True):
    name: str = ""
    container: str = ""
    target: MetricFigure = MetricFigure()
    current: MetricFigure = MetricFigure()


class AutoscalerMetric(Wire, frozen=True):
    type: str = ""
    resource: ResourceMetric | None = None
    container_resource: ResourceMetric | None = None


class ScalingRules(Wire, frozen=True):
    tolerance: str | None = None


class AutoscalerBehavior(Wire, frozen=True):
    scale_up: ScalingRules | None = None


class AutoscalerSpec(Wire, frozen=True):
    scale_target_ref: CrossReference = CrossReference()
    metrics: list[AutoscalerMetric] | None = None
    behavior: AutoscalerBehavior | None = None


class AutoscalerStatus(Wire, frozen=True):
    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    last_scale_time: str | None = None
    current_metrics: list[AutoscalerMetric] | None = None
    conditions: list[Condition] | None = None


class Autoscaler(Object, frozen=True):
    """A HorizontalPodAutoscaler of autoscaling/v2."""

    metadata: Meta
    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()


def autoscaler_of(autoscaler: Autoscaler) -> HorizontalAutoscaler:
    """The record as a `HorizontalAutoscaler`; a figure that is no quantity is left out.

    Raises ValueError where it could not be read in full.
    """
    whole(autoscaler)
    meta, spec, status = autoscaler.metadata, autoscaler.spec, autoscaler.status
    target = spec.scale_target_ref
    rules = spec.behavior.scale_up if spec.behavior is not None else None
    tolerance = _amount(rules.tolerance) if rules is not None else None
    return HorizontalAutoscaler(
        name=meta.name,
        namespace=meta.namespace,
        target=(known_kind(target.api_version, target.kind), target.name),
        current=status.current_replicas,
        desired=status.desired_replicas,
        active=not any(each.type in NEEDED and each.status == "False" for each in status.conditions or ()),
        last_scaled=epoch_seconds(status.last_scale_time),
        metrics=tuple(_metrics(autoscaler)),
        tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
    )


def _metrics(autoscaler: Autoscaler) -> Iterator[ScalingMetric]:
    now = {_key(each): each.current for metric in autoscaler.status.current_metrics or () if (each := _of_pods(metric))}
    for metric in autoscaler.spec.metrics or ():
        wanted = _of_pods(metric)
        if wanted is None or (found := now.get(_key(wanted))) is None:
            continue
        current, target = _figures(found, wanted.target)
        if current is not None and target:
            name = f"{wanted.name} of {wanted.container}" if wanted.container else wanted.name
            yield ScalingMetric(name=name, current=current, target=target)


def _figures(found: MetricFigure, target: MetricFigure) -> tuple[float | None, float | None]:
    """The current mean and the target in one unit."""
    if target.average_utilization is not None:
        return found.average_utilization, target.average_utilization
    return _amount(found.average_value), _amount(target.average_value)


def _of_pods(metric: AutoscalerMetric) -> ResourceMetric | None:
    return metric.resource or metric.container_resource


def _key(metric: ResourceMetric) -> tuple[str, str]:
    return metric.name, metric.container


def _amount(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return readable(text)
    except ValueError:
        return None
