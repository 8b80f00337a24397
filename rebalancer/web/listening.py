"""The listening socket of a listener, with a file descriptor in reserve.

A process without a free descriptor accepts no connection, so `/livez` would have no answer, and the kubelet would
restart a pod whose fault may pass. The reserve is spent on one connection, and taken again when a descriptor is free.
"""

import errno
import os
import socket
from contextlib import suppress
from typing import Any

_NONE_FREE = (errno.EMFILE, errno.ENFILE)


class ReservedSocket(socket.socket):
    """A socket whose `accept` works once more when no descriptor is free. For one thread."""

    _reserve = -1

    def listen(self, backlog: int = 128, /) -> None:
        """The same, with a reserve from here on."""
        super().listen(backlog)
        self.take_reserve()

    def accept(self) -> tuple[socket.socket, Any]:
        """The same. Raises OSError with EMFILE when the reserve is spent as well."""
        self.take_reserve()
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _NONE_FREE or self._reserve < 0:
                raise
        self._drop_reserve()
        return super().accept()

    def take_reserve(self) -> None:
        """Take it where there is none and a descriptor is free: best as soon as one is."""
        if self._reserve < 0 <= self.fileno():
            with suppress(OSError):
                self._reserve = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """The same, and the reserve is closed."""
        self._drop_reserve()
        super().close()

    def _drop_reserve(self) -> None:
        reserve, self._reserve = self._reserve, -1
        if reserve >= 0:
            os.close(reserve)
