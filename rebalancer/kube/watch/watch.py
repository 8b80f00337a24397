"""A kind kept in memory: listed once, then followed by a watch, for as long as the process lives.

Semantics of client-go's reflector: the resourceVersion advances with every event and bookmark, a broken watch resumes
from it, and 410 (too old) means a new list, which replaces the old store in one step. Two differences. A stream without
any data, not even a bookmark, counts as broken; and when the next one is silent too the kind is listed again: an API
server sends no bookmark for a version that the watch has seen (v1.36 without frequent progress notifications of etcd),
and then only a list distinguishes a quiet kind from a dead connection.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from rebalancer.kube.client.client import JSON, NOT_READABLE, ApiClient, Resource, SilentError, StatusError, Timeouts
from rebalancer.kube.client.stream import LineStream
from rebalancer.kube.snapshot.lists import METADATA_ONLY, WATCH_METADATA_ONLY, read_list
from rebalancer.kube.snapshot.quarantine import event_of, read_object, version_of
from rebalancer.kube.snapshot.records import Object, Versioned, WatchEvent, WatchStatus
from rebalancer.model.errors import RebalancerError, UnsafeDataError
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.parts import FailedParts

SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS = 300, 600
"""Watches end at different times, so that not all reconnect at once."""

INACTIVITY_SECONDS = 80.0
"""Bookmarks arrive about every minute (bookmarkFrequency in cacher.go, v1.36)."""

SHORTEST_INACTIVITY_SECONDS = 15.0
STOP_SECONDS = 1.0

T = TypeVar("T")
R = TypeVar("R", bound=Object)
T_contra = TypeVar("T_contra", contravariant=True)

Change = tuple[bool, T]
"""(gone, object) of one event."""


class Store(Protocol[T_contra]):
    """The store of a kind. Filled by a list, then changed by events; readers may come from any thread."""

    def add(self, items: Sequence[T_contra], /) -> None:
        """Add one page of a list."""
        ...

    def apply(self, changes: Sequence[Change[T_contra]], /) -> None:
        """Apply events, in order; idempotent. Raises ValueError for an event that can't be decoded."""
        ...


S = TypeVar("S", bound=Store[Any])


@dataclass(slots=True, kw_only=True)
class WatchStats:
    """Counters of one kind, for metrics."""

    events: int = 0
    """Added, modified and deleted."""
    relists: int = 0
    """Lists read in whole after the first."""
    restarts: int = 0
    """Watches opened after the first."""
    errors: int = 0
    """Lists and watches that failed; one that just ended, or was silent, did not."""
    last_error: str = ""


def never(_: object) -> bool:
    """No store is outdated."""
    return False


class Backoff:
    """Exponential backoff from 1 to 20 s, with jitter; reset after a healthy minute. A server that is back is followed
    again within 30 s."""

    SHORTEST_SECONDS, LONGEST_SECONDS, HEALTHY_SECONDS = 1.0, 20.0, 60.0

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._failures = 0

    def seconds(self, *, healthy_seconds: float, at_once: bool, retry_after: float | None = None) -> float:
        """The next wait. `at_once`: the first time no wait; `retry_after`: the server's, the least wait up to 20 s."""
        asked = min(retry_after or 0.0, self.LONGEST_SECONDS)
        if healthy_seconds >= self.HEALTHY_SECONDS:
            self._failures = 0
        doublings, self._failures = self._failures - at_once, self._failures + 1
        if doublings < 0:
            return asked
        longest = min(self.LONGEST_SECONDS, self.SHORTEST_SECONDS * 2.0 ** min(doublings, 16))
        return max(longest * self._chance.uniform(0.5, 1.0), asked)


HEALTHY_SECONDS = 60.0
"""A watch that failed unexpectedly works again after so long without another failure."""


class _GoneError(Exception):
    """410: the resourceVersion is too old to resume from."""


class _StoppedError(Exception):
    """`stop` was called."""


