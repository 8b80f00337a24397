"""An API server with one Lease, and a lock on it whose clocks stand still."""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.leader.lease import (
    LEDGER_ANNOTATION,
    SEQUENCE_ANNOTATION,
    LeaseLock,
)
from rebalancer.kube.snapshot.times import rfc3339_micro
from tests.kube.fakes.api import Asked, FakeApi, Reply, serving, status

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
