"""Queue of cycle requests from the timer, alerts, forecasts and users.

One cycle at a time runs in a cluster. Requests that arrive meanwhile are merged into the next one.
"""

import threading
from collections.abc import Callable

from rebalancer.cycle.request import CycleRequest


class TriggerQueue:
    """Holds at most one request: all requests since the last `take`, merged."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: CycleRequest | None = None
        self._woken = False

    def put(self, request: CycleRequest) -> None:
        """Request a cycle."""
        with self._changed:
            self._pending = request if self._pending is None else self._pending.merged(request)
            self._changed.notify_all()

    def wake(self) -> None:
        """End a waiting `take` without a request: an alert has arrived, or the daemon stops."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def take(self, timeout_seconds: float, *, monotonic: Callable[[], float]) -> CycleRequest | None:
        """The next request; None when woken or after the timeout."""
        end = monotonic() + timeout_seconds
        with self._changed:
            while self._pending is None and not self._woken and (left := end - monotonic()) > 0:
                self._changed.wait(left)
            request, self._pending, self._woken = self._pending, None, False
            return request
