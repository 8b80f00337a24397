"""Strategies that go by the load of nodes, and of pods on them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy.schema.strategies.base import ARGS, NAME, Need, PodArgs, StrategyBase
from rebalancer.policy.schema.types import Duration, FieldError, NonEmpty, Percent, Section, at_least

STUCK_SECONDS = 3600.0
"""A draining node that no pod could be evicted from for this long is uncordoned; longer if `cordonAfterDrain` is."""


class UtilizationArgs(Section):
    """Arguments of LowNodeUtilization."""

    source: Literal["CPU", "Requests"] = "CPU"
    """Real CPU, or the requests of pods."""


class HighNodeUtilizationArgs(Section):
    """Arguments of HighNodeUtilization."""

    source: Literal["CPU", "Requests"] = "CPU"
    """What makes a node low: real CPU below the pool's `thresholds.low`, or requests below all of
    `requestThresholds.low`."""
    mode: Literal["Drain", "Release"] = "Drain"
    """Drain drains low nodes. Release evicts pods from nodes that are full by requests and idle by usage."""
    whole_nodes: bool = True
    """Drain: whether a node is left alone unless all its pods fit elsewhere. false: pods that fit are evicted."""
    drain_when_all_low: bool = True
    """Drain: whether nodes are drained while all nodes of their pool are low; then fuller low nodes take the pods.
    false: no node is, as in the community's descheduler."""
    max_concurrent_nodes: Annotated[int, Field(ge=1)] = 1
    """Drain: maximum number of nodes of the cluster at a time. Each is cordoned until it is drained, or uncordoned if
    that fails."""
    cordon_after_drain: Annotated[Duration, at_least(0)] = 1800.0
    """Drain: how long a drained node stays cordoned, for an autoscaler to remove it."""
    headroom: Annotated[float, Field(ge=0, le=50)] = 5.0
    """Percentage points below `target` that target nodes keep free: now, at their predicted peak and at the highest of
    the coming week."""
    resource: NonEmpty = CPU
    """Release: `cpu`, `memory`, or a name of `usage.prometheus.resources` that pods request too."""
    full: Percent = 85.0
    """Release: a node is full if at least this percentage of its allocatable `resource` is requested."""
    idle: Percent = 30.0
    """Release: a full node is idle if at most this percentage of its `resource` is in use."""
    release_target: Percent = 70.0
    """Release: requested percentage to which the node is relieved."""
    min_age: Annotated[Duration, at_least(0)] = 30 * 86_400.0
    """Release: minimum age of the pods evicted."""

    @model_validator(mode="after")
    def _release_in_order(self) -> "HighNodeUtilizationArgs":
        if self.release_target >= self.full:
            raise FieldError(
                "releaseTarget",
                f"expected releaseTarget < full, got releaseTarget {self.release_target:g} and full {self.full:g}",
            )
        return self


class InterferenceArgs(PodArgs):
    """Arguments of Interference. Pressure comes from PSI, throttling from the CFS quota; both are shares of time."""

    node_pressure: Percent = 30.0
    """A node is affected if its tasks waited for CPU for at least this percentage of time."""
    pod_pressure: Percent = 30.0
    """A pod is affected if its tasks waited for at least this percentage of time while it used no more than it
    requests."""
    excess: Percent = 20.0
    """A pod is a noisy neighbour if it uses more than it requests by at least this percentage of the node's CPU."""


class ServiceSpreadArgs(PodArgs):
    """Arguments of ServiceSpread."""

    min_correlation: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Minimum correlation of the load profiles of two services that peak together."""
    min_days: Annotated[int, Field(ge=1)] = 3
    """Minimum days of history of a service."""
    min_share: Percent = 5.0
    """Minimum percentage of a node's CPU that one pod of the service uses at its peak."""
    feature: NonEmpty | None = None
    """Pod label: services with the same value should not share a node, whatever their load profiles."""


class LowNodeUtilization(StrategyBase):
    """Cools nodes above `high` to `target`, where others have headroom."""

    MODULE = "utilization.low_node_utilization"
    BALANCE = "Spread"

    name: Annotated[Literal["LowNodeUtilization"], NAME]
    args: Annotated[UtilizationArgs, ARGS] = UtilizationArgs()

    @property
    def by_cpu(self) -> bool:
        return self.args.source == "CPU"

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"]:
        return "thresholds" if self.by_cpu else "request_thresholds"


class HighNodeUtilization(StrategyBase):
    """Drains low nodes so that an autoscaler can remove them, or releases requests on nodes that are full but idle."""

    MODULE = "utilization.high_node_utilization"
    CORDONS = True
    BALANCE = "Pack"

    name: Annotated[Literal["HighNodeUtilization"], NAME]
    args: Annotated[HighNodeUtilizationArgs, ARGS] = HighNodeUtilizationArgs()

    @property
    def pool_thresholds(self) -> Literal["thresholds", "request_thresholds"] | None:
        if self.args.mode == "Release":
            return None
        return "thresholds" if self.args.source == "CPU" else "request_thresholds"

    @property
    def memory_seconds(self) -> float:
        """For as long as it keeps drained nodes cordoned, or waits until more pods can leave."""
        return max(self.args.cordon_after_drain, STUCK_SECONDS)


class Interference(StrategyBase):
    """Evicts a noisy neighbour: a pod that makes others wait for CPU although the node is not hot."""

    MODULE = "utilization.interference"
    NEEDS = frozenset({Need.CONTENTION})

    name: Annotated[Literal["Interference"], NAME]
    args: Annotated[InterferenceArgs, ARGS] = InterferenceArgs()


class ServiceSpread(StrategyBase):
    """Evicts pods of services that share a node and peak together, or share a value of `feature`."""

    MODULE = "utilization.service_spread"
    NEEDS = frozenset({Need.DAYS})

    name: Annotated[Literal["ServiceSpread"], NAME]
    args: Annotated[ServiceSpreadArgs, ARGS] = ServiceSpreadArgs()


OF_NODES = (LowNodeUtilization, HighNodeUtilization)
OF_PODS = (Interference, ServiceSpread)
