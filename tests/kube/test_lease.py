import copy
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.leader.lease import (
    LEDGER_ANNOTATION,
    SEQUENCE_ANNOTATION,
    LeaseLock,
    Sighting,
    Timing,
    boot_seconds,
)
from rebalancer.kube.snapshot.times import rfc3339_micro
from rebalancer.model.errors import ConnectError, LeaseHeldError, UnsafeDataError
from tests.kube.fakes.api import Asked, FakeApi, Reply, client_of, serving, status

WALL = 1_800_000_000.0
PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"


class LeaseServer:
    """One Lease with resourceVersion checks; `fault` may answer (or act) before it does."""

    def __init__(self, lease: dict[str, Any] | None = None) -> None:
        self.lease = lease
        self.version = 1
        self.fault: Callable[[Asked], Reply | None] = lambda _: None
        if lease is not None:
            lease["metadata"]["resourceVersion"] = "1"

    def write(self, lease: dict[str, Any]) -> None:
        self.version += 1
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    def __call__(self, asked: Asked) -> Reply:
        reply = self.fault(asked)
        if reply is not None:
            return reply
        if asked.method == "POST":
            if self.lease is not None:
                return status(409, "already exists")
            self.write(asked.body)
            return Reply(status=201, body=self.lease)
        if self.lease is None:
            return status(404, "not found")
        if asked.method == "PUT":
            if asked.body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
                return status(409, "modified")
            self.write(asked.body)
        return Reply(body=self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        return dict(self.lease["spec"])

    @property
    def metadata(self) -> dict[str, Any]:
        assert self.lease is not None
        return dict(self.lease["metadata"])

    @property
    def noted(self) -> str:
        """The ledger's sequence as the Lease has it."""
        return str(self.metadata["annotations"][SEQUENCE_ANNOTATION])

    def lose_answers(self, method: str) -> None:
        """Calls with this method are written, and their answers are lost."""

        def written_but_lost(asked: Asked) -> Reply | None:
            if asked.method != method:
                return None
            self.write(asked.body)
            return Reply(drop=True)

        self.fault = written_but_lost

    def when_renewed(self) -> threading.Event:
        """Set by the first PUT."""
        renewed = threading.Event()
        self.fault = lambda asked: renewed.set() if asked.method == "PUT" else None
        return renewed


class Hands:
    """Both clocks and the pauses in between; `on_pause` happens in each."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.on_pause: Callable[[], None] = lambda: None
        self.paused = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.paused += seconds
        self.on_pause()


@dataclass
class Side:
    """A client of the server with the Lease, and its hands."""

    server: LeaseServer
    api: FakeApi
    client: ApiClient
    hands: Hands = field(default_factory=Hands)

    def lock(self, **more: Any) -> LeaseLock:
        return lock(self.client, self.hands, **more)


def lock(client: ApiClient, hands: Hands, **more: Any) -> LeaseLock:
    usual = {"namespace": "ops", "name": "rebalancer", "identity": "me", "ledger_identity": "ledger-1"}
    return LeaseLock(
        client=client,
        boot_time=lambda: hands.now,
        wall_time=lambda: WALL + hands.now - 1000.0,
        pause=hands.pause,
        **{**usual, **more},
    )


Serve = Callable[..., Side]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A side of a server with this Lease, or none."""
    with ExitStack() as stack:

        def begin(lease: dict[str, Any] | None = None, **options: Any) -> Side:
            server = LeaseServer(lease)
            api, client = stack.enter_context(serving(server, **options))
            return Side(server, api, client)

        yield begin


@pytest.fixture
def side(serve: Serve) -> Side:
    return serve()


@pytest.fixture
def mine(side: Side) -> LeaseLock:
    """The Lease of `side`, acquired."""
    acquired = side.lock()
    acquired.acquire()
    return acquired


def a_lease(holder: str = "other", *, age: float = 0.0, ledger: str = "", transitions: int = 4) -> dict[str, Any]:
    annotations = {LEDGER_ANNOTATION: ledger} if ledger else {}
    return {
        "metadata": {"name": "rebalancer", "namespace": "ops", "labels": {"keep": "me"}, "annotations": annotations},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": rfc3339_micro(WALL - age),
            "leaseTransitions": transitions,
            "strategy": "kept",
        },
    }


