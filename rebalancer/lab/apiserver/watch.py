"""Watches: JSON lines, from a resourceVersion on, with bookmarks, until the client's timeout."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rebalancer.lab.apiserver.selectors import Predicate, predicate
from rebalancer.lab.apiserver.tables import table
from rebalancer.lab.objects.errors import ApiError, bad_request, expired
from rebalancer.lab.objects.kinds import Kind, Obj
from rebalancer.lab.objects.store import Change
from rebalancer.lab.serving import ServedLab

DEFAULT_TIMEOUT_SECONDS = 1800.0
BOOKMARK_SECONDS = 10.0


def watch_response(lab: ServedLab, request: Request, kind: Kind, namespace: str, table_version: str | None) -> Response:
    """The stream of one watch. Raises ApiError 400 for invalid parameters."""
    query = request.query_params
    shows = predicate(
        kind.plural,
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        namespace=namespace,
    )
    try:
        version = int(query.get("resourceVersion") or 0)
        seconds = float(query.get("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS)
    except ValueError:
        raise bad_request("resourceVersion and timeoutSeconds must be numbers") from None
    watch = Watch(
        lab=lab,
        kind=kind,
        shows=shows,
        table_version=table_version,
        bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
        initial_events=query.get("sendInitialEvents") in ("1", "true"),
    )
    return StreamingResponse(watch.lines(version, seconds), media_type="application/json")


class Watch:
    """One watch in progress."""

    def __init__(
        self,
        *,
        lab: ServedLab,
        kind: Kind,
        shows: Predicate,
        table_version: str | None,
        bookmarks: bool,
        initial_events: bool,
    ) -> None:
        self._lab = lab
        self._store = lab.cluster.store
        self._kind = kind
        self._shows = shows
        self._table_version = table_version
        self._bookmarks = bookmarks
        self._initial_events = initial_events
        self._columns_sent = False

    async def lines(self, version: int, seconds: float) -> AsyncIterator[bytes]:
        """The events; version 0 begins with all existing objects."""
        wake, loop = asyncio.Event(), asyncio.get_running_loop()

        def poke() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended before this stream was woken
                loop.call_soon_threadsafe(wake.set)

        def notice(change: Change) -> None:
            if change.plural == self._kind.plural:
                poke()

        unsubscribe = self._store.subscribe(notice)
        self._lab.on_stop.add(poke)
        try:
            deadline = time.monotonic() + seconds
            if version == 0 or self._initial_events:
                existing, version = self._existing()
                for line in existing:
                    yield line
            elif self._lab.faults.state.expire_watches:
                raise expired(f"too old resource version: {version}")
            next_bookmark = time.monotonic() + BOOKMARK_SECONDS
            while not self._lab.stopping:
                wake.clear()
                with self._store.lock:
                    changes, version = self._store.changes_since(self._kind.plural, version), self._store.version
                for event in filter(None, map(self._event, changes)):
                    yield event
                now = time.monotonic()
                if self._bookmarks and (now >= min(next_bookmark, deadline)):
                    yield self._bookmark(version)
                    next_bookmark = now + BOOKMARK_SECONDS
                if now >= deadline:
                    return
                wait = min(deadline, next_bookmark if self._bookmarks else deadline) - now
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), timeout=max(0.001, wait))
        except ApiError as error:
            yield _line("ERROR", error.status())
        finally:
            self._lab.on_stop.discard(poke)
            unsubscribe()

    def _existing(self) -> tuple[list[bytes], int]:
        with self._store.lock:
            found = [obj for obj in self._store.sorted(self._kind.plural) if self._shows(obj)]
            version = self._store.version
        lines = [self._show("ADDED", obj) for obj in found]
        if self._initial_events:
            lines.append(self._bookmark(version, ended=True))
        return lines, version

    def _event(self, change: Change) -> bytes | None:
        """The event as this watch sees it: an object may enter its selector, or leave it."""
        shown_before = change.before is not None and self._shows(change.before)
        shown_now = change.type != "DELETED" and self._shows(change.object)
        if shown_now:
            return self._show("MODIFIED" if shown_before else "ADDED", change.object)
        return self._show("DELETED", change.object) if shown_before else None

    def _show(self, type_: str, obj: Obj) -> bytes:
        if self._table_version is None:
            return _line(type_, obj)
        shown = table(
            self._kind.plural,
            [obj],
            version=self._table_version,
            now=self._lab.clock.now(),
            columns=not self._columns_sent,
            list_meta={"resourceVersion": obj["metadata"]["resourceVersion"]},
        )
        self._columns_sent = True
        return _line(type_, shown)

    def _bookmark(self, version: int, *, ended: bool = False) -> bytes:
        meta: Obj = {"resourceVersion": str(version), "creationTimestamp": None}
        if ended:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self._table_version is not None:
            shape = {"kind": "Table", "apiVersion": f"meta.k8s.io/{self._table_version}", "rows": []}
            return _line("BOOKMARK", {**shape, "columnDefinitions": [], "metadata": meta})
        return _line("BOOKMARK", {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": meta})


def _line(type_: str, obj: Obj) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
