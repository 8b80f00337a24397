"""The `safety` section of the policy file: cooldowns, late replacements, circuit breaker, other clusters."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rebalancer.policy.schema.types import (
    Duration,
    FieldError,
    Globs,
    Names,
    NonEmpty,
    Percent,
    Section,
    Selector,
)


class BackoffPolicy(Section):
    """Exponential backoff."""

    initial: Duration = 3600.0
    """First delay."""
    factor: Annotated[float, Field(ge=1)] = 2.0
    """Factor between consecutive delays."""
    max: Duration = 7 * 86400.0
    """Longest delay."""

    @model_validator(mode="after")
    def _in_order(self) -> "BackoffPolicy":
        if self.max < self.initial:
            raise FieldError("max", "expected max >= initial")
        return self


class Cooldowns(Section):
    """Time for which something is left alone. Evictions of one cycle do not count against each other."""

    node: Duration = 300.0
    """Between cycles that evict from the same node."""
    service: Duration = 300.0
    """Between evictions of pods of the same service."""
    service_node: Duration = 3600.0
    """Between evictions of the same service from the same node."""
    pool_after_scale_up: Duration = 600.0
    """For the hot nodes of a pool after a scale-up, while new nodes receive pods anyway. Other strategies continue."""
    scale_up_share: Percent = 20.0
    """Percentage of a pool's nodes that must have joined within `poolAfterScaleUp`. Fewer count for two minutes only,
    while pods that a new node could take are unschedulable."""
    new_node: Duration = 300.0
    """For a node that joined: until then it is no target node."""
    backoff: BackoffPolicy = BackoffPolicy()
    """Of a service on a node, after ineffective evictions from it."""
    webhook_backoff: BackoffPolicy = BackoffPolicy.model_validate({"initial": "5m", "max": "1d"})
    """Of a service on every node, after an admission webhook refused the eviction of one of its pods."""


class InFlight(Section):
    """When a replacement counts as late."""

    start_up: Duration = 300.0
    """Usual maximum time of a pod from creation to Ready. For services with measured start times those are used."""
    margin: Duration = 120.0
    """Added to the start time."""
    max_late: Duration = 3600.0
    """An eviction that is late for longer is closed and reported: it is no longer in flight, and opens no circuit
    breaker."""


class EffectivenessBreaker(Section):
    """Stops a pool for an hour if evictions from it are mostly ineffective."""

    sample_size: Annotated[int, Field(ge=1)] = 10
    """Number of the pool's newest assessments that are considered; with fewer the pool is not stopped."""
    min_effectiveness: Percent = 30.0
    """Minimum percentage of them with the node at or under its target after the settling time."""


class CircuitBreaker(Section):
    """Stops evictions while replacements are late, and where evictions are ineffective."""

    late_in_pool: Annotated[int, Field(ge=1)] = 2
    """Number of late replacements of a pool that stops the pool."""
    late_in_cluster: Annotated[int, Field(ge=1)] = 3
    """Number of late replacements that stops the whole cluster."""
    effect: EffectivenessBreaker = EffectivenessBreaker()
    """Stop because of ineffective evictions."""


class LeavingNodes(Section):
    """Which nodes are about to go, besides those with the taints and conditions that are built in.

    Their pods don't count as replicas that stay, and their replacements count where they will land.
    """

    taints: Globs = ()
    """Patterns of taint keys."""
    conditions: Names = ()
    """Types of node conditions, when True."""
    cordon: Duration = 3600.0
    """For how long after a cordon by others a node counts as leaving; 0s = not at all."""


class Disturbance(Section):
    """Stops evictions after many nodes or services of a zone, a pool or the cluster have turned unready."""

    share: Percent = 25.0
    """Percentage of nodes, at least 3, or of services, at least 5, that turned unready within 10 minutes. Of services
    the namespace with most of them is left out. Nodes over `planner.urgent` are relieved in any case."""


class CrossCluster(Section):
    """Services that run in several clusters."""

    mode: Literal["Deny", "Allow"] = "Deny"
    """Whether pods placed by a multi-cluster controller may be evicted."""
    placed_by: Selector | None = None
    """Labels of such pods; absent: there are none."""
    separation: Duration = 600.0
    """Minimum time between evictions of a service in two clusters."""
    min_ready_share: Percent | None = None
    """Minimum percentage of a service's desired replicas over all clusters that must stay Ready."""
    report_max_age: Duration = 300.0
    """If a cluster's report is older, its replicas count as not Ready."""


class ServiceIdentity(Section):
    """Key under which a service counts as one over all clusters."""

    label: NonEmpty | None = None
    """Pod label that holds the key. Default, and for pods without the label: namespace/name of the top owner."""


class Safety(Section):
    """Protection against repeated, unfinished and ineffective evictions."""

    cooldowns: Cooldowns = Cooldowns()
    """Cooldowns after evictions."""
    in_flight: InFlight = InFlight()
    """When a replacement counts as late."""
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    """When evictions stop."""
    leaving_nodes: LeavingNodes = LeavingNodes()
    """Which nodes are about to go."""
    disturbance: Disturbance = Disturbance()
    """When many nodes or services turn unready."""
    cross_cluster: CrossCluster = CrossCluster()
    """Services in several clusters."""
    service_identity: ServiceIdentity = ServiceIdentity()
    """Key of a service over all clusters."""
    max_wait: Duration = 60.0
    """A move that `spacing` delays by at most this time is waited for; one delayed longer is left to a later cycle."""
