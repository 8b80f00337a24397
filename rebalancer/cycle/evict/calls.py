"""Eviction calls in flight together.

The planning thread reserves an eviction and starts its call. The calls run in threads of their own: the second look at
the pod, then the Eviction API. The planning thread takes the answers in the order in which they arrive.

How many calls run together begins at one, grows by one with each accepted eviction, and is one again after any other
answer. So a server that refuses everything, or answers nothing, gets one call at a time.
"""

import queue
import threading
from collections.abc import Callable

from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome

MAX_CALLS = 8


class EvictionCalls:
    """See the module. `make` carries out one call, in any thread; everything else is called by one thread."""

    def __init__(self, make: Callable[[Eviction], Answer], *, at_most: int = MAX_CALLS) -> None:
        self._make = make
        self._at_most = at_most
        self._together = 1
        self._answered: queue.SimpleQueue[tuple[Eviction, Answer | Exception]] = queue.SimpleQueue()
        self._failed: Exception | None = None
        """What a call raised, until the answers before it were taken."""
        self.under_way: list[Eviction] = []
        """Those whose answer has not been taken, the earliest first."""

    @property
    def room(self) -> int:
        """How many calls may start before an answer is taken."""
        return max(self._together - len(self.under_way), 0)

    def start(self, eviction: Eviction) -> None:
        """Start the call of a reserved eviction."""
        assert self.room
        if self._together == 1:
            self._call(eviction)  # the planning thread would only wait
        else:
            # no call keeps the process from ending: what it reserved is reconciled at the next start
            threading.Thread(target=self._call, args=(eviction,), name="eviction", daemon=True).start()
        self.under_way.append(eviction)

    def take(self, *, wait: bool) -> list[tuple[Eviction, Answer]]:
        """The answers that are there; with `wait` at least one, while a call is under way. Raises what a call raised,
        once the answers before it were taken."""
        taken: list[tuple[Eviction, Answer]] = []
        while self.under_way and self._failed is None:
            try:
                eviction, answer = self._answered.get(block=wait and not taken)
            except queue.Empty:
                break
            self.under_way = [each for each in self.under_way if each is not eviction]
            if isinstance(answer, Exception):
                self._failed = answer
                break
            accepted = answer.outcome in (Outcome.EVICTED, Outcome.PLANNED)
            self._together = min(self._together + 1, self._at_most) if accepted else 1
            taken.append((eviction, answer))
        if self._failed is not None and not taken:
            failed, self._failed = self._failed, None
            raise failed
        return taken

    def _call(self, eviction: Eviction) -> None:
        try:
            answer: Answer | Exception = self._make(eviction)
        except Exception as error:  # noqa: BLE001 - raised in the planning thread
            answer = error
        self._answered.put((eviction, answer))
