"""A connection to PostgreSQL on which no wait is endless.

The server ends long statements itself, and the kernel connections whose packets are dropped. Neither helps against a
server that was stopped, or a proxy that takes everything and answers nothing: its kernel confirms each packet.
"""

import time
from collections.abc import Generator
from typing import Any

import psycopg

ANSWER_SECONDS = 20.0
"""A server that sends nothing for so long while an answer is due is gone: it ends statements after 15 s."""


class BoundedConnection(psycopg.Connection[Any]):
    """Raises OperationalError, and is closed, when the server is silent for ANSWER_SECONDS."""

    unbounded = False
    """For statements without a time limit on the server."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """See psycopg."""
        return super().wait(gen if self.unbounded else self._bounded(gen), *args, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard >= ANSWER_SECONDS:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {ANSWER_SECONDS:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
