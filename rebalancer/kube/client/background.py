"""Calls that run while other work goes on."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(call: Callable[[], T], *, name: str) -> Future[T]:
    """Run it in a thread of its own, which doesn't keep the process from ending; its result or error.

    A pool's threads are waited for at the end of the process, for as long as a request may take.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
