"""Connections of one listener: at most so many, and so many of a client; the longest idle one makes room for a new one.

uvicorn waits for ever for the head of a request and for a client that doesn't read its answer; both waits have an end
here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""A connection that sends no whole request head for so long is closed."""

WRITE_SECONDS = 30.0
"""A connection whose client doesn't read its answer for so long is closed."""


@dataclass(slots=True, kw_only=True)
class Connections:
    """The open connections of one listener. Used in its event loop only."""

    most: int
    most_of_client: int
    """Of one address."""
    closed: Callable[[], None] = lambda: None
    """Called when a connection's file descriptor is free again."""
    _clients: dict["BoundedProtocol", str] = field(default_factory=dict)
    """Connection -> address of its client, the longest unused first."""

    def admit(self, new: "BoundedProtocol", client: str) -> bool:
        """Add a connection. Without room the longest unused idle one is closed: of the client, where that has too
        many. False when none is idle."""
        crowd: list[BoundedProtocol] = []
        own = [each for each, other in self._clients.items() if other == client]
        if len(own) >= self.most_of_client:
            crowd = own
        elif len(self._clients) >= self.most:
            crowd = list(self._clients)
        idle = next((each for each in crowd if each.idle), None)
        if idle is not None:
            del self._clients[idle]
            idle.transport.abort()
        self._clients[new] = client
        return idle is not None or not crowd

    def used(self, connection: "BoundedProtocol") -> None:
        """A request has come: the connection is now the last to make room."""
        if (client := self._clients.pop(connection, None)) is not None:
            self._clients[connection] = client

    def remove(self, connection: "BoundedProtocol") -> None:
        """The connection has ended."""
        self._clients.pop(connection, None)


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with time limits. A listener makes a subclass with its `connections_of_listener`."""

    connections_of_listener: Connections
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # a byte that the client has not taken pauses the writing, and the time runs
        transport.set_write_buffer_limits(high=1, low=0)
        if not self.connections_of_listener.admit(self, self.client[0] if self.client else ""):
            self.limit_concurrency = 0  # uvicorn answers 503
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.idle:
            self._wait_for_head()
        else:
            self._stop_head_timer()
            self.connections_of_listener.used(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        self.connections_of_listener.remove(self)
        super().connection_lost(exc)
        # the transport closes its socket after this
        self.loop.call_soon(self.connections_of_listener.closed)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            # not `close`, which waits until the client has read everything
            self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def _wait_for_head(self) -> None:
        # a byte now and then buys no more time
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _close(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