class Reflector(Generic[R, S]):
    """Follows one resource in a thread of its own. `make` makes an empty store; each list fills a new one."""

    def __init__(
        self,
        *,
        client: ApiClient,
        resource: Resource,
        item: type[R],
        make: Callable[[], S],
        metadata_only: bool = False,
        is_outdated: Callable[[S], bool] = never,
        parts: FailedParts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """`is_outdated` is asked before a watch is opened again: such a store is listed again. `pause` waits between
        attempts, in place of a wait that `stop` ends. Unexpected errors are noted in `parts`."""
        self._client = client
        self._resource = resource
        self._item = item
        self._make = make
        self._is_outdated = is_outdated
        self._list_accept = METADATA_ONLY if metadata_only else JSON
        self._watch_accept = WATCH_METADATA_ONLY if metadata_only else JSON
        self._parts = parts or FailedParts(now=time.time, monotonic=monotonic)
        self._monotonic = monotonic
        self._chance = chance or random.Random()
        self._stopping = threading.Event()
        self._pause = pause or self._stopping.wait
        self._decode_event = json_decoder(WatchEvent).decode
        self._backoff = Backoff(self._chance)
        self._lock = threading.Lock()
        self._stream: LineStream | None = None
        self._thread: threading.Thread | None = None
        self._version = ""
        self._unread_after: str | None = None
        self._current_at = self._opened_at = float("-inf")
        self._was_silent = self._has_watched = self._unreached = False
        self.store: S | None = None
        """The store; None before the first list is complete."""
        self.denied = False
        """Whether the server's last answer was that we may not read it, or that it doesn't have it."""
        self.trouble = ""
        """Why nothing has arrived since the last sign of life."""
        self.stats = WatchStats()

    @property
    def name(self) -> str:
        """The kind's plural."""
        return self._resource.plural

    @property
    def known(self) -> S:
        """The store. Raises UnsafeDataError before the first list is complete: another thread may just have begun to
        watch the kind."""
        if self.store is None:
            raise self.not_read()
        return self.store

    def not_read(self) -> UnsafeDataError:
        """The error of a kind whose first list isn't complete."""
        server = self._client.server
        why = self.trouble.removeprefix(f"{server}: ") or "the list is still being read"
        return UnsafeDataError(f"{server}: {self.name} have not been read yet: {why}")

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def age(self, now: float) -> float:
        """Seconds since the store was last known to be current, by the monotonic clock; infinite before the first."""
        return now - self._current_at

    def start(self) -> None:
        """Start to follow."""
        self._thread = threading.Thread(target=self.run, name=f"watch {self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, also in the middle of a read. Returns at once."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cut()

    def join(self, seconds: float = STOP_SECONDS) -> None:
        """Wait for the thread to end; a page of a list in progress is read first, without waiting for it."""
        if self._thread is not None:
            self._thread.join(seconds)

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stopping.is_set():
            self._opened_at = float("inf")
            try:
                wait = self._follow()
            except _StoppedError:
                return
            if wait > 0 and not self._stopping.is_set():
                self._pause(wait)

    def _follow(self) -> float:
        """List if needed, then watch until that ends; returns the wait before the next time."""
        at_once, retry_after = True, None
        if self._unreached and self.age(self._monotonic()) > INACTIVITY_SECONDS:
            # a watch of a quiet kind would show only after a minute that the store is current
            self._version = ""
        try:
            # the server of the last watch may have been upgraded since
            if self._has_watched and self.store is not None and self._is_outdated(self.store):
                self._version = ""
            if not self._version:
                self._list()
            self._watch()
        except _GoneError:
            self._version = ""
        except SilentError as error:
            at_once = self._opened_at < float("inf")
            if at_once and self._was_silent:
                self._version = ""
            self._was_silent, self._unreached = at_once, not at_once
            self._note(error, counts=not at_once)
        except UnsafeDataError as error:
            at_once = False
            # Once more from the same version; what can't be read a second time is skipped by a list.
            if self._unread_after == self._version:
                self._version = ""
            self._unread_after = self._version
            self._note(error)
        except RebalancerError as error:  # or a file with credentials that can't be read
            at_once, self._unreached = False, True
            if isinstance(error, StatusError):
                self.denied, retry_after = error.status in NOT_READABLE, error.retry_after_seconds
            self._note(error)
        except _StoppedError:
            raise
        except Exception as error:  # noqa: BLE001 - noted by its part
            at_once = False
            self._note(self._failed(error))
        healthy = self._monotonic() - self._opened_at
        return self._backoff.seconds(healthy_seconds=healthy, at_once=at_once, retry_after=retry_after)

    def _failed(self, error: Exception) -> UnsafeDataError:
        """After an unexpected error the store may be half changed: it is not current until a list has replaced it."""
        if self._stopping.is_set():
            raise _StoppedError
        part = self._parts.failed(f"watch {self.name}", error, healthy_seconds=HEALTHY_SECONDS)
        self._version, self._current_at = "", float("-inf")
        return UnsafeDataError(f"{self._client.server}: watch {self.name}: an unexpected error: {part.cause}")

    def _note(self, error: RebalancerError, *, counts: bool = True) -> None:
        if self._stopping.is_set():
            raise _StoppedError
        self.trouble = str(error)
        if counts:
            self.stats.errors += 1
            self.stats.last_error = self.trouble

    # ---- the list

    def _list(self) -> None:
        # The moment before its first page: nothing in the list is older.
        began = self._monotonic()
        try:
            store, version = read_list(
                self._client, self._resource, item=self._item, collector=self._collector, accept=self._list_accept
            )
        except ValueError as error:
            raise self._unreadable("list", error) from None
        if not version:
            raise self._unreadable("list", "it has no resourceVersion")
        self.stats.relists += self.store is not None
        self.store = store.store
        self._version, self._current_at = version, began
        self._was_silent, self.denied, self.trouble = False, False, ""

    def _collector(self) -> "_Filling[S]":
        return _Filling(self._make(), self._stopping)

    # ---- the watch

    def _watch(self) -> None:
        seconds = self._chance.randint(SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS)
        # Counted from the last sign of life: time spent on a broken connection is taken from the next one's timeout.
        patience = INACTIVITY_SECONDS * self._chance.uniform(1.0, 1.1) - self.age(self._monotonic())
        stream = self._client.stream(
            self._resource.path(),
            query={
                "watch": 1,
                "allowWatchBookmarks": "true",
                "resourceVersion": self._version,
                "timeoutSeconds": seconds,
            },
            accept=self._watch_accept,
            timeouts=Timeouts(read_seconds=max(SHORTEST_INACTIVITY_SECONDS, patience)),
        )
        with self._lock:
            self._stream = stream
        try:
            if self._stopping.is_set():
                raise _StoppedError
            self._read(stream)
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _read(self, stream: LineStream) -> None:
        if stream.response.status == 410:
            raise _GoneError
        if stream.response.status != 200:
            raise self._client.error(stream.response, verb="watch", resource=self._resource.rbac_name)
        self.stats.restarts += self._has_watched
        self._has_watched = True
        self._opened_at = self._monotonic()
        self.denied = self._unreached = False
        for lines in stream.batches():
            if self._stopping.is_set():
                raise _StoppedError
            self._take(lines)

    def _take(self, lines: Sequence[bytes]) -> None:
        changes: list[Change[R]] = []
        last: msgspec.Raw | None = None
        try:
            for line in lines:
                event = self._event(line)
                if event.type == "ERROR":
                    raise self._ended(event.object)
                if event.type != "BOOKMARK":
                    item = read_object(event.object, self._item)
                    if item.unread and not version_of(bytes(event.object)):
                        raise UnsafeDataError(item.unread)  # no object at all: the stream is broken
                    changes.append((event.type == "DELETED", item))
                last = event.object
        except (msgspec.DecodeError, UnsafeDataError) as error:
            raise self._unreadable("watch", error) from None
        finally:
            # Events before the unreadable line are applied.
            if last is not None:
                self._advance(changes, last)

    def _event(self, line: bytes) -> WatchEvent:
        try:
            return self._decode_event(line)
        except RecursionError:  # nested too deeply
            kind, item = event_of(line)
            return WatchEvent(type=kind, object=msgspec.Raw(item))

    def _advance(self, changes: Sequence[Change[R]], last: msgspec.Raw) -> None:
        assert self.store is not None
        try:
            self.store.apply(changes)
        except ValueError as error:
            raise self._unreadable("watch", error) from None
        try:
            version = json_decoder(Versioned).decode(last).metadata.resource_version
        except (msgspec.DecodeError, RecursionError):
            version = version_of(bytes(last))
        if not version:
            raise self._unreadable("watch", "an event without resourceVersion")
        self.stats.events += len(changes)
        self._version, self._current_at = version, self._monotonic()
        self._was_silent, self._unread_after, self.trouble = False, None, ""

    def _ended(self, status: msgspec.Raw) -> Exception:
        """The error of an ERROR event."""
        decoded = json_decoder(WatchStatus).decode(status)
        if decoded.code == 410:
            return _GoneError()
        text = f"{self._client.server}: watch {self._resource.rbac_name}: HTTP {decoded.code}: {decoded.message}"
        return StatusError(" ".join(text.split()), status=decoded.code)

    def _unreadable(self, verb: str, why: object) -> UnsafeDataError:
        return UnsafeDataError(f"{self._client.server}: {verb} {self._resource.plural}: can't be read: {why}")


class _Filling(Generic[S]):
    """The collector of a list: a store without readers yet."""

    def __init__(self, store: S, stopping: threading.Event) -> None:
        self.store = store
        self._stopping = stopping

    def add(self, items: Sequence[Any], /) -> None:
        """Add one page."""
        if self._stopping.is_set():
            raise _StoppedError
        self.store.add(items)
