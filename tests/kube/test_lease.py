import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.leader.lease import LEDGER_ANNOTATION, SEQUENCE_ANNOTATION, LeaseLock, Timing, boot_seconds
from rebalancer.kube.snapshot.times import rfc3339_micro
from rebalancer.model.errors import ConnectError, UnsafeDataError
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


def lock(client: ApiClient, hands: Hands, identity: str = "me", ledger: str = "ledger-1", **more: Any) -> LeaseLock:
    return LeaseLock(
        client=client,
        namespace="ops",
        name="rebalancer",
        identity=identity,
        ledger_identity=ledger,
        boot_time=lambda: hands.now,
        wall_time=lambda: WALL + hands.now - 1000.0,
        pause=hands.pause,
        **more,
    )


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


def test_a_missing_lease_is_created_with_our_identity_and_ledger() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (api, client):
        mine = lock(client, hands)
        assert not mine.holds()
        mine.acquire()
        assert mine.holds()
        assert mine.term == 1
    assert api.asked[-1].path == PATH
    assert server.spec["holderIdentity"] == "me"
    assert server.spec["leaseDurationSeconds"] == 15
    assert server.spec["renewTime"] == "2027-01-15T08:00:00.000000Z"
    assert server.lease is not None
    assert server.lease["metadata"]["annotations"] == {LEDGER_ANNOTATION: "ledger-1", SEQUENCE_ANNOTATION: "0"}


def noted(server: LeaseServer) -> str:
    """The ledger's sequence as the Lease has it."""
    assert server.lease is not None
    return str(server.lease["metadata"]["annotations"][SEQUENCE_ANNOTATION])


def test_the_lease_has_the_number_of_the_last_reservation_before_the_call() -> None:
    server, hands, reserved = LeaseServer(), Hands(), [5]
    with serving(server) as (api, client):
        mine = lock(client, hands, sequence=lambda: reserved[0])
        mine.acquire()
        assert noted(server) == "5"
        asked = len(api.asked)
        assert mine.note_sequence()
        assert len(api.asked) == asked
        reserved[0] = 6
        assert mine.note_sequence()
        assert noted(server) == "6"
        assert len(api.asked) == asked + 1


def test_no_call_is_sent_while_the_number_can_not_be_written() -> None:
    server, hands, reserved = LeaseServer(), Hands(), [5]
    with serving(server, attempts=1) as (_, client):
        mine = lock(client, hands, sequence=lambda: reserved[0])
        mine.acquire()
        reserved[0] = 6
        server.fault = lambda asked: status(500, "ill") if asked.method == "PUT" else None
        assert not mine.note_sequence()
        assert noted(server) == "5"
        server.fault = lambda _: None
        assert mine.note_sequence()


def test_of_several_calls_at_once_the_first_writes_the_numbers_of_all() -> None:
    server, hands, reserved, go_on = LeaseServer(), Hands(), [5], threading.Event()
    read: list[int] = []
    all_began = threading.Event()

    def sequence() -> int:
        read.append(reserved[0])
        if read.count(13) == 8 + 1:  # by each call, and by the write
            all_began.set()
        return reserved[0]

    with serving(server) as (api, client):
        mine = lock(client, hands, sequence=sequence)
        mine.acquire()
        asked = len(api.asked)

        def slow(_: Asked) -> Reply | None:
            assert go_on.wait(30)
            return None

        server.fault = slow
        reserved[0] = 13
        noted_by: list[bool] = []
        calls = [threading.Thread(target=lambda: noted_by.append(mine.note_sequence())) for _ in range(8)]
        for each in calls:
            each.start()
        assert all_began.wait(30)
        # the next reservation doesn't hold up those whose numbers are written
        reserved[0] = 14
        go_on.set()
        for each in calls:
            each.join(30)
        assert noted_by == [True] * 8
        assert noted(server) == "13"
        assert len(api.asked) == asked + 1
        assert mine.note_sequence()
        assert noted(server) == "14"


def test_a_ledger_that_lacks_reservations_does_not_lead() -> None:
    lease = a_lease("", ledger="ledger-1")
    lease["metadata"]["annotations"][SEQUENCE_ANNOTATION] = "9"
    with serving(LeaseServer(lease)) as (_, client):
        with pytest.raises(UnsafeDataError, match=r"7 evictions .* 9 were reserved.*db accept-restore"):
            lock(client, Hands(), sequence=lambda: 7).acquire()
        lock(client, Hands(), sequence=lambda: 9).acquire()


def test_a_lease_that_was_deleted_goes_on_from_the_last_term_that_the_ledger_saw() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        lease = lock(client, hands, last_term=41)
        lease.acquire()
        assert lease.term == 42
        assert server.spec["leaseTransitions"] == 42


