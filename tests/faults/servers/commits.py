"""A proxy in front of PostgreSQL that loses commits, or only their answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from tests.e2e.servers import Cuttable

COMMIT = b"COMMIT"
Lost = Literal["", "commit", "answer"]


class CommitProxy(Cuttable):
    """Breaks one connection at its next COMMIT: before the server gets it, or after it was carried out."""

    def __init__(self, port: int) -> None:
        self.lose: Lost = ""
        """What the next COMMIT loses; set back when it has happened."""
        super().__init__(f"http://127.0.0.1:{port}")
        self._server = port

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            to_server = sink.getpeername()[1] == self._server
            while data := source.recv(65536):
                if to_server and self.lose and COMMIT in data:
                    lost, self.lose = self.lose, ""
                    if lost == "commit":
                        break
                    # the server carries it out, and closes; the other direction has no client to pass the answer to
                    source.shutdown(socket.SHUT_RDWR)
                    sink.sendall(data)
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def commit_proxy(port: int) -> Iterator[CommitProxy]:
    proxy = CommitProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
