"""Connections of one listener: at most so many, and so many of a client; the longest idle one makes room for a new one.

uvicorn waits for ever for the head of a request and for a client that doesn't read its answer; both waits have an end
here. A connection counts from its acceptance on, so also during its TLS handshake, which ends in time as well: asyncio
calls a protocol only after it, and limits it to 60 s.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
"""A connection that sends no whole request head for so long is closed."""

WRITE_SECONDS = 30.0
"""A connection whose client doesn't read its answer for so long is closed."""

TLS_SECONDS = 10
"""A TLS handshake, and its closing, ends after so long."""


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
        many. False when there is no room even so."""
        own = [each for each, other in self._clients.items() if other == client]
        crowd = own if len(own) >= self.most_of_client else list(self._clients) if self._full else []
        idle = next((each for each in crowd if each.idle), None)
        if idle is not None:
            del self._clients[idle]
            idle.abort()
        left = len(own) - (idle in own)
        room = left < self.most_of_client and not self._full
        self._clients[new] = client
        return room

    @property
    def _full(self) -> bool:
        return len(self._clients) >= self.most

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
    _socket: asyncio.BaseTransport | None = None
    """The transport of the accepted connection, below TLS."""
    _refused = False
    """The bytes that came are no request: the connection is being closed."""
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = self._unambiguous = _UnambiguousConnection(
            h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEAD_BYTES
        )

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def accepted(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted: it counts from now on."""
        self._socket = transport
        client = transport.get_extra_info("peername")
        if not self.connections_of_listener.admit(self, str(client[0]) if client else ""):
            self.limit_concurrency = 0  # uvicorn answers 503

    def ended(self) -> None:
        """The connection has ended, perhaps within its TLS handshake."""
        self.connections_of_listener.remove(self)
        # the transport closes its socket after this
        self.loop.call_soon(self.connections_of_listener.closed)

    def abort(self) -> None:
        """Close the connection at once."""
        if isinstance(self._socket, asyncio.WriteTransport):
            self._socket.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # a byte that the client has not taken pauses the writing, and the time runs
        transport.set_write_buffer_limits(high=1, low=0)
        if self._socket is None:
            self.accepted(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.idle:
            self._wait_for_head()
        else:
            self._stop_head_timer()
            self.connections_of_listener.used(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)
        self.ended()

    def send_400_response(self, msg: str) -> None:
        # TLS hands over what still comes while it closes
        self._refused = True
        super().send_400_response(self._unambiguous.problem or msg)

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


class BoundedTls(SSLProtocol):
    """TLS of a connection, which counts during its handshake. A listener makes a subclass with its `protocol` and
    `context`."""

    protocol: type[BoundedProtocol]
    context: ssl.SSLContext

    def __init__(self, *args: Any, **options: Any) -> None:
        self._inner = self.protocol(*args, **options)
        super().__init__(
            self._inner.loop,
            self._inner,
            self.context,
            waiter=None,  # type: ignore[arg-type]  # nothing waits for the handshake
            server_side=True,
            ssl_handshake_timeout=TLS_SECONDS,
            ssl_shutdown_timeout=TLS_SECONDS,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.accepted(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._inner.ended()


class _UnambiguousConnection(h11.Connection):
    """h11's connection, without requests whose length a proxy in front may read in another way.

    h11 reads both headers as the specification says: Transfer-Encoding counts, and the next request follows. What a
    proxy takes for the body by Content-Length would be that next request.
    Source: https://www.rfc-editor.org/rfc/rfc9112#section-6.3 (the connection must be closed after the answer).
    """

    problem = ""
    """What is wrong with the request, beyond h11's own checks."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                self.problem = "expected Content-Length or Transfer-Encoding, got both"
                raise h11.RemoteProtocolError(self.problem)
        return event
