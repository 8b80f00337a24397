"""Parts of a cycle or of a forecast run that the rest doesn't depend on: an error in one of them is a note."""

import logging
from collections.abc import Callable
from typing import TypeVar

from rebalancer.model.errors import RebalancerError

LOG = logging.getLogger("rebalancer")
T = TypeVar("T")


def isolated(problem: str, make: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    """(what `make` returns, no notes); where it raises, (None, the note `problem: error`).

    An error that isn't a RebalancerError is a defect: its trace is logged.
    """
    try:
        return make(), ()
    except RebalancerError as error:
        return None, (f"{problem}: {error}",)
    except Exception as error:
        LOG.exception("%s", problem)
        return None, (f"{problem}: {type(error).__name__}: {error}",)