def test_a_missing_lease_is_created_with_our_identity_and_ledger(side: Side) -> None:
    mine = side.lock()
    assert not mine.holds()
    mine.acquire()
    assert mine.holds()
    assert mine.term == 1
    assert side.api.asked[-1].path == PATH
    assert side.server.spec["holderIdentity"] == "me"
    assert side.server.spec["leaseDurationSeconds"] == 15
    assert side.server.spec["renewTime"] == "2027-01-15T08:00:00.000000Z"
    assert side.server.metadata["annotations"] == {LEDGER_ANNOTATION: "ledger-1", SEQUENCE_ANNOTATION: "0"}


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


def test_the_time_left_is_counted_from_the_last_renewal_and_is_none_without_the_lease(side: Side) -> None:
    mine = side.lock()
    assert mine.seconds_left() == 0
    mine.acquire()
    assert mine.seconds_left() == 10
    side.hands.now += 4
    assert mine.seconds_left() == 6
    mine.renew()
    assert mine.seconds_left() == 10
    side.hands.now += 11
    assert mine.seconds_left() == 0
    mine.release()
    assert mine.seconds_left() == 0


def test_a_released_lease_is_taken_at_once_and_what_others_wrote_stays(serve: Serve) -> None:
    side = serve(a_lease(""))
    mine = side.lock()
    mine.acquire()
    assert mine.term == 5
    assert side.hands.paused == 0
    assert side.server.spec["strategy"] == "kept"
    assert side.server.metadata["labels"] == {"keep": "me"}


def test_a_live_lease_is_refused_at_once(serve: Serve) -> None:
    side = serve(a_lease("other", age=3))
    with pytest.raises(UnsafeDataError, match="ops/rebalancer is held by other"):
        side.lock().acquire()
    assert side.hands.paused == 0
    assert side.api.count("PUT") == 0


def test_an_expired_lease_is_taken_only_after_watching_it_for_its_duration(serve: Serve) -> None:
    side = serve(a_lease("other", age=3600))
    mine = side.lock()
    mine.acquire()
    assert mine.term == 5
    assert 15 <= side.hands.paused < 16
    assert side.server.spec["holderIdentity"] == "me"


def test_a_lease_that_only_looks_expired_is_not_taken(serve: Serve) -> None:
    """The holder's clock is an hour behind ours, but it renews."""
    side = serve(a_lease("other", age=3600))

    def renews() -> None:
        if side.hands.paused > 9:
            side.server.write(a_lease("other", age=3590))

    side.hands.on_pause = renews
    with pytest.raises(UnsafeDataError, match="renewed during the wait"):
        side.lock().acquire()
    assert side.api.count("PUT") == 0


def test_waiting_ends_when_the_holder_releases(serve: Serve) -> None:
    side = serve(a_lease("other"))

    def releases() -> None:
        if side.hands.paused > 5:
            side.server.write(a_lease(""))

    side.hands.on_pause = releases
    side.lock(wait_seconds=60).acquire()
    assert 5 < side.hands.paused < 10


def test_a_faster_candidate_keeps_it(serve: Serve) -> None:
    side = serve(a_lease(""))

    def overtakes(asked: Asked) -> None:
        if asked.method == "PUT" and side.server.spec["holderIdentity"] == "":
            side.server.write(a_lease("faster"))

    side.server.fault = overtakes
    with pytest.raises(UnsafeDataError, match="held by faster"):
        side.lock().acquire()
    assert side.server.spec["holderIdentity"] == "faster"


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


def test_a_changed_ledger_ends_the_lease(side: Side, mine: LeaseLock) -> None:
    lease = copy.deepcopy(side.server.lease or {})
    lease["metadata"]["annotations"][LEDGER_ANNOTATION] = "ledger-2"
    side.server.write(lease)
    assert not mine.renew()


