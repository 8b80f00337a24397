"""A small disk that can be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SMALL_DISK_BYTES = 4 << 20


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own at `folder`; skips the test where it can't be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room that is left."""
    file = disk / "filler"
    with file.open("wb", buffering=0) as output:
        size = 1 << 16
        while size:
            try:
                output.write(b"x" * size)
            except OSError:
                size //= 2
    return file
