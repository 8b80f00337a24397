"""A response without an end: its lines, as they arrive."""

import contextlib
from collections.abc import Callable, Iterator

import urllib3

from rebalancer.kube.client.transport import READ_BYTES, TRANSPORT_ERRORS
from rebalancer.model.errors import ConnectError, UnsafeDataError

LONGEST_LINE_BYTES = 16 * 1024 * 1024
"""An object may have 1.5 MiB in etcd; as JSON it is a few times that."""


class LineStream:
    """The body of one response. Read by one thread; `cut` may be called from any."""

    def __init__(
        self, response: urllib3.BaseHTTPResponse, *, failed: Callable[[Exception], ConnectError], server: str
    ) -> None:
        """`failed` translates an error of the connection."""
        self.response = response
        self._failed = failed
        self._server = server

    def batches(self) -> Iterator[list[bytes]]:
        """The complete lines of each read; the last may lack its newline.

        Raises ConnectError (SilentError after the read timeout), or UnsafeDataError for a line that is longer than any
        object.
        """
        parts: list[bytes] = []
        size = 0
        while data := self._read():
            head, newline, tail = data.rpartition(b"\n")
            if newline:
                lines = b"".join((*parts, head)).split(b"\n")
                parts, size = [tail], len(tail)
                yield [line for line in lines if line.strip()]
                continue
            parts.append(data)
            size += len(data)
            if size > LONGEST_LINE_BYTES:
                raise UnsafeDataError(f"{self._server}: a line of over {LONGEST_LINE_BYTES >> 20} MiB in a watch")
        rest = b"".join(parts)
        if rest.strip():
            yield [rest]

    def cut(self) -> None:
        """End a read in progress."""
        # it may have ended already, and its connection may be gone
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self.response.shutdown()

    def close(self) -> None:
        """Close the connection."""
        self.response.close()

    def _read(self) -> bytes:
        try:
            return self.response.read1(READ_BYTES) or b""
        except TRANSPORT_ERRORS as error:
            raise self._failed(error) from error
