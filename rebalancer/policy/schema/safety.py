"""Sections of the policy file that remember: cooldowns, replacements on their way, the brake, other clusters."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rebalancer.policy.schema.types import Duration, FieldError, NonEmpty, Percent, Section, Selector


class BackoffPolicy(Section):
    """How long a service stays on a node after its move off it did not help; each time longer."""

    initial: Duration = 3600.0
    """The first time."""
    factor: Annotated[float, Field(ge=1)] = 2.0
    """Each further time it is so many times as long."""
    max: Duration = 7 * 86400.0
    """Never longer."""

    @model_validator(mode="after")
    def _in_order(self) -> "BackoffPolicy":
        if self.max < self.initial:
            raise FieldError("max", "expected max >= initial")
        return self


class Cooldowns(Section):
    """How long something is left alone after an eviction. Evictions of one cycle don't count against each other."""

    node: Duration = 300.0
    """Before a node is relieved again."""
    service: Duration = 300.0
    """Before another pod of a service is moved."""
    service_node: Duration = 3600.0
    """Before a service is moved off the same node again."""
    pool_after_scale_up: Duration = 600.0
    """After a node joined a pool: new nodes take load by themselves, and the autoscaler is at work."""
    new_node: Duration = 300.0
    """After a node joined: until then nothing is moved towards it."""
    backoff: BackoffPolicy = BackoffPolicy()
    """When a move did not help."""


class InFlight(Section):
    """When a replacement counts as late."""

    start_up: Duration = 300.0
    """The longest that a pod usually takes from being created to Ready; of services whose last moves were followed,
    what they took is used instead."""
    margin: Duration = 120.0
    """Added to it."""


class EffectivenessBreaker(Section):
    """Stops a pool for an hour when its nodes mostly don't cool after evictions."""

    sample_size: Annotated[int, Field(ge=1)] = 10
    """So many of the pool's newest assessments are looked at; with fewer nothing stops."""
    min_effectiveness: Percent = 30.0
    """Of these nodes so many must have been at or under their target after settling, in percent."""


class CircuitBreaker(Section):
    """Stops evictions while replacements don't become Ready, until they do, and where evictions don't help."""

    late_in_pool: Annotated[int, Field(ge=1)] = 2
    """Evictions past their deadline, replacement not Ready, that stop their pool."""
    late_in_cluster: Annotated[int, Field(ge=1)] = 3
    """The same for the whole cluster."""
    effect: EffectivenessBreaker = EffectivenessBreaker()
    """When evictions don't help."""


class CrossCluster(Section):
    """Services that run in several clusters."""

    mode: Literal["Deny", "Allow"] = "Deny"
    """Whether pods that a multi-cluster controller placed may be moved."""
    placed_by: Selector | None = None
    """Labels of such pods; absent: there are none."""
    separation: Duration = 600.0
    """A service is not moved in two clusters within this time."""
    min_ready_share: Percent | None = None
    """Of a service's wanted replicas over all clusters, so many must stay ready, in percent."""
    report_max_age: Duration = 300.0
    """A cluster's report that is older counts as nothing ready."""


class ServiceIdentity(Section):
    """What makes a service the same in every cluster."""

    label: NonEmpty | None = None
    """A pod label; without it (or on pods without it) namespace/name of the top owner."""


class Safety(Section):
    """What the program remembers and watches while it evicts."""

    cooldowns: Cooldowns = Cooldowns()
    """After evictions."""
    in_flight: InFlight = InFlight()
    """When a replacement is late."""
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    """When to stop."""
    cross_cluster: CrossCluster = CrossCluster()
    """Services in several clusters."""
    service_identity: ServiceIdentity = ServiceIdentity()
    """What makes a service the same everywhere."""
    max_wait: Duration = 60.0
    """A move that is due within this time is waited for; a later one is planned anew in another cycle."""
