"""The first, simple `admit`: how many in a cycle, from a node, of a service."""

import pytest

from rebalancer.constraints.admission import CycleLimits
from rebalancer.model.plan import Move
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Service
from rebalancer.policy.schema import Limits


def a_move(pod: int = 0, node: int = 0, service: str = "web", namespace: str = "shop") -> Move:
    return Move(
        pod=pod,
        namespace=namespace,
        name=f"pod-{pod}",
        uid=str(pod),
        node=node,
        node_name=f"n{node}",
        pool="general",
        service=Service(kind="Deployment", namespace=namespace, name=service),
        strategy="LowNodeUtilization",
        cpu_millicores=1.0,
        landings=(),
        reason="",
    )


def limits(cycle: int = 99, node: int = 99, service: int = 99) -> CycleLimits:
    return CycleLimits(Limits.model_validate({"perCycle": cycle, "perNode": node, "perServiceInFlight": service}))


def test_the_defaults_are_ten_a_cycle_two_a_node_and_one_a_service() -> None:
    assert Limits() == Limits.model_validate({"perCycle": 10, "perNode": 2, "perServiceInFlight": 1})


@pytest.mark.parametrize(
    ("admission", "other", "reason"),
    [
        (limits(cycle=1), a_move(1, node=1, service="api"), Reason.LIMIT_CYCLE),
        (limits(node=1), a_move(1, service="api"), Reason.LIMIT_NODE),
        (limits(service=1), a_move(1, node=1), Reason.LIMIT_SERVICE),
    ],
)
def test_each_limit_refuses_what_is_too_much_for_it(admission: CycleLimits, other: Move, reason: Reason) -> None:
    assert admission.reserve(a_move()) is None
    for refusal in (admission.refuses(other), admission.reserve(other)):
        assert refusal is not None
        assert refusal.code is reason
        assert "1 of 1" in refusal.message


@pytest.mark.parametrize(
    ("admission", "other"),
    [
        (limits(node=1), a_move(1, node=1)),
        (limits(service=1), a_move(1, service="api")),
        (limits(service=1), a_move(1, namespace="b")),
    ],
)
def test_another_node_or_service_has_its_own_count(admission: CycleLimits, other: Move) -> None:
    assert admission.reserve(a_move()) is None
    assert admission.reserve(other) is None


def test_asking_reserves_nothing() -> None:
    admission = limits(cycle=1)
    assert all(admission.refuses(a_move()) is None for _ in range(3))
    assert admission.reserve(a_move()) is None


def test_what_is_refused_is_not_counted() -> None:
    admission = limits(cycle=3, node=1)
    assert admission.reserve(a_move(0)) is None
    assert admission.reserve(a_move(1)) is not None
    assert admission.reserve(a_move(2, node=1)) is None
    assert admission.reserve(a_move(3, node=2)) is None
    assert admission.reserve(a_move(4, node=3)) is not None


def test_a_refund_makes_room_again_in_every_count() -> None:
    admission = limits(cycle=1, node=1, service=1)
    assert admission.reserve(a_move(0)) is None
    admission.refund(a_move(0))
    assert admission.reserve(a_move(1)) is None
    assert admission.reserve(a_move(2)) is not None


@pytest.mark.parametrize("closed", [limits(cycle=0), limits(node=0), limits(service=0)])
def test_a_limit_of_zero_closes(closed: CycleLimits) -> None:
    assert closed.reserve(a_move()) is not None
