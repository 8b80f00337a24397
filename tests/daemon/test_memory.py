import ctypes
from pathlib import Path

import pytest

from rebalancer.daemon.memory import release_free_memory

MIB = 2**20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc only")
def test_memory_that_lies_free_between_used_blocks_is_returned() -> None:
    blocks = [b"x" * 65_536 for _ in range(1600)]
    last = blocks[-1]  # keeps the end of the memory in use
    blocks.clear()
    full = resident()
    release_free_memory()
    assert full - resident() > 50 * MIB
    assert last