def test_the_time_left_is_counted_from_the_last_renewal_and_is_none_without_the_lease() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        assert mine.seconds_left() == 0
        mine.acquire()
        assert mine.seconds_left() == 10
        hands.now += 4
        assert mine.seconds_left() == 6
        mine.renew()
        assert mine.seconds_left() == 10
        hands.now += 11
        assert mine.seconds_left() == 0
        mine.release()
        assert mine.seconds_left() == 0


def test_a_released_lease_is_taken_at_once_and_what_others_wrote_stays() -> None:
    server, hands = LeaseServer(a_lease("")), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        assert mine.term == 5
    assert hands.paused == 0
    assert server.spec["strategy"] == "kept"
    assert server.lease is not None
    assert server.lease["metadata"]["labels"] == {"keep": "me"}


def test_a_live_lease_is_refused_at_once() -> None:
    server, hands = LeaseServer(a_lease("other", age=3)), Hands()
    with serving(server) as (api, client), pytest.raises(UnsafeDataError, match="ops/rebalancer is held by other"):
        lock(client, hands).acquire()
    assert hands.paused == 0
    assert api.count("PUT") == 0


def test_an_expired_lease_is_taken_only_after_watching_it_for_its_duration() -> None:
    server, hands = LeaseServer(a_lease("other", age=3600)), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        assert mine.term == 5
    assert 15 <= hands.paused < 16
    assert server.spec["holderIdentity"] == "me"


def test_a_lease_that_only_looks_expired_is_not_taken() -> None:
    """The holder's clock is an hour behind ours, but it renews."""
    server, hands = LeaseServer(a_lease("other", age=3600)), Hands()

    def renews() -> None:
        if hands.paused > 9:
            server.write(a_lease("other", age=3590))

    hands.on_pause = renews
    with serving(server) as (api, client), pytest.raises(UnsafeDataError, match="renewed during the wait"):
        lock(client, hands).acquire()
    assert api.count("PUT") == 0


def test_waiting_ends_when_the_holder_releases() -> None:
    server, hands = LeaseServer(a_lease("other")), Hands()

    def releases() -> None:
        if hands.paused > 5:
            server.write(a_lease(""))

    hands.on_pause = releases
    with serving(server) as (_, client):
        mine = lock(client, hands, wait_seconds=60)
        mine.acquire()
    assert 5 < hands.paused < 10


def test_somebody_who_is_faster_keeps_it() -> None:
    server, hands = LeaseServer(a_lease("")), Hands()

    def overtakes(asked: Asked) -> None:
        if asked.method == "PUT" and server.spec["holderIdentity"] == "":
            server.write(a_lease("faster"))

    server.fault = overtakes
    with serving(server) as (_, client), pytest.raises(UnsafeDataError, match="held by faster"):
        lock(client, hands).acquire()
    assert server.spec["holderIdentity"] == "faster"


@pytest.mark.parametrize("holder", ["", "other"])
def test_a_lease_of_another_ledger_is_refused(holder: str) -> None:
    server, hands = LeaseServer(a_lease(holder, age=3600, ledger="ledger-2")), Hands()
    with serving(server) as (api, client), pytest.raises(UnsafeDataError, match=r"ledger-2.*ledger-1"):
        lock(client, hands).acquire()
    assert api.count("PUT") == 0


def test_it_holds_until_ten_seconds_after_the_last_renewal() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        hands.now += 6
        assert mine.holds(3.9)
        assert not mine.holds(4.0)
        assert mine.renew()
        assert mine.holds(9.9)
        hands.now += 10
        assert not mine.holds()


def test_a_lease_that_ran_out_is_lost_for_good() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (api, client):
        mine = lock(client, hands)
        mine.acquire()
        hands.now += 10
        assert not mine.renew()
        assert not mine.holds()
        assert mine.term is None
        assert api.count("PUT") == 0


@pytest.mark.parametrize("reply", [Reply(drop=True), Reply(status=503), Reply(status=403), Reply(body=b"<html>")])
def test_a_failed_renewal_keeps_the_old_deadline(reply: Reply) -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        server.fault = lambda _: reply
        hands.now += 8
        assert mine.renew()
        assert mine.holds(1.9)
        assert not mine.holds(2.0)


def test_a_renewal_whose_answer_was_lost_goes_on() -> None:
    server, hands = LeaseServer(), Hands()

    def written_but_lost(asked: Asked) -> Reply | None:
        if asked.method != "PUT":
            return None
        server.write(asked.body)
        return Reply(drop=True)

    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        server.fault = written_but_lost
        assert mine.renew()
        server.fault = lambda _: None
        assert mine.renew()
        hands.now += 2
        assert mine.renew()
        assert mine.holds(9.9)


def test_a_stolen_lease_is_lost_at_the_next_renewal() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        server.write(a_lease("thief"))
        assert not mine.renew()
        assert not mine.holds()
        mine.release()
    assert server.spec["holderIdentity"] == "thief"


