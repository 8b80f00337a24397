"""Day blocks: usage history as files, a cache that may be deleted at any time and is then filled again.

One file a day and cluster, `<directory>/<cluster>/<date>.day`; of resources besides CPU in a folder of their own,
`<directory>/<cluster>/<resource>/<date>.day`:

    magic and version | length of the head | CRC-32 of all that follows | grids | names | head (JSON)

Figures are kept in 16 bits, in steps of a 65,534th of their row's largest, high bytes apart from low ones and deflated:
about 75 MiB for a day of 150,000 pods. The daily percentiles of services are not in the database: they are
computed from these days in seconds.

The module is an adapter like the tables: `forecasting` does no file I/O, and retention of the cache belongs here.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.history import SLOTS, DayBlock, Grid, StoredDay, date_of
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.notation.resource_names import CPU

_MAGIC = b"RBDAY\x00\x00\x01"
"""The last byte is the version."""
_START = struct.Struct("<8sII")
_SUFFIX = ".day"
_ROWS = 4096
"""Compressed together, so that little memory is needed on the way."""
_LEVELS = 65_534
_UNKNOWN = 65_535
_READ_BYTES = 1 << 20


class _BrokenError(Exception):
    """A file that is not a valid day block; the message has the reason."""


class _OtherQueriesError(Exception):
    """A sound file, but of other queries."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    day: int
    cluster: str
    source: str
    complete: bool
    filled: int
    notes: tuple[str, ...]
    pods: int
    nodes: int
    batches: tuple[int, ...]
    """Bytes of each compressed batch of rows, pods before nodes."""
    names: int
    """Bytes of all names, pods before nodes."""


