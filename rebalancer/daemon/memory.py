"""glibc's allocator in a process that lives for months. Other C libraries don't have these options: nothing is done."""

import ctypes

M_ARENA_MAX, ARENAS = -8, 2
"""Number of the option in glibc's malloc.h, and the greatest number of arenas."""

_LIBC = ctypes.CDLL(None)


def limit_arenas() -> None:
    """Memory that one thread frees is used by the others: a dozen threads read lists, each into an arena of its own."""
    set_option = getattr(_LIBC, "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, ARENAS)


def release_free_memory() -> None:
    """Return free memory to the system, after work that took much of it for a short time.

    glibc returns only what lies at the end of its memory: at 150,000 pods a sixth of the process stayed unused.
    """
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)