def test_the_same_holder_in_a_later_term_is_not_us() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        server.write(a_lease("me", transitions=9))
        assert not mine.renew()


def test_a_changed_ledger_ends_the_lease() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        assert server.lease is not None
        lease = copy.deepcopy(server.lease)
        lease["metadata"]["annotations"][LEDGER_ANNOTATION] = "ledger-2"
        server.write(lease)
        assert not mine.renew()


def test_a_label_that_somebody_adds_does_not_end_the_lease() -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        assert server.lease is not None
        server.write(server.lease)
        assert mine.renew()
        assert mine.renew()
        assert mine.holds(9.9)


def test_a_creation_whose_answer_was_lost_is_ours() -> None:
    server, hands = LeaseServer(), Hands()

    def written_but_lost(asked: Asked) -> Reply | None:
        if asked.method != "POST":
            return None
        server.write(asked.body)
        return Reply(drop=True)

    server.fault = written_but_lost
    with serving(server) as (_, client):
        mine = lock(client, hands)
        mine.acquire()
        assert mine.holds()


def test_a_block_holds_renews_and_releases_the_lease() -> None:
    server = LeaseServer()
    renewed = threading.Event()

    def watch(asked: Asked) -> None:
        if asked.method == "PUT":
            renewed.set()

    server.fault = watch
    with serving(server) as (_, client):
        quick = Timing(duration=2, renew_deadline=1.5, retry=0.02)
        with LeaseLock(
            client=client, namespace="ops", name="rebalancer", identity="me", ledger_identity="l", timing=quick
        ) as mine:
            assert renewed.wait(5)
            assert mine.holds()
            assert any(thread.name == "lease ops/rebalancer" for thread in threading.enumerate())
        assert not mine.holds()
    assert server.spec["holderIdentity"] == ""
    assert not any(thread.name == "lease ops/rebalancer" for thread in threading.enumerate())


def test_a_lease_that_is_kept_without_a_block_is_renewed_until_it_is_released() -> None:
    server, renewed = LeaseServer(), threading.Event()

    def watch(asked: Asked) -> None:
        if asked.method == "PUT":
            renewed.set()

    with serving(server) as (_, client):
        quick = Timing(duration=2, renew_deadline=1.5, retry=0.02)
        mine = LeaseLock(
            client=client, namespace="ops", name="rebalancer", identity="me", ledger_identity="l", timing=quick
        )
        mine.acquire()
        server.fault = watch
        mine.keep()
        assert renewed.wait(5)
        mine.release()
        assert not any(thread.name == "lease ops/rebalancer" for thread in threading.enumerate())
        assert server.spec["holderIdentity"] == ""
        mine.release()
    assert not mine.holds()


def test_waiting_for_a_lease_ends_with_what_the_pause_raises() -> None:
    class StoppedError(Exception):
        pass

    def stop() -> None:
        raise StoppedError

    server, hands = LeaseServer(a_lease("other", age=3600)), Hands()
    hands.on_pause = stop
    with serving(server) as (api, client):
        mine = lock(client, hands)
        with pytest.raises(StoppedError):
            mine.acquire()
        mine.release()
    assert not mine.holds()
    assert api.count("PUT") == 0


def test_a_forbidden_lease_names_the_fix() -> None:
    with (
        serving(lambda _: status(403, "forbidden")) as (_, client),
        pytest.raises(ConnectError, match=r"leases\.coordination\.k8s\.io.*ClusterRole"),
    ):
        lock(client, Hands()).acquire()


def test_a_missing_namespace_is_said() -> None:
    with serving(lambda _: status(404)) as (_, client), pytest.raises(ConnectError, match="namespace ops"):
        lock(client, Hands()).acquire()


def test_an_unreachable_server_is_a_connection_error() -> None:
    with FakeApi(lambda _: Reply()) as api:
        url = api.url
    with pytest.raises(ConnectError, match="can't be reached"):
        lock(client_of(url), Hands()).acquire()


def test_the_boot_clock_goes_on() -> None:
    assert boot_seconds() <= boot_seconds()


@pytest.mark.parametrize("document", [{"kind": "Other"}, {"metadata": []}, {"metadata": {"name": "other"}}, []])
def test_a_document_that_is_no_lease_ends_nothing_and_is_not_believed(document: Any) -> None:
    server, hands = LeaseServer(), Hands()
    with serving(server) as (_, client):
        mine = lock(client, hands)
        server.fault = lambda _: Reply(body=document)
        with pytest.raises(UnsafeDataError, match="the lease: the answer"):
            mine.acquire()
        server.fault = lambda _: None
        mine.acquire()
        hands.now += 2
        server.fault = lambda _: Reply(body=document)
        assert mine.renew()
        assert mine.seconds_left() == 8