class BlockStore:
    """The days of one cluster; implements `model.measured.history.DayStore`. For one thread of one process."""

    def __init__(self, directory: Path, *, cluster: str, source: str, resource: str = CPU) -> None:
        """`source` is the identity of the queries: days of another source are replaced."""
        self._cluster = cluster
        self._source = source
        self._folder = directory / cluster
        if resource != CPU:
            self._folder /= quote(resource, safe="")
        self._checked: dict[Path, tuple[tuple[int, int], StoredDay]] = {}
        self._notes: list[str] = []

    def days(self) -> Mapping[int, StoredDay]:
        """What is kept, each file checked to its last byte when it is first seen."""
        found = {}
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            kept = self._kept(path)
            if kept is not None:
                found[kept.day] = kept
        return found

    def load(self, day: int) -> DayBlock | None:
        """One day. None when it isn't there, or broken; then its file is removed."""
        path = self._path(day)
        try:
            data = path.read_bytes()
            head = self._head(path, data[: _START.size], data[-_head_bytes(data) :])
            _check(zlib.crc32(memoryview(data)[_START.size :]), data)
            return _block(head, memoryview(data)[_START.size :])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(path, error) from None
        except _OtherQueriesError:
            return None
        except (_BrokenError, zlib.error, ValueError) as error:
            self._remove(path, str(error))
            return None

    def nodes(self, day: int) -> tuple[tuple[str, ...], Grid] | None:
        """Names and rows of one day's nodes, without reading its pods; None where there is no sound file. For any
        thread: nothing is removed, and a file that is replaced meanwhile is read as it was."""
        path = self._path(day)
        try:
            with path.open("rb") as file:
                start = file.read(_START.size)
                file.seek(-_head_bytes(start), os.SEEK_END)
                head = self._head(path, start, file.read())
                of_pods = -(-head.pods // _ROWS)
                file.seek(_START.size + sum(head.batches[:of_pods]))
                batches = [memoryview(file.read(size)) for size in head.batches[of_pods:]]
                names = json_decoder(tuple[str, ...]).decode(file.read(head.names))
            return names[head.pods :], _decoded(batches, head.nodes)
        except (OSError, _BrokenError, _OtherQueriesError, zlib.error, ValueError):
            return None

    def save(self, block: DayBlock) -> None:
        """Write a day, or replace it. Raises ConfigError."""
        path = self._path(block.day)
        temporary = path.with_suffix(".tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as out:
                out.write(_START.pack(_MAGIC, 0, 0))
                checksum, length = 0, 0
                for part in self._parts(block):
                    checksum, length = zlib.crc32(part, checksum), out.write(part)
                out.seek(0)
                out.write(_START.pack(_MAGIC, length, checksum))
            # not synced: what a power cut breaks, the checksum finds, and it is read again
            os.replace(temporary, path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)  # on a full disk the database may need the room
            raise self._unusable(path, error) from None

    def _parts(self, block: DayBlock) -> Iterator[bytes]:
        """What stands behind the start; the last part is the head."""
        sizes: list[int] = []
        for grid in (block.pod_millicores, block.node_millicores):
            for first in range(0, len(grid), _ROWS):
                part = _encoded(grid[first : first + _ROWS])
                sizes.append(len(part))
                yield part
        names = msgspec.json.encode((*block.pods, *block.nodes))
        yield names
        yield msgspec.json.encode(
            _Head(
                day=block.day,
                cluster=self._cluster,
                source=self._source,
                complete=block.complete,
                filled=block.filled,
                notes=block.notes,
                pods=len(block.pods),
                nodes=len(block.nodes),
                batches=tuple(sizes),
                names=len(names),
            )
        )

    def drop(self, *, before: int) -> None:
        """Remove all earlier days; CPU's store also those of resources that the policy doesn't name any more."""
        for path in self._folder.rglob("*.*"):  # what a killed process left of a file, too
            day = _day_of(path)
            if day is not None and day < before:
                path.unlink(missing_ok=True)

    def take_notes(self) -> tuple[str, ...]:
        """What was removed since the last call, and why."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _kept(self, path: Path) -> StoredDay | None:
        try:
            stat = path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
            known = self._checked.get(path)
            if known is None or known[0] != state:
                known = self._checked[path] = (state, self._read_kept(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(path, error) from None
        except _OtherQueriesError:
            self._note(f"{path.name} was read with other queries, so the day is read again")
            return None
        except _BrokenError as error:
            self._remove(path, str(error))
            return None
        return known[1]

    def _read_kept(self, path: Path) -> StoredDay:
        with path.open("rb") as file:
            start = file.read(_START.size)
            checksum = 0
            while part := file.read(_READ_BYTES):
                checksum = zlib.crc32(part, checksum)
            file.seek(max(file.tell() - _head_bytes(start), 0))
            head = self._head(path, start, file.read())
        _check(checksum, start)
        return StoredDay(day=head.day, complete=head.complete, filled=head.filled, notes=head.notes)

    def _head(self, path: Path, start: bytes, data: bytes) -> _Head:
        if len(start) < _START.size:
            raise _BrokenError("it is cut off")
        if not start.startswith(_MAGIC):
            raise _BrokenError("it is of another version" if start[:5] == _MAGIC[:5] else "it is no such file")
        try:
            head = json_decoder(_Head).decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _BrokenError("its head can't be read") from None
        if (head.cluster, head.day) != (self._cluster, _day_of(path)):
            raise _BrokenError(f"it is of {head.cluster}, {date_of(head.day)}")
        if head.source != self._source:
            raise _OtherQueriesError
        return head

    def _remove(self, path: Path, why: str) -> None:
        self._checked.pop(path, None)
        path.unlink(missing_ok=True)
        self._note(f"{path.name} is removed and the day read again: {why}")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _path(self, day: int) -> Path:
        return self._folder / f"{date_of(day)}{_SUFFIX}"

    def _unusable(self, path: Path, error: OSError) -> ConfigError:
        return ConfigError(f"{path}: {error.strerror or error}: expected a folder that history can be kept in")


def _head_bytes(start: bytes) -> int:
    return int(_START.unpack_from(start)[1]) if len(start) >= _START.size else 0


def _check(checksum: int, start: bytes) -> None:
    if checksum != _START.unpack_from(start)[2]:
        raise _BrokenError("its checksum is wrong")


def _block(head: _Head, data: memoryview) -> DayBlock:
    at, batches = 0, []
    for size in head.batches:
        batches.append(data[at : at + size])
        at += size
    names = json_decoder(tuple[str, ...]).decode(data[at : at + head.names])
    of_pods = -(-head.pods // _ROWS)
    return DayBlock(
        day=head.day,
        pods=tuple(names[: head.pods]),
        pod_millicores=_decoded(batches[:of_pods], head.pods),
        nodes=tuple(names[head.pods :]),
        node_millicores=_decoded(batches[of_pods:], head.nodes),
        complete=head.complete,
        filled=head.filled,
        notes=head.notes,
    )


def _encoded(rows: Grid) -> bytes:
    """Each row's largest value as float32, then all values in 16 bits, high bytes first."""
    known = np.isfinite(rows)
    filled = np.where(known, rows, 0.0)
    largest = filled.max(axis=1, initial=0.0).astype("<f4")
    steps = np.divide(_LEVELS, largest, out=np.zeros(len(rows), dtype=np.float64), where=largest > 0)
    whole: NDArray[np.uint16] = np.where(known, np.rint(filled * steps[:, None]), _UNKNOWN).astype("<u2")
    planes = whole.view(np.uint8).reshape(-1, 2).T[::-1]
    return zlib.compress(largest.tobytes() + planes.tobytes(), 1)


def _decoded(batches: list[memoryview], rows: int) -> Grid:
    out: Grid = np.empty((rows, SLOTS), dtype=np.float32)
    for number, batch in enumerate(batches):
        data = zlib.decompress(batch)
        into = out[number * _ROWS : (number + 1) * _ROWS]
        count = len(into)
        largest = np.frombuffer(data, dtype="<f4", count=count)
        planes = np.frombuffer(data, dtype=np.uint8, offset=4 * count).reshape(2, -1)
        whole = np.ascontiguousarray(planes[::-1].T).view("<u2").reshape(count, SLOTS)
        np.multiply(whole, (largest / _LEVELS)[:, None], out=into, casting="same_kind")
        into[whole == _UNKNOWN] = np.nan
    return out


def _day_of(path: Path) -> int | None:
    try:
        return (date.fromisoformat(path.stem) - date(1970, 1, 1)).days
    except ValueError:
        return None
