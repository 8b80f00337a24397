"""Runs of a recording in processes of this machine, which map one file of it."""

import mmap
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from rebalancer.bootstrap.tasks import Channel, Job, Task, result_of, run_task, wait
from rebalancer.model.errors import RebalancerError
from rebalancer.model.recording import Recording
from rebalancer.model.replay import ReplayRun

_ALIGNED = 64
"""Arrays begin at multiples of it in the file of a recording."""


class ProcessWorkers:
    """Runs tasks in processes of this machine. They are spawned, not forked: threads of this process don't matter
    to them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def __enter__(self) -> "ProcessWorkers":
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-")))
            self._pool = ProcessPoolExecutor(self._workers, mp_context=get_context("spawn"))
            stack.callback(self._pool.shutdown, cancel_futures=True)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self, tasks: Sequence[Task], *, progress: Callable[[int, float], None], stopping: Callable[[], bool]
    ) -> list[ReplayRun | None]:
        """See JobExecutor."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        files: dict[int, Path] = {}
        for task in tasks:
            if id(task.recording) not in files:
                files[id(task.recording)] = write_recording(task.recording, folder / f"{len(files)}")
        channel = FileChannel(folder / "progress", len(tasks))
        # an interrupt is for this process, which orders the workers to stop: a blocked signal stays so in a new process
        with _blocked(signal.SIGINT):
            futures = [
                self._pool.submit(_run_from_file, task.job, files[id(task.recording)], number, channel)
                for number, task in enumerate(tasks)
            ]
        try:
            wait(futures, channel, progress=progress, stopping=stopping)
            return [result_of(future) for future in futures]
        except BrokenProcessPool:
            raise RebalancerError(
                "a worker process ended before its run did, for lack of memory perhaps: use fewer workers"
            ) from None
        finally:
            channel.stop()


def _run_from_file(job: Job, file: Path, number: int, channel: Channel) -> ReplayRun | None:
    return run_task(job, read_recording(file), number, channel)


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Deliver the signal after the block. Processes that are started in it never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class FileChannel:
    """`Channel` and `Monitor` over a small file that all processes map."""

    def __init__(self, file: Path, tasks: int) -> None:
        self._file = file
        np.zeros(tasks + 1).tofile(file)
        self._values = self._mapped()

    def _mapped(self) -> Any:
        return np.memmap(self._file, dtype=np.float64, mode="r+")

    def __reduce__(self) -> tuple[Callable[[Path], "FileChannel"], tuple[Path]]:
        return FileChannel._opened, (self._file,)

    @classmethod
    def _opened(cls, file: Path) -> "FileChannel":
        out = cls.__new__(cls)
        out._file = file
        out._values = out._mapped()
        return out

    def report(self, task: int, done: float) -> None:
        """See Channel."""
        self._values[task + 1] = done

    def fractions(self) -> list[float]:
        """See Monitor."""
        out: list[float] = self._values[1:].tolist()
        return out

    def stopped(self) -> bool:
        """See Channel."""
        return bool(self._values[0])

    def stop(self) -> None:
        """See Monitor."""
        self._values[0] = 1.0


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
