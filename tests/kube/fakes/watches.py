"""A server of lists and watches that follows a script, and waiting for what threads do."""

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from tests.kube.builders import Cluster, Json
from tests.kube.fakes.api import Asked, Reply


def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait for a condition; fails when it never comes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def line(kind: str, obj: Json, version: int | str) -> bytes:
    """One event of a watch."""
    meta = obj.get("metadata", {}) | {"resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": obj | {"metadata": meta}}).encode() + b"\n"


def error_line(code: int) -> bytes:
    """An ERROR event."""
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "no"}}).encode() + b"\n"


class WatchedServer:
    """Lists like `Cluster`, at `version`; each watch of a kind takes its next script, and stays open after the last.

    A script is a reply, or lines after which the watch ends.
    """

    def __init__(self, **lists: list[Json]) -> None:
        self.cluster = Cluster(page_size=500, **lists)
        self.version = 7
        self.scripts: dict[str, deque[Reply | list[bytes]]] = defaultdict(deque)
        self.over = threading.Event()
        self.before_list: Callable[[Asked], Reply | None] = lambda _: None
        self._open: dict[str, list[deque[bytes]]] = defaultdict(list)

    def __call__(self, asked: Asked) -> Reply:
        plural = asked.path.split("/")[-1]
        if "watch" not in asked.query:
            refused = self.before_list(asked)
            if refused is not None:
                return refused
            reply = self.cluster(asked)
            if reply.status == 200 and "items" in reply.body:
                reply.body["metadata"]["resourceVersion"] = str(self.version)
            return reply
        if self.scripts[plural]:
            script = self.scripts[plural].popleft()
            return script if isinstance(script, Reply) else Reply(stream=script)
        return Reply(stream=self._stay_open(plural))

    def send(self, plural: str, *lines: bytes) -> None:
        """Send to every watch of the kind that stays open."""
        for queue in self._open[plural]:
            queue.append(b"".join(lines))

    def opened(self, plural: str) -> int:
        """How many watches of the kind have begun to stay open. A request is noted before."""
        return len(self._open[plural])

    def _stay_open(self, plural: str) -> Iterator[bytes]:
        queue: deque[bytes] = deque()
        self._open[plural].append(queue)
        while not self.over.is_set():
            if queue:
                yield queue.popleft()
            self.over.wait(0.005)

    @staticmethod
    def watches(asked: list[Asked], plural: str) -> list[Any]:
        """The resourceVersions that watches of the kind began from."""
        return [
            each.query["resourceVersion"]
            for each in list(asked)
            if "watch" in each.query and each.path.endswith(f"/{plural}")
        ]

    @staticmethod
    def lists(asked: list[Asked], plural: str) -> int:
        """How many pages of the kind were listed."""
        return sum("watch" not in each.query and each.path.endswith(f"/{plural}") for each in list(asked))
