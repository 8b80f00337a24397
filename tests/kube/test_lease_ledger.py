"""The ledger of a Lease, and the number of its last reservation."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rebalancer.kube.leader.lease import (
    LEDGER_ANNOTATION,
    SEQUENCE_ANNOTATION,
    LeaseLock,
)
from rebalancer.model.errors import UnsafeDataError
from tests.kube.fakes.api import Asked, Reply, status
from tests.kube.fakes.leases import Serve, Side, a_lease, mine, serve, side

__all__ = ["mine", "serve", "side"]


def test_the_lease_has_the_number_of_the_last_reservation_before_the_call(side: Side) -> None:
    reserved = [5]
    mine = side.lock(sequence=lambda: reserved[0])
    mine.acquire()
    assert side.server.noted == "5"
    asked = len(side.api.asked)
    assert mine.note_sequence()
    assert len(side.api.asked) == asked
    reserved[0] = 6
    assert mine.note_sequence()
    assert side.server.noted == "6"
    assert len(side.api.asked) == asked + 1


def test_no_call_is_sent_while_the_number_can_not_be_written(serve: Serve) -> None:
    side, reserved = serve(attempts=1), [5]
    mine = side.lock(sequence=lambda: reserved[0])
    mine.acquire()
    reserved[0] = 6
    side.server.fault = lambda asked: status(500, "ill") if asked.method == "PUT" else None
    assert not mine.note_sequence()
    assert side.server.noted == "5"
    side.server.fault = lambda _: None
    assert mine.note_sequence()


def test_of_several_calls_at_once_the_first_writes_the_numbers_of_all(side: Side) -> None:
    reserved, read = [5], list[int]()
    go_on, all_began = threading.Event(), threading.Event()

    def sequence() -> int:
        read.append(reserved[0])
        if read.count(13) == 8 + 1:  # by each call, and by the write
            all_began.set()
        return reserved[0]

    def slow(_: Asked) -> Reply | None:
        assert go_on.wait(30)
        return None

    mine = side.lock(sequence=sequence)
    mine.acquire()
    asked = len(side.api.asked)
    side.server.fault = slow
    reserved[0] = 13
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(mine.note_sequence) for _ in range(8)]
        assert all_began.wait(30)
        # the next reservation doesn't hold up those whose numbers are written
        reserved[0] = 14
        go_on.set()
    assert all(each.result() for each in calls)
    assert side.server.noted == "13"
    assert len(side.api.asked) == asked + 1
    assert mine.note_sequence()
    assert side.server.noted == "14"


def test_a_ledger_that_lacks_reservations_does_not_lead(serve: Serve) -> None:
    lease = a_lease("", ledger="ledger-1")
    lease["metadata"]["annotations"][SEQUENCE_ANNOTATION] = "9"
    side = serve(lease)
    with pytest.raises(UnsafeDataError, match=r"7 evictions .* 9 were reserved.*db accept-restore"):
        side.lock(sequence=lambda: 7).acquire()
    side.lock(sequence=lambda: 9).acquire()


def test_a_lease_that_was_deleted_goes_on_from_the_last_term_that_the_ledger_saw(side: Side) -> None:
    lease = side.lock(last_term=41)
    lease.acquire()
    assert lease.term == 42
    assert side.server.spec["leaseTransitions"] == 42


@pytest.mark.parametrize("holder", ["", "other"])
def test_a_lease_of_another_ledger_is_refused(serve: Serve, holder: str) -> None:
    side = serve(a_lease(holder, age=3600, ledger="ledger-2"))
    with pytest.raises(UnsafeDataError, match=r"ledger-2.*ledger-1"):
        side.lock().acquire()
    assert side.api.count("PUT") == 0


def test_a_process_that_evicts_nothing_leads_with_any_ledger_and_leaves_that_of_the_lease(serve: Serve) -> None:
    side = serve(a_lease("", ledger="ledger-2"))
    dry = side.lock(ledger_identity="")
    dry.acquire()
    assert dry.renew()
    dry.release()
    assert side.server.metadata["annotations"] == {LEDGER_ANNOTATION: "ledger-2"}
    with pytest.raises(UnsafeDataError, match=r"ledger-2.*ledger-1"):
        side.lock().acquire()
    side = serve()
    side.lock(ledger_identity="").acquire()
    assert LEDGER_ANNOTATION not in (side.server.metadata.get("annotations") or {})


def test_a_changed_ledger_ends_the_lease(side: Side, mine: LeaseLock) -> None:
    lease = copy.deepcopy(side.server.lease or {})
    lease["metadata"]["annotations"][LEDGER_ANNOTATION] = "ledger-2"
    side.server.write(lease)
    assert not mine.renew()
