"""Serves rendered lists and a storm of pod updates: `python -m bench.cluster.watch_server DIRECTORY EVENTS`
prints its port.

In a process of its own, so that its CPU is not counted. Lists come from the files that `bench.cluster.pages` wrote; a
watch of pods is EVENTS lines, prepared before, each a MODIFIED pod in a chunk of its own as the API server sends
them, then a bookmark; then it stays open, as every other watch does from the start.
"""

import contextlib
import json
import socket
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
GO = "go"
CHUNKS_AT_ONCE = 200


def serve(directory: Path, events: int) -> None:
    """Answer for ever, each connection in a thread."""
    storm = list(_storm(directory, events))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_talk, args=(connection, directory, storm), daemon=True).start()


def _storm(directory: Path, events: int) -> list[bytes]:
    chunks: list[bytes] = []
    for path in sorted(directory.glob("pods-*.json")):
        for pod in json.loads(path.read_bytes())["items"]:
            if len(chunks) == events:
                break
            ready = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
            ready["status"] = "False"
            chunks.append(_chunk({"type": "MODIFIED", "object": pod}))
    return [b"".join(chunks[at : at + CHUNKS_AT_ONCE]) for at in range(0, len(chunks), CHUNKS_AT_ONCE)]


def _chunk(event: object) -> bytes:
    line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
    return f"{len(line):x}\r\n".encode() + line + b"\r\n"


def _talk(connection: socket.socket, directory: Path, storm: list[bytes]) -> None:
    pending = b""
    with connection, contextlib.suppress(OSError):
        while True:
            while b"\r\n\r\n" not in pending:
                received = connection.recv(65536)
                if not received:
                    return
                pending += received
            head, _, pending = pending.partition(b"\r\n\r\n")
            target = urlsplit(head.split(b" ", 2)[1].decode())
            plural, query = target.path.rsplit("/", 1)[-1], parse_qs(target.query)
            if "watch" in query:
                connection.sendall(HEAD)
                if plural == "pods":
                    while not (directory / GO).exists():
                        time.sleep(0.01)
                    for part in storm:
                        connection.sendall(part)
                connection.recv(1)
                return
            path = directory / f"{plural}-{int(query.get('continue', ['0'])[0])}.json"
            if not path.exists():
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            with path.open("rb") as file:
                head_lines = (
                    "HTTP/1.1 200 OK",
                    "Content-Type: application/json",
                    f"Content-Length: {path.stat().st_size}",
                )
                connection.sendall("\r\n".join((*head_lines, "", "")).encode())
                connection.sendfile(file)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(Path(sys.argv[1]), int(sys.argv[2]))
