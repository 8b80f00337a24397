"""Eviction calls in flight together.

The planning thread reserves an eviction and starts its call. The calls run in threads of their own: the second look at
the pod, then the Eviction API. The planning thread takes the answers in the order in which they arrive.

How many calls run together begins at one, grows by one with each accepted eviction, and is one again after any other
answer. So a server that refuses everything, or answers nothing, gets one call at a time.
"""

import queue
import threading
from collections.abc import Callable

from rebalancer.model.eviction import Answer, Eviction, Outcome

MAX_CALLS = 8


class EvictionCalls:
    """See the module. `make` carries out one call, in any thread; everything else is called by one thread."""

    def __init__(self, make: Callable[[Eviction], Answer], *, at_most: int = MAX_CALLS) -> None:
        self._make = make
        self._at_most = at_most
        self._together = 1
        self._answered: queue.SimpleQueue[tuple[Eviction, Answer | Exception]] = queue.SimpleQueue()
        self.under_way: list[Eviction] = []
        """Those whose answer has not been taken, the earliest first."""

    @property
    def full(self) -> bool:
        """Whether no other call may start before an answer is taken."""
        return len(self.under_way) >= self._together

    def start(self, eviction: Eviction) -> None:
        """Start the call of a reserved eviction."""
        assert not self.full
        if self._together == 1:
            self._call(eviction)  # the planning thread would only wait
        else:
            # no call keeps the process from ending: what it reserved is reconciled at the next start
            threading.Thread(target=self._call, args=(eviction,), name="eviction", daemon=True).start()
        self.under_way.append(eviction)

    def take(self, *, wait: bool) -> tuple[Eviction, Answer] | None:
        """The next answer; None where there is none (yet). Raises what the call raised."""
        if not self.under_way:
            return None
        try:
            eviction, answer = self._answered.get(block=wait)
        except queue.Empty:
            return None
        self.under_way = [each for each in self.under_way if each is not eviction]
        if isinstance(answer, Exception):
            raise answer
        accepted = answer.outcome in (Outcome.EVICTED, Outcome.PLANNED)
        self._together = min(self._together + 1, self._at_most) if accepted else 1
        return eviction, answer

    def _call(self, eviction: Eviction) -> None:
        try:
            answer: Answer | Exception = self._make(eviction)
        except Exception as error:  # noqa: BLE001 - raised in the planning thread
            answer = error
        self._answered.put((eviction, answer))
