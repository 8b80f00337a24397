"""Parts of a cycle or of a forecast run that the rest doesn't depend on: an error in one of them is a note."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rebalancer.model.errors import RebalancerError, UnsafeDataError
from rebalancer.model.parts import FailedParts, VitalError, cause_of, ends_process

LOG = logging.getLogger("rebalancer")
T = TypeVar("T")


def failed_parts() -> FailedParts:
    """No part has failed; by the machine's clocks. Failures are logged with their traces."""
    parts = FailedParts(now=time.time, monotonic=time.monotonic)
    parts.observers.append(lambda part, error: LOG.error("%s", part.note, exc_info=error))
    return parts


def isolated(problem: str, make: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    """(what `make` returns, no notes); where it raises, (None, the note `problem: error`).

    An error that isn't a RebalancerError is a defect: its trace is logged. Raises what ends the process.
    """
    try:
        return make(), ()
    except RebalancerError as error:
        return None, (f"{problem}: {error}",)
    except Exception as error:
        if isinstance(error, VitalError):
            raise
        LOG.exception("%s", problem)
        return None, (f"{problem}: {type(error).__name__}: {error}",)


def read_part(parts: FailedParts, name: str, read: Callable[[], T]) -> T:
    """What `read` returns. Raises UnsafeDataError in place of an unexpected error, which is noted."""
    try:
        found = read()
    except RebalancerError:
        raise
    except Exception as error:
        part = parts.failed(name, error)
        raise UnsafeDataError(f"{name} can't be read: {part.cause}") from error
    parts.worked(name)
    return found


@contextmanager
def vital(what: str) -> Iterator[None]:
    """A call of the ledger. Raises VitalError in place of an unexpected error."""
    try:
        yield
    except RebalancerError:
        raise
    except Exception as error:
        if ends_process(error):
            raise
        raise VitalError(f"{what}: {cause_of(error)}") from error
