"""A Slack-compatible webhook on loopback that keeps what it is sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/services/T0/B0/a-secret-of-the-webhook"


@dataclass
class Webhook:
    """A running receiver."""

    url: str
    posts: list[dict[str, Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """Status of the next answers; 200 afterwards."""
    breaks_off: bool = False
    """Bodies end before the length that was announced."""
    refusal: str = "no_service"
    """Body of an answer that is not 200."""


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Start one, gone afterwards."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.answers.pop(0) if found.answers else 200
            if status == 200:
                found.posts.append(json.loads(body))
            self.send_response(status)
            if found.breaks_off:
                self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"ok" if status == 200 else found.refusal.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Webhook(f"http://127.0.0.1:{server.server_address[1]}{PATH}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
