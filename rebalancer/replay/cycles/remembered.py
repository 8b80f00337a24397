"""The ledger and the records of a replay, without repeating reads whose answer can't have changed.

Most cycles of a replay evict nothing. What they read of the database is what the cycle before has read: rows are only
written by the replay itself, and an empty answer stays empty while time passes. A cycle is written when it evicts.
"""

from collections.abc import Callable
from typing import Any

from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Ledger, Records

SAME = frozenset({"open_evictions", "pauses", "nodes_elsewhere", "start_ups", "start_ups_by_service"})
"""Reads that have the same answer until something is written."""
EMPTY = frozenset(
    {
        *("entries", "backoffs", "lineages", "services_evicted_remotely", "replacements"),
        *("evicted", "replaced", "reconcile_outcomes", "recent_moves", "drains", "remote_readiness"),
    }
)
"""Reads of the last hours or days: an empty answer stays empty until something is written."""
SINCE = frozenset({"recent_moves", "lineages", "drains", "evicted", "replaced", "replacements"})
"""Those of them that are asked for rows since a time: the answer holds for that time and later ones."""
AGAIN = frozenset({"publish_readiness", "publish_global_limits"})
"""Writes that are repeated with the same arguments."""
NEVER = frozenset({"prune_at_times"})
"""What a database that is deleted after the run doesn't need."""
PLAIN = frozenset({"now", "fence", "requested", "put_requested"})
"""Calls that no remembered answer depends on."""


class Remembered:
    """See the module. One for the ledger and the records of a run, as both write the same tables."""

    def __init__(self, ledger: Ledger, records: Records) -> None:
        self._parts = ledger, records
        self._answers: dict[tuple[str, object], Any] = {}
        self._published: dict[str, object] = {}
        self._begun: CycleReport | None = None
        """A cycle that is not written yet."""
        self._written = ""
        self.evicts = False
        """Whether anything was ever reserved."""

    def begin(self, report: CycleReport) -> None:
        """Written when the first eviction is reserved."""
        self._begun = report

    def finish(self, report: CycleReport) -> None:
        """Written for a cycle that has evicted."""
        if self._written == report.id:
            self._parts[1].finish(report)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of the ledger, or of the records."""
        ledger, records = self._parts
        method: Callable[..., Any] = getattr(ledger, name, None) or getattr(records, name)
        if name in PLAIN:
            return method
        if name in NEVER:
            return lambda *_, **__: None
        if name in SAME or name in EMPTY:
            return lambda *args, **more: self._read(name, method, args, more)
        if name in AGAIN:
            return lambda **more: self._publish(name, method, more)
        return lambda *args, **more: self._write(name, method, args, more)

    def _read(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        key = name, args[0] if name == "start_ups" else None
        since = float(args[0]) if name in SINCE and args else 0.0
        if key in self._answers and since >= self._answers[key][0]:
            return self._answers[key][1]
        answer = method(*args, **more)
        if name in SAME or not answer:
            self._answers[key] = since, answer
        return answer

    def _publish(self, name: str, method: Callable[..., Any], more: dict[str, Any]) -> None:
        if self._published.get(name) != more:
            method(**more)
            self._published[name] = more

    def _write(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        self._answers.clear()
        if name in ("reserve_all", "planned") and self._begun is not None:
            self._parts[1].begin(self._begun)
            self._written, self._begun = self._begun.id, None
            self.evicts = True
        return method(*args, **more)
