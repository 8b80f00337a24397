"""Parts that fail: since when, how often, and until when they wait."""

import pytest

from rebalancer.model.errors import ConnectError
from rebalancer.model.parts import LONGEST_SECONDS, FailedPart, FailedParts, VitalError, cause_of
from rebalancer.model.secrets import remember

NOW = 1_790_000_000.0


class Clock:
    def __init__(self) -> None:
        self.at = 0.0
        self.seen: list[FailedPart] = []
        self.parts = FailedParts(now=lambda: NOW + self.at, monotonic=lambda: self.at)
        self.parts.observers.append(lambda part, _: self.seen.append(part))


def test_a_part_that_goes_on_failing_waits_longer_and_longer() -> None:
    clock, waits = Clock(), []
    for _ in range(9):
        part = clock.parts.failed("journal", KeyError("x"))
        waits.append(part.wait_seconds)
        clock.at = part.retry_at
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[LONGEST_SECONDS] * 3]
    (failed,) = clock.parts.current()
    assert failed.sentence == "journal, since 2026-09-21T14:13:20+00:00, 9 times: KeyError: 'x'"
    assert failed.brief == "journal, since 2026-09-21T14:13:20+00:00, 9 times: KeyError"
    assert len(clock.seen) == 9


def test_a_failure_before_the_next_attempt_is_the_same_failure() -> None:
    clock = Clock()
    clock.parts.failed("snapshot", KeyError("x"))
    clock.at = 0.9
    assert clock.parts.failed("snapshot", KeyError("x")).failures == 1
    assert clock.parts.waiting("snapshot") is not None
    clock.at = 1.0
    assert clock.parts.waiting("snapshot") is None
    assert clock.parts.failed("snapshot", KeyError("x")).failures == 2
    assert len(clock.seen) == 2


def test_a_part_that_works_begins_anew() -> None:
    clock = Clock()
    clock.parts.failed("page /", KeyError("x"))
    clock.parts.worked("page /")
    assert clock.parts.current() == []
    clock.at = 500.0
    assert clock.parts.failed("page /", KeyError("x")).since == NOW + 500.0


def test_a_thread_works_again_after_a_healthy_time() -> None:
    clock = Clock()
    clock.parts.failed("thread journal", KeyError("x"), healthy_seconds=60.0)
    clock.at = 60.9
    assert [each.name for each in clock.parts.current()] == ["thread journal"]
    clock.at = 61.0
    assert clock.parts.current() == []
    assert clock.parts.failed("thread journal", KeyError("x"), healthy_seconds=60.0).failures == 1


@pytest.mark.parametrize("error", [VitalError("x"), MemoryError(), RuntimeError("can't start new thread")])
def test_what_is_no_parts_own_is_raised(error: Exception) -> None:
    clock = Clock()
    with pytest.raises(type(error)):
        clock.parts.failed("journal", error)
    assert clock.parts.current() == []


def test_an_attempt_notes_what_is_unexpected_and_nothing_else() -> None:
    clock = Clock()

    def fail(error: Exception) -> None:
        raise error

    clock.parts.attempt("events", lambda: fail(KeyError("x")))
    assert [each.name for each in clock.parts.current()] == ["events"]
    with pytest.raises(ConnectError):
        clock.parts.attempt("events", lambda: fail(ConnectError("away")))
    clock.parts.attempt("events", lambda: None)
    assert clock.parts.current() == []


def test_a_cause_is_one_line_without_secrets_and_not_too_long() -> None:
    remember("a-secret-of-the-test")
    assert cause_of(ValueError("a\n b a-secret-of-the-test")) == "ValueError: a b ***"
    assert cause_of(ValueError()) == "ValueError"
    assert len(cause_of(ValueError("x" * 10_000))) == 300
