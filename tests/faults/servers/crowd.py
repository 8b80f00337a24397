"""An API server in front of a lab that has objects besides the lab's own.

The lab's controllers, scheduler and loads don't see these strangers, so they may be odd: lists, watches and evictions
have them. Everything else is the lab's.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response

from rebalancer.lab import Lab
from rebalancer.lab.apiserver.api import KubernetesApi
from rebalancer.lab.clock import timestamp
from rebalancer.lab.objects import kinds
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Change, Store
from rebalancer.lab.serving import json_response

Place = tuple[str, str, str]
"""Plural, namespace, name."""
EVICTION = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction")
START_SECONDS = 10.0
AT_ONCE, PAUSE_SECONDS = 100, 0.005
"""Writes under one hold of the lock, and the pause after them, in which requests are answered."""


class Crowd:
    """The lab's store with the strangers: what `KubernetesApi` reads from."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._store: Store = lab.cluster.store
        self._strangers: dict[Place, Obj] = {}
        self.written: dict[str, int] = {}
        """Plural -> events so far."""
        self.evicted: list[str] = []
        """`namespace/name` of strangers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __len__(self) -> int:
        return len(self._strangers)

    def find(self, plural: str, namespace: str, name: str) -> Obj | None:
        return self._strangers.get((plural, namespace, name)) or self._store.find(plural, namespace, name)

    def get(self, plural: str, namespace: str, name: str) -> Obj:
        return self._strangers.get((plural, namespace, name)) or self._store.get(plural, namespace, name)

    def sorted(self, plural: str) -> list[Obj]:
        with self._store.lock:
            found = self._store.sorted(plural) + [obj for (kind, *_), obj in self._strangers.items() if kind == plural]
        return sorted(found, key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))

    def places(self) -> list[Place]:
        with self._store.lock:
            return list(self._strangers)

    def write(self, objects: Iterable[tuple[str, Obj]] = (), remove: Iterable[Place] = ()) -> None:
        """Create or replace strangers, (plural, object), and remove some; one event each."""
        calls: list[Callable[[], Change | None]] = [*(partial(self._put, *each) for each in objects)]
        calls += [partial(self._drop, each) for each in remove]
        for first in range(0, len(calls), AT_ONCE):
            with self._store.lock:
                self._wake([call() for call in calls[first : first + AT_ONCE]])
            time.sleep(PAUSE_SECONDS)

    def _wake(self, changes: Iterable[Change | None]) -> None:
        """Wake the watches, and none of the lab's own listeners."""
        newest = {change.plural: change for change in changes if change is not None}
        for listener in tuple(self._store._listeners):
            if listener != self._lab.cluster._observe:
                for change in newest.values():
                    listener(change)

    def evict(self, namespace: str, name: str) -> None:
        self.write(remove=[("pods", namespace, name)])
        self.evicted.append(f"{namespace}/{name}")

    def _put(self, plural: str, obj: Obj) -> Change:
        kind, new = kinds.by_plural(plural), deepcopy(obj)
        meta = new["metadata"]
        place = (plural, meta.get("namespace", ""), meta["name"])
        before = self._strangers.get(place)
        meta.setdefault("creationTimestamp", timestamp(self._store.clock.now()))
        meta["uid"] = before["metadata"]["uid"] if before else meta.get("uid") or self._store.new_uid()
        new |= {"kind": kind.kind, "apiVersion": kind.api_version}
        self._strangers[place] = new
        return self._noted("ADDED" if before is None else "MODIFIED", plural, new, before)

    def _drop(self, place: Place) -> Change | None:
        before = self._strangers.pop(place, None)
        if before is None:
            return None  # evicted meanwhile
        return self._noted("DELETED", place[0], {**before, "metadata": dict(before["metadata"])}, before)

    def _noted(self, kind: str, plural: str, new: Obj, before: Obj | None) -> Change:
        store = self._store
        store.version += 1
        new["metadata"]["resourceVersion"] = str(store.version)
        change = Change(version=store.version, type=kind, plural=plural, object=new, before=before)
        history = store._history[plural]
        history.append(change)
        if len(history) > store._history_limit:
            store._floor[plural] = history.popleft().version
        self.written[plural] = self.written.get(plural, 0) + 1
        return change


class CrowdedApi:
    """The ASGI application."""

    def __init__(self, lab: Lab, crowd: Crowd) -> None:
        self._api = KubernetesApi(lab)
        self._api._store = crowd  # type: ignore[assignment]
        self._crowd = crowd

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        response = self._of_stranger(request) or await self._api(request)
        await response(scope, receive, send)

    def _of_stranger(self, request: Request) -> Response | None:
        found = EVICTION.fullmatch(request.url.path)
        if request.method != "POST" or found is None or ("pods", *found.groups()) not in self._crowd.places():
            return None
        self._crowd.evict(*found.groups())
        return json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)


@contextmanager
def crowded(lab: Lab, kubeconfig: Path) -> Iterator[Crowd]:
    """Serve it, and write its kubeconfig."""
    crowd = Crowd(lab)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            CrowdedApi(lab, crowd),
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            access_log=False,
            log_config=None,
            log_level="error",
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="crowd-http", daemon=True)
        thread.start()
        end = time.monotonic() + START_SECONDS
        while not server.started and time.monotonic() < end:
            time.sleep(0.005)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        kubeconfig.write_text(lab.kubeconfig_text().replace(lab.url, url))
        try:
            yield crowd
        finally:
            server.should_exit = True
            thread.join(10.0)
