"""Parts of the process that failed by an unexpected error: each is skipped or restarted, and the rest goes on.

A part is a watch, a reader, a strategy, a page or a thread of the daemon. Errors of the lease and the ledger are not
the error of a part: `VitalError`. Nor is a process without memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from rebalancer.model.errors import RebalancerError
from rebalancer.model.secrets import redacted

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""Wait after the first failure, and the longest one; it doubles in between."""

LONGEST_CAUSE = 300
"""Characters kept of an error's text."""

NOTE = "part failed: "
"""How a cycle's note about a failed part begins."""


class VitalError(Exception):
    """An unexpected error of the lease or the ledger: the process ends, for what it has counted is not certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """A part that fails."""

    name: str
    cause: str
    """The last error in one line."""
    kind: str
    """The error's type and place, without its text: for readers without credentials."""
    since: float
    """Of the first failure without a success after it, in seconds since the epoch."""
    failures: int
    wait_seconds: float
    """From the last failure to the next attempt."""
    retry_at: float
    """Monotonic clock."""
    over_at: float
    """Monotonic clock: without another failure by then it works again. Infinite where a success says so."""

    @property
    def sentence(self) -> str:
        """`watch pods, since 2026-11-26T02:24:34+00:00, 3 times: KeyError: 'x' (rows.py:12)`."""
        return f"{self._when}: {self.cause}"

    @property
    def brief(self) -> str:
        """The sentence without the error's text."""
        return f"{self._when}: {self.kind}"

    @property
    def _when(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        times = "once" if self.failures == 1 else f"{self.failures} times"
        return f"{self.name}, since {since}, {times}"

    @property
    def note(self) -> str:
        """The sentence as a cycle's note."""
        return NOTE + self.sentence


class FailedParts:
    """The parts that fail now. For several threads: a part belongs to one, or it doesn't matter which failure counts.

    `now` and `monotonic` are clocks in seconds.
    """

    def __init__(self, *, now: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._parts: dict[str, FailedPart] = {}
        self.observers: list[Callable[[FailedPart, Exception | None], None]] = []
        """Called after each failure. The error is None where only its text is known."""

    def failed(self, name: str, error: Exception | str, *, healthy_seconds: float = math.inf) -> FailedPart:
        """Note a failure. Raises the error again where it is not the part's own.

        A failure before the next attempt is due is the same failure: readers are called by several threads. Without a
        failure for `healthy_seconds` after the next attempt the part works again; by default `worked` says so.
        """
        if isinstance(error, Exception) and ends_process(error):
            raise error
        now, before = self._monotonic(), self._open(name)
        if before is not None and now < before.retry_at:
            return before
        failures = 1 if before is None else before.failures + 1
        wait = min(SHORTEST_SECONDS * 2.0 ** min(failures - 1, 16), LONGEST_SECONDS)
        part = FailedPart(
            name=name,
            cause=error if isinstance(error, str) else cause_of(error),
            kind="see the log" if isinstance(error, str) else type(error).__name__ + _place(error),
            since=self._now() if before is None else before.since,
            failures=failures,
            wait_seconds=wait,
            retry_at=now + wait,
            over_at=now + wait + healthy_seconds,
        )
        self._parts[name] = part
        for observe in self.observers:
            observe(part, None if isinstance(error, str) else error)
        return part

    def worked(self, name: str) -> None:
        """The part works."""
        self._parts.pop(name, None)

    def attempt(self, name: str, call: Callable[[], object]) -> None:
        """Call it. An unexpected error is noted; raises errors of other kinds."""
        try:
            call()
        except RebalancerError:
            raise
        except Exception as error:  # noqa: BLE001 - any
            self.failed(name, error)
        else:
            self.worked(name)

    def waiting(self, name: str) -> FailedPart | None:
        """The part, until its next attempt is due."""
        part = self._open(name)
        return part if part is not None and self._monotonic() < part.retry_at else None

    def current(self) -> list[FailedPart]:
        """Those that fail now, by name."""
        return [part for name in sorted(self._parts.copy()) if (part := self._open(name)) is not None]

    def _open(self, name: str) -> FailedPart | None:
        part = self._parts.get(name)
        return part if part is not None and self._monotonic() < part.over_at else None


def ends_process(error: BaseException) -> bool:
    """Whether the error is not that of a part: of the lease, of the ledger, or of a process without memory."""
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    return isinstance(error, VitalError | MemoryError) or no_thread


def cause_of(error: BaseException) -> str:
    """The error in one line, with the place where it happened."""
    text = f"{type(error).__name__}: {' '.join(redacted(str(error)).split())}".removesuffix(": ")[:LONGEST_CAUSE]
    return text + _place(error)


def _place(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return ""
    return f" ({at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno})"
