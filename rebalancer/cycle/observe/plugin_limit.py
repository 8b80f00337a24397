"""A time limit on the strategies of other packages: one that hangs is stopped, and only it is skipped.

A plugin runs in a thread of its own. Past its limit an exception is raised in that thread, which ends it at its next
line of Python. A call that never returns can't be ended: the plugin is skipped as long as that thread lives.
"""

import ctypes
import logging
import threading

from rebalancer.strategies import Findings, StrategyView
from rebalancer.strategies.registry import Find

LOG = logging.getLogger("rebalancer")

LIMIT_SECONDS = 10.0
"""Time in which a plugin has to return its findings."""
STOP_SECONDS = 1.0
"""Time that a stopped plugin gets to end."""


class _TimeUp(BaseException):
    """Raised in the thread of a plugin. No `except Exception` of the plugin catches it."""


def find_within(find: Find, view: StrategyView, *, seconds: float | None = None) -> Findings:
    """The findings of a plugin, or none with a note where it takes longer. Raises what `find` raises."""
    seconds = LIMIT_SECONDS if seconds is None else seconds
    name = f"strategy {view.strategy.name}"
    if any(thread.name == name for thread in threading.enumerate()):
        return _nothing(f"{view.strategy.name} is skipped: a call of an earlier cycle has not ended yet")
    found: list[Findings] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(find(view))
        except _TimeUp:
            pass
        except Exception as error:  # noqa: BLE001 - raised again by the caller
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _stop(thread)
    if failed:
        raise failed[0]
    if found:
        return found[0]
    return _nothing(f"{view.strategy.name} was stopped after {seconds:g} seconds and finds nothing")


def _stop(thread: threading.Thread) -> None:
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeUp))
    thread.join(STOP_SECONDS)


def _nothing(note: str) -> Findings:
    LOG.warning("%s", note)
    return Findings(findings=(), notes=(note,), failed=note)
