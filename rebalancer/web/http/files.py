"""Files that may hang (a dead NFS, a pipe): read in a thread of their own, within a time limit."""

import errno
import os
import threading
import time

READ_SECONDS = 2.0
"""A read that takes longer is an error."""

AGAIN_SECONDS = 10.0
"""While a read hangs, the next one begins after so long: the file may be another one now."""

MOST_HANGING = 16
"""Reads that hang at once; then no other begins until one of them has ended."""

MAX_FILE_BYTES = 65536


class FileReader:
    """Reads one file again and again. Thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._hanging: list[_Read] = []
        self._began_at = float("-inf")

    def read(self) -> bytes:
        """Its first MAX_FILE_BYTES.

        Raises OSError: TimeoutError when it takes longer than READ_SECONDS, and at once while an earlier read hangs.
        """
        with self._lock:
            self._hanging = [each for each in self._hanging if not each.done.is_set()]
            now = time.monotonic()
            if self._hanging and (len(self._hanging) >= MOST_HANGING or now - self._began_at < AGAIN_SECONDS):
                raise _timeout(self.path)
            self._began_at = now
            read = _Read(self.path)
            threading.Thread(target=read.run, name="web-file", daemon=True).start()
            if not read.done.wait(READ_SECONDS):
                self._hanging.append(read)
                raise _timeout(self.path)
        if read.error is not None:
            raise read.error
        return read.content


class _Read:
    """One read in its thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.done = threading.Event()
        self.content = b""
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self.content = content(self._path)
        except OSError as error:
            self.error = error
        finally:
            self.done.set()


def content(path: str) -> bytes:
    """The first MAX_FILE_BYTES of a file. Raises OSError. Of a pipe only what is in it."""
    # without O_NONBLOCK a pipe that nothing writes to hangs for ever
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        left = MAX_FILE_BYTES
        while left and (part := os.read(file, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _timeout(path: str) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"no answer within {READ_SECONDS:g} s", path)
