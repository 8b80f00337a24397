"""Workers in processes of this machine, which map one file of a recording."""

import mmap
import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from rebalancer.model.errors import RebalancerError
from rebalancer.model.recordings.recording import Recording
from rebalancer.replay.runner.workers import Channel, Workers

_ALIGNED = 64
"""Arrays begin at multiples of it in the file of a recording."""


@contextmanager
def process_pool(workers: int) -> Iterator[Workers]:
    """So many processes. They are spawned, not forked: threads of this process don't matter to them."""
    with (
        tempfile.TemporaryDirectory(prefix="replay-") as folder,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        # an interrupt is for this process, which orders the workers to stop: a blocked signal stays so in a new
        # process, and the first task starts all of them
        with _blocked(signal.SIGINT):
            pool.submit(os.getpid)
        numbers = count()

        def file() -> Path:
            return Path(folder, str(next(numbers)))

        try:
            yield Workers(
                executor=pool,
                channel=lambda tasks: FileChannel(file(), tasks),
                share=lambda recording: SharedRecording(write_recording(recording, file())),
            )
        except BrokenProcessPool:
            raise RebalancerError(
                "a worker process ended before its run did, for lack of memory perhaps: use fewer workers"
            ) from None


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Deliver the signal after the block. Processes that are started in it never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class FileChannel(Channel):
    """By a small file that all processes map."""

    def __init__(self, file: Path, tasks: int | None = None) -> None:
        """`tasks`: None for a file that exists."""
        self._file = file
        if tasks is not None:
            np.zeros(tasks + 1).tofile(file)
        super().__init__(np.memmap(file, dtype=np.float64, mode="r+"))

    def __reduce__(self) -> tuple[type["FileChannel"], tuple[Path]]:
        return FileChannel, (self._file,)


class SharedRecording:
    """A recording in a file: unpickled, it is the recording."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[[Path], Recording], tuple[Path]]:
        return read_recording, (self._file,)


def write_recording(recording: Recording, file: Path) -> Path:
    """Write a recording so that `read_recording` can map its arrays. Returns `file`."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(recording, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    with file.open("wb") as out:
        out.write(pickle.dumps([len(head), *(array.nbytes for array in arrays)]))
        for data in (memoryview(head), *arrays):
            out.write(bytes(-out.tell() % _ALIGNED))
            out.write(data)
    return file


@lru_cache(maxsize=1)
def read_recording(file: Path) -> Recording:
    """A recording of which the arrays are read-only parts of the mapped file: processes share their memory."""
    with file.open("rb") as opened:
        lengths: list[int] = pickle.load(opened)
        at = opened.tell()
        mapped = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    data = []
    for length in lengths:
        at += -at % _ALIGNED
        data.append(mapped[at : at + length])
        at += length
    recording: Recording = pickle.loads(data[0], buffers=data[1:])
    return recording
