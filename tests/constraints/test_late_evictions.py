"""Late replacements: what they stop."""

import pytest

from rebalancer.constraints.moves.in_flight import LateEvictions
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.safety import CircuitBreaker
from tests.builders import an_eviction

BREAKER = CircuitBreaker.model_validate({"lateInPool": 2, "lateInCluster": 3})


def late(service: str, pool: str) -> Eviction:
    return an_eviction(service_identity=service, pool=pool)


@pytest.mark.parametrize(
    ("evictions", "stopped"),
    [
        ([], {}),
        ([late("web", "a")], {("a", "web"): Reason.REPLACEMENT_LATE, ("b", "web"): Reason.REPLACEMENT_LATE}),
        (
            [late("web", "a"), late("api", "a")],
            {
                ("a", "web"): Reason.CIRCUIT_BREAKER_OPEN,
                ("a", "mail"): Reason.CIRCUIT_BREAKER_OPEN,
                ("b", "web"): Reason.REPLACEMENT_LATE,
            },
        ),
        (
            [late("web", "a"), late("api", "b"), late("job", "c")],
            {
                ("a", "web"): Reason.CIRCUIT_BREAKER_OPEN,
                ("a", "mail"): Reason.CIRCUIT_BREAKER_OPEN,
                ("b", "web"): Reason.CIRCUIT_BREAKER_OPEN,
                ("b", "mail"): Reason.CIRCUIT_BREAKER_OPEN,
            },
        ),
    ],
    ids=["none", "a service", "a pool", "the cluster"],
)
def test_late_replacements_stop_their_service_then_their_pool_then_all(
    evictions: list[Eviction], stopped: dict[tuple[str, str], Reason]
) -> None:
    found = LateEvictions(evictions, BREAKER)
    refusals = {
        (pool, service): refusal.code
        for pool in ("a", "b")
        for service in ("web", "mail")
        if (refusal := found.refuses(pool=pool, service=service)) is not None
    }
    assert refusals == stopped
