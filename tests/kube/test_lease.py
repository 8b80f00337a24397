"""How a Lease is acquired, kept and released."""

import threading
import time
from typing import Any

import pytest

from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.leader.lease import (
    LEDGER_ANNOTATION,
    SEQUENCE_ANNOTATION,
    LeaseLock,
    Timing,
    boot_seconds,
)
from rebalancer.model.errors import ConnectError, UnsafeDataError
from tests.kube.fakes.api import Asked, FakeApi, Reply, client_of, serving, status
from tests.kube.fakes.leases import PATH, Hands, Serve, Side, a_lease, lock, mine, serve, side

__all__ = ["mine", "serve", "side"]


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
