"""The evictor of a cycle is bound to the process's lease: without it nothing is sent."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.adapters import make_context
from rebalancer.cycle.context import NullProgress
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.ports import Evictor
from rebalancer.model.reason import Reason
from tests.builders import a_policy, an_eviction
from tests.kube.builders import a_pod
from tests.kube.fakes.api import Asked, FakeApi, Reply, serving

MOVE = an_eviction(pod="web-1", uid="uid-shop-web-1")


@dataclass
class FakeLease:
    """Held or not."""

    held: bool = True
    noted: bool = True
    left: float = 9.0
    margins: list[float] = field(default_factory=list)
    term: int = 7

    def holds(self, margin_seconds: float = 0.0) -> bool:
        self.margins.append(margin_seconds)
        return self.held

    def note_sequence(self) -> bool:
        return self.noted

    def seconds_left(self) -> float:
        return self.left


@contextmanager
def an_evictor(lease: FakeLease, answer: Reply) -> Iterator[tuple[FakeApi, Evictor]]:
    def script(asked: Asked) -> Reply:
        return answer if asked.method == "POST" else Reply(body=a_pod("web-1"))

    nothing: Any = None
    with serving(script, read_seconds=5.0, attempts=1) as (api, client), ExitStack() as stack:
        context = make_context(
            a_policy(),
            Settings(),
            client,
            SystemClock(),
            NullProgress(),
            stack,
            records=nothing,
            ledger=nothing,
            lease=lease,  # type: ignore[arg-type]
        )
        yield api, context.evictor


@pytest.mark.parametrize("lease", [FakeLease(held=False), FakeLease(noted=False)], ids=["lost", "number not written"])
def test_without_the_lease_or_the_number_in_it_the_evictor_sends_nothing(lease: FakeLease) -> None:
    with an_evictor(lease, Reply(status=201)) as (api, evictor):
        answer = evictor.evict(MOVE)
    assert answer.outcome is Outcome.FAILED
    assert answer.refusal is not None
    assert answer.refusal.code is Reason.LEASE_LOST
    assert api.count("POST") == 0


def test_the_evictor_sends_its_term_and_wants_time_for_the_call() -> None:
    lease = FakeLease()
    with an_evictor(lease, Reply(status=201, body={"kind": "Status", "status": "Success"})) as (api, evictor):
        assert evictor.evict(MOVE).outcome is Outcome.EVICTED
    assert lease.margins == [1.0]
    assert api.asked[-1].headers["User-Agent"].endswith(" term/7")


def test_the_evictor_waits_no_longer_than_the_lease_lasts() -> None:
    release = threading.Event()
    with an_evictor(FakeLease(left=0.2), Reply(hang_until=release)) as (_, evictor):
        began = time.monotonic()
        answer = evictor.evict(MOVE)
        took = time.monotonic() - began
        release.set()
    assert answer.outcome is Outcome.UNKNOWN
    assert took < 4.0
