"""PodDisruptionBudgets of a recording, from entries of the journal."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rebalancer.model.notation.arrays import Ints
from rebalancer.model.recordings.recording import RecordedBudget
from rebalancer.store.journal.entries import BudgetEntry, Entry


@dataclass(slots=True)
class _Budget:
    """A budget over the recording."""

    entry: BudgetEntry
    desired: Ints
    since: float
    until: float = np.inf

    def recorded(self) -> RecordedBudget:
        """As a recording has it."""
        return RecordedBudget(
            namespace=self.entry.namespace,
            name=self.entry.name,
            selector=self.entry.selector,
            desired_healthy=self.desired,
            since=self.since,
            until=self.until,
            evicts_unhealthy=self.entry.evicts_unhealthy,
        )


class Budgets:
    """Budgets by namespace and name."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._found: dict[tuple[str, str], _Budget] = {}

    def apply(self, entry: Entry, *, step: int, first: bool) -> None:
        """The next entry, whose changes hold from a step on. What the `first` one has was there before."""
        for each in entry.budgets:
            key = each.namespace, each.name
            known = self._found.get(key)
            if known is None:
                since = -np.inf if first else entry.at
                known = _Budget(each, np.full(self._steps, each.desired_healthy, dtype=np.int32), since)
                self._found[key] = known
            known.entry, known.until = each, np.inf
            known.desired[step:] = each.desired_healthy
        gone: Iterable[tuple[str, str]] = entry.budgets_ended
        if entry.previous is None:  # a keyframe
            gone = self._found.keys() - {(each.namespace, each.name) for each in entry.budgets}
        for key in gone:
            self._found[key].until = min(self._found[key].until, entry.at)

    def recorded(self, start: float) -> tuple[RecordedBudget, ...]:
        """Those that were there from `start` on."""
        return tuple(each.recorded() for each in self._found.values() if each.until > start)
