"""The daemon's journal: day files of what a replay needs besides usage.

- `entries` what a file is made of
- `changes` snapshots to entries
- `files`   names, appending, size and age
- `reading` entries to a recording; `nodes` their nodes, `budgets` their budgets, `tables` its columns
- `readings` what cycles read of CPU, to entries and back
"""

from rebalancer.store.journal.files import DayJournal, entry_times, journal_days
from rebalancer.store.journal.reading import recording_of

__all__ = ["DayJournal", "entry_times", "journal_days", "recording_of"]
