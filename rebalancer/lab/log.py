"""The lab's event log: tests compare a program's statements with it."""

import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event.

    `event` is `request` (a mutating API request), `eviction` (an eviction as answered), what a pod went through
    (`created`, `bound`, `pulled`, `started`, `ready`, `terminating`, `deleted`, `finished`, `broken`, `restarted`,
    `failed`), `removed` (a node, by the autoscaler), or `tainted` and `untainted` (a node that has one taint more or
    less; a changed value is both).
    """

    at: float
    """Lab time, seconds since the epoch."""
    real_at: float = field(default_factory=time.time)
    event: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    node: str = ""
    code: int = 0
    """HTTP answer code of a request or an eviction."""
    verb: str = ""
    path: str = ""
    user_agent: str = ""
    dry_run: bool = False
    detail: str = ""
    """Why a request was refused; the image that was pulled."""
    key: str = ""
    value: str = ""
    effect: str = ""
    """Of a taint."""


class EventLog:
    """An append-only list, safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Add one event."""
        with self._lock:
            self._entries.append(entry)

    def entries(self, event: str | None = None) -> tuple[Entry, ...]:
        """Everything so far, oldest first; only `event`s of one kind when named."""
        with self._lock:
            return tuple(each for each in self._entries if event is None or each.event == event)

    def evictions(self, *, code: int | None = None, dry_run: bool = False) -> tuple[Entry, ...]:
        """Eviction requests, with the response code of each."""
        return tuple(
            each for each in self.entries("eviction") if each.dry_run == dry_run and (code is None or each.code == code)
        )

    def taints(self, node: str = "") -> tuple[Entry, ...]:
        """Every change of the taints of a node, of all nodes when none is named."""
        return tuple(
            each for each in self.entries() if each.event in ("tainted", "untainted") and node in ("", each.node)
        )

    def requests(self) -> tuple[Entry, ...]:
        """Every mutating request."""
        return self.entries("request")
