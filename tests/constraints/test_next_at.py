"""A refusal that time lifts says when, so that an alert is tried again then and not before."""

from datetime import UTC, datetime

import pytest

from rebalancer.constraints.moves.limits import refusal_for
from rebalancer.model.decisions.limits import Check, Denied, Pause, Scope
from rebalancer.model.reason import Reason, Refusal
from tests.builders import NOW, a_node, a_policy, plan_all, replicas

HOT = [a_node("hot", used=13_400.0), a_node("cold", used=2_000.0)]


def refusals(**policy: object) -> dict[Reason, float | None]:
    pods = replicas("web", {"hot": 3}, used=3_000.0)
    outcome = plan_all(HOT, pods, a_policy(guards={"minReplicas": 1}, **policy))
    return {each.code: each.next_at for each in outcome.planner.outcome.refusals()}


def test_a_closed_window_says_when_it_opens() -> None:
    # NOW is a Friday, 08:00 UTC
    window = {"kind": "Allow", "schedule": "0 22 * * *", "duration": "1h", "timeZone": "UTC"}
    opens = datetime.fromtimestamp(NOW, UTC).replace(hour=22, minute=0, second=0, microsecond=0).timestamp()
    assert refusals(windows={"global": [window]})[Reason.WINDOW_CLOSED] == opens


def test_a_full_limit_says_when_there_is_room_and_one_in_flight_does_not() -> None:
    scope = Scope("service", "shop/web")
    rate = Denied(check=Check(scope=scope, kind="rate", at_most=1, per_seconds=60), used=1, next_at=NOW + 30)
    flight = Denied(check=Check(scope=scope, kind="inFlight", at_most=1), used=1, next_at=None)
    assert refusal_for(rate).next_at == NOW + 30
    assert refusal_for(flight).next_at is None


@pytest.mark.parametrize("until", [None, NOW + 600])
def test_a_pause_says_until_when(until: float | None) -> None:
    pause = Pause(scope=Scope("global", ""), reason="release", created_by="ann", until=until)
    assert refusal_for(Denied.by(pause)).next_at == until


def test_what_only_an_event_lifts_has_no_time() -> None:
    assert Refusal.of(Reason.BARE_POD).next_at is None
