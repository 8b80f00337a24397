"""How long a Lease is held, and by which renewals."""

import copy
import threading
from typing import Any

import pytest

from rebalancer.kube.leader.lease import (
    LeaseLock,
    Sighting,
    Timing,
)
from rebalancer.model.errors import LeaseHeldError
from tests.kube.fakes.api import Asked, Reply
from tests.kube.fakes.leases import Side, a_lease, mine, serve, side

__all__ = ["mine", "serve", "side"]


def test_it_holds_until_ten_seconds_after_the_last_renewal(side: Side, mine: LeaseLock) -> None:
    side.hands.now += 6
    assert mine.holds(3.9)
    assert not mine.holds(4.0)
    assert mine.renew()
    assert mine.holds(9.9)
    side.hands.now += 10
    assert not mine.holds()


def test_a_lease_that_ran_out_is_lost_for_good(side: Side, mine: LeaseLock) -> None:
    side.hands.now += 10
    assert not mine.renew()
    assert not mine.holds()
    assert mine.term is None
    assert side.api.count("PUT") == 0


def test_a_renewal_that_is_answered_after_the_lease_ran_out_does_not_bring_it_back(side: Side, mine: LeaseLock) -> None:
    def slow(_: Asked) -> None:
        side.hands.now += 6

    side.server.fault = slow
    side.hands.now += 5
    assert not mine.renew()
    assert not mine.holds()
    assert mine.term is None


def test_an_abandoned_lease_is_held_no_more_and_nothing_is_sent(side: Side, mine: LeaseLock) -> None:
    mine.keep()
    asked = len(side.api.asked)
    mine.abandon()
    assert not mine.holds()
    assert not mine.renew()
    mine.release()
    assert len(side.api.asked) == asked
    assert side.server.spec["holderIdentity"] == "me"


def test_a_lease_that_was_abandoned_is_acquired_as_that_of_any_other_process(side: Side, mine: LeaseLock) -> None:
    sighting = Sighting()
    mine.abandon()
    again = side.lock(sighting=sighting)
    with pytest.raises(LeaseHeldError, match="held by me"):
        again.acquire()
    side.hands.now += 15
    again.acquire()
    assert again.term == 2
    assert side.hands.paused == 0.0
    # a renewal of the first that was under way changes nothing any more
    assert not mine.renew()
    assert again.renew()


def test_an_unexpected_error_in_a_renewal_lets_the_lease_run_out(
    side: Side, mine: LeaseLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def broken() -> bool:
        tried.set()
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(mine, "renew", broken)
    monkeypatch.setattr(mine, "_timing", Timing(retry=0.01))
    mine.keep()
    assert tried.wait(10)
    assert mine.holds(), "until it runs out"
    side.hands.now += 10
    assert not mine.holds()
    mine.release()


@pytest.mark.parametrize("reply", [Reply(drop=True), Reply(status=503), Reply(status=403), Reply(body=b"<html>")])
def test_a_failed_renewal_keeps_the_old_deadline(side: Side, mine: LeaseLock, reply: Reply) -> None:
    side.server.fault = lambda _: reply
    side.hands.now += 8
    assert mine.renew()
    assert mine.holds(1.9)
    assert not mine.holds(2.0)


def test_a_renewal_whose_answer_was_lost_goes_on(side: Side, mine: LeaseLock) -> None:
    side.server.lose_answers("PUT")
    assert mine.renew()
    side.server.fault = lambda _: None
    assert mine.renew()
    side.hands.now += 2
    assert mine.renew()
    assert mine.holds(9.9)


def test_a_stolen_lease_is_lost_at_the_next_renewal(side: Side, mine: LeaseLock) -> None:
    side.server.write(a_lease("thief"))
    assert not mine.renew()
    assert not mine.holds()
    mine.release()
    assert side.server.spec["holderIdentity"] == "thief"


@pytest.mark.parametrize(
    "taken",
    [{"holderIdentity": "thief"}, {"holderIdentity": "thief", "leaseTransitions": 2}, {"leaseTransitions": 2}],
    ids=["in our term", "in a later term", "by our name"],
)
def test_a_lease_that_was_stolen_with_the_same_ledger_is_lost(
    side: Side, mine: LeaseLock, taken: dict[str, Any]
) -> None:
    """As a second replica on our database leaves it."""
    lease = copy.deepcopy(side.server.lease or {})
    lease["spec"] |= taken
    side.server.write(lease)
    assert not mine.renew()
    assert not mine.holds()
    assert mine.term is None
    assert side.server.spec == lease["spec"]


def test_a_lease_that_was_deleted_ends_ten_seconds_after_its_last_renewal(side: Side, mine: LeaseLock) -> None:
    side.server.lease = None
    side.hands.now += 4
    assert mine.renew()
    assert mine.seconds_left() == 6
    side.hands.now += 6
    assert not mine.holds()
    assert not mine.renew()


def test_a_renewal_counts_from_before_it_was_sent(side: Side, mine: LeaseLock) -> None:
    """Others may have seen it from then on."""

    def slow(asked: Asked) -> None:
        side.hands.now += 3.0 * (asked.method == "PUT")

    side.server.fault = slow
    assert mine.renew()
    assert mine.seconds_left() == 7


def test_the_same_holder_in_a_later_term_is_not_us(side: Side, mine: LeaseLock) -> None:
    side.server.write(a_lease("me", transitions=9))
    assert not mine.renew()


def test_an_added_label_does_not_end_the_lease(side: Side, mine: LeaseLock) -> None:
    side.server.write(side.server.lease or {})
    assert mine.renew()
    assert mine.renew()
    assert mine.holds(9.9)
