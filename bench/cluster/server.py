"""Serves rendered pages on loopback: `python -m bench.cluster.server DIRECTORY` prints its port and runs until killed.

In a process of its own, so that its CPU is not counted; answers are sent by the kernel from the files.
"""

import contextlib
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


def serve(directory: Path) -> None:
    """Answer GETs of lists, each connection in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve, args=(connection, directory), daemon=True).start()


def _serve(connection: socket.socket, directory: Path) -> None:
    with connection, contextlib.suppress(OSError):  # the client is gone
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _talk(connection, directory)


def _talk(connection: socket.socket, directory: Path) -> None:
    pending = b""
    while True:
        while b"\r\n\r\n" not in pending:
            received = connection.recv(65536)
            if not received:
                return
            pending += received
        head, _, pending = pending.partition(b"\r\n\r\n")
        target = urlsplit(head.split(b" ", 2)[1].decode())
        token = parse_qs(target.query).get("continue", ["0"])[0]
        path = directory / f"{target.path.rsplit('/', 1)[-1]}-{int(token)}.json"
        if not path.exists():
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            continue
        with path.open("rb") as file:
            size = path.stat().st_size
            connection.sendall(
                f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode()
            )
            connection.sendfile(file)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(Path(sys.argv[1]))