def test_an_added_label_does_not_end_the_lease(side: Side, mine: LeaseLock) -> None:
    side.server.write(side.server.lease or {})
    assert mine.renew()
    assert mine.renew()
    assert mine.holds(9.9)


def test_a_creation_whose_answer_was_lost_is_ours(side: Side) -> None:
    side.server.lose_answers("POST")
    mine = side.lock()
    mine.acquire()
    assert mine.holds()


QUICK = Timing(duration=2, renew_deadline=1.5, retry=0.02)


def renews() -> bool:
    return any(thread.name == "lease ops/rebalancer" for thread in threading.enumerate())


def by_real_clocks(client: ApiClient) -> LeaseLock:
    return LeaseLock(
        client=client, namespace="ops", name="rebalancer", identity="me", ledger_identity="l", timing=QUICK
    )


def test_a_block_holds_renews_and_releases_the_lease(side: Side) -> None:
    renewed = side.server.when_renewed()
    with by_real_clocks(side.client) as mine:
        assert renewed.wait(5)
        assert mine.holds()
        assert renews()
    assert not mine.holds()
    assert side.server.spec["holderIdentity"] == ""
    assert not renews()


def test_a_lease_that_is_kept_without_a_block_is_renewed_until_it_is_released(side: Side) -> None:
    mine = by_real_clocks(side.client)
    mine.acquire()
    renewed = side.server.when_renewed()
    mine.keep()
    assert renewed.wait(5)
    mine.release()
    assert not renews()
    assert side.server.spec["holderIdentity"] == ""
    mine.release()
    assert not mine.holds()


def test_waiting_for_a_lease_ends_with_what_the_pause_raises(serve: Serve) -> None:
    class StoppedError(Exception):
        pass

    def stop() -> None:
        raise StoppedError

    side = serve(a_lease("other", age=3600))
    side.hands.on_pause = stop
    mine = side.lock()
    with pytest.raises(StoppedError):
        mine.acquire()
    mine.release()
    assert not mine.holds()
    assert side.api.count("PUT") == 0


def test_a_forbidden_lease_names_the_fix() -> None:
    with (
        serving(lambda _: status(403, "forbidden")) as (_, client),
        pytest.raises(ConnectError, match=r"leases\.coordination\.k8s\.io.*ClusterRole"),
    ):
        lock(client, Hands()).acquire()


def test_a_missing_namespace_is_named() -> None:
    with serving(lambda _: status(404)) as (_, client), pytest.raises(ConnectError, match="namespace ops"):
        lock(client, Hands()).acquire()


def test_an_unreachable_server_is_a_connection_error() -> None:
    with FakeApi(lambda _: Reply()) as api:
        url = api.url
    with pytest.raises(ConnectError, match="can't be reached"):
        lock(client_of(url), Hands()).acquire()


def test_the_boot_clock_goes_on() -> None:
    assert boot_seconds() <= boot_seconds()


def test_a_lease_lasts_no_longer_when_the_clock_is_set_back(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = Timing(duration=2, renew_deadline=0.2, retry=0.02)
    mine = LeaseLock(
        client=side.client, namespace="ops", name="rebalancer", identity="me", ledger_identity="l", timing=brief
    )
    mine.acquire()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600.0)
    end = time.monotonic() + 10.0
    while mine.holds() and time.monotonic() < end:
        time.sleep(0.02)
    assert not mine.holds()


@pytest.mark.parametrize("document", [{"kind": "Other"}, {"metadata": []}, {"metadata": {"name": "other"}}, []])
def test_a_document_that_is_no_lease_ends_nothing_and_is_not_believed(side: Side, document: Any) -> None:
    mine = side.lock()
    side.server.fault = lambda _: Reply(body=document)
    with pytest.raises(UnsafeDataError, match="the lease: the answer"):
        mine.acquire()
    side.server.fault = lambda _: None
    mine.acquire()
    side.hands.now += 2
    side.server.fault = lambda _: Reply(body=document)
    assert mine.renew()
    assert mine.seconds_left() == 8
