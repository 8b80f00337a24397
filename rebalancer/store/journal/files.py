"""Journal files: one a day and cluster beside the day blocks, `<directory>/<cluster>/journal-<date>.rbj`.

The first entry of a day and of a process is a keyframe, the others are changes. An entry is appended by one write; what
a crash leaves of one is skipped when the file is read. A file may be deleted at any time.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import date_of, slot_of
from rebalancer.model.notation.figures import percent
from rebalancer.model.recordings.journal import ReadUsage
from rebalancer.store.journal.changes import Changes
from rebalancer.store.journal.entries import Entry, Read, decoded, encoded

KEPT_DAYS = 16
"""Closed days that are kept, besides today."""

MAX_DAY_BYTES = 50_000_000
"""Largest file. The rest of such a day is left out."""

READINGS_SHARE = 0.6
"""Of MAX_DAY_BYTES: over it, what cycles read is left out, so that changes have room for the rest of the day. Without
changes a replay of that time isn't possible; without readings it is less exact."""

READING_SECONDS = 50.0
"""Least distance of two readings. Each strategy and pool has cycles of its own, so that they may be seconds apart,
while their rate windows are minutes long. A strategy with an interval of a minute, less its jitter, has them all."""

_PREFIX, _SUFFIX = "journal-", ".rbj"
_RESERVE_BYTES = 200
"""For the entry that says that the day is cut."""


class DayJournal:
    """Writes the journal of one cluster; implements `model.recordings.journal.Journal`. Not thread-safe."""

    def __init__(self, directory: Path, *, cluster: str, max_day_bytes: int = MAX_DAY_BYTES) -> None:
        self._folder = directory / cluster
        self._max_bytes = max_day_bytes
        self._changes = Changes()
        self._end: tuple[Path, int, int] | None = None
        """File, size and checksum of the last entry as this process left them; None: the next one is a keyframe."""
        self._cut: Path | None = None
        self._read_at = float("-inf")
        """Time of the last reading that was appended."""
        self._without_readings: Path | None = None
        self._notes: list[str] = []

    def append(
        self,
        snapshot: ClusterSnapshot,
        *,
        evictions: Sequence[Eviction],
        alerts: Sequence[AlertEpisode],
        read: ReadUsage | None = None,
    ) -> None:
        """See `Journal`."""
        day, _ = slot_of(snapshot.taken)
        path = _path(self._folder, day)
        if path == self._cut:
            return
        try:
            end, self._end = self._end, None
            size = path.stat().st_size if path.exists() else 0
            if end is not None and end[:2] == (path, size):
                previous: int | None = end[2]
            else:
                # another day, another process has written, or the file is gone
                self._begin_day(day)
                previous = None
            kept = read if read is not None and self._keeps(read, path, size) else None
            entry = self._changes.entry(snapshot, previous=previous, evictions=evictions, alerts=alerts, read=kept)
            data, checksum = encoded(entry)
            if size + len(data) > self._max_bytes - _RESERVE_BYTES:
                data, checksum = encoded(Entry(at=snapshot.taken, previous=previous, cut=True))
                self._cut = path
                self._notes.append(
                    f"{path.name} is full ({self._max_bytes / 1e6:.0f} MB): the rest of the day is left out"
                )
            _write(path, data, size)
        except OSError as error:
            raise ConfigError(
                f"{path}: {error.strerror or error}: expected a folder that history can be kept in"
            ) from None
        self._end = path, size + len(data), checksum
        if kept is not None:
            self._read_at = kept.usage.at

    def take_notes(self) -> tuple[str, ...]:
        """See `Journal`."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _keeps(self, read: ReadUsage, path: Path, size: int) -> bool:
        """Whether a reading is stored, in a file of this size."""
        if size > READINGS_SHARE * self._max_bytes:
            if path != self._without_readings:
                self._without_readings = path
                self._notes.append(
                    f"{path.name} is {percent(READINGS_SHARE)} full: the CPU that cycles read is left out for the rest "
                    "of the day"
                )
            return False
        # the clock may have been set back
        return not 0.0 <= read.usage.at - self._read_at < READING_SECONDS

    def _begin_day(self, day: int) -> None:
        self._changes, self._cut = Changes(), None
        self._folder.mkdir(parents=True, exist_ok=True)
        for each, path in _files(self._folder):
            if each < day - KEPT_DAYS:
                path.unlink(missing_ok=True)


def journal_days(directory: Path, cluster: str) -> list[int]:
    """Days of which there is a file, in their order."""
    return [day for day, _ in _files(directory / cluster)]


def entry_times(directory: Path, cluster: str, day: int) -> list[float]:
    """When the entries of a day were made that a recording can use. Raises ConfigError."""
    found = continuous(read_day(directory, cluster, day))
    return [each.at for each in found if not isinstance(each, int) and not each.cut]


def continuous(parts: Iterable[Read | int]) -> Iterator[Entry | int]:
    """The entries that continue the one before them, and keyframes; bytes that can't be read as `read_day`."""
    last: int | None = None
    for each in parts:
        if isinstance(each, int):
            last = None
            yield each
        elif each.entry.previous is None or each.entry.previous == last:
            last = each.checksum
            yield each.entry


def read_day(directory: Path, cluster: str, day: int) -> Iterator[Read | int]:
    """Entries of a day in their order; for a part that can't be read, the number of its bytes. Nothing for a day
    without a file. Raises ConfigError."""
    path = _path(directory / cluster, day)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: expected a readable file") from None
    yield from decoded(data)


def _write(path: Path, data: bytes, size: int) -> None:
    """Append to a file of this size with one write. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        # not synced: what a power cut breaks, the checksum finds
        if os.write(file, data) < len(data):
            raise OSError(28, os.strerror(28))
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)  # on a full disk the database may need the room
        raise
    finally:
        os.close(file)


def _files(folder: Path) -> list[tuple[int, Path]]:
    """(day, file), in their order."""
    found = []
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(ValueError):
            found.append(((date.fromisoformat(path.stem.removeprefix(_PREFIX)) - date(1970, 1, 1)).days, path))
    return sorted(found)


def _path(folder: Path, day: int) -> Path:
    return folder / f"{_PREFIX}{date_of(day)}{_SUFFIX}"
