"""The listening socket of a listener, with file descriptors in reserve.

A process without a free descriptor accepts no connection, so `/livez` would have no answer, and the kubelet would
restart a pod whose fault may pass. A reserve is spent on each connection, and taken again when a descriptor is free.
"""

import errno
import os
import socket
from contextlib import suppress
from typing import Any

RESERVES = 16
"""Another thread that waits for a descriptor may take one between its end as a reserve and the connection, and keep
it: as many as there are long connections to the cluster, Prometheus and the database."""
_NONE_FREE = (errno.EMFILE, errno.ENFILE)


class ReservedSocket(socket.socket):
    """A socket whose `accept` works a few times more when no descriptor is free. For one thread."""

    _reserves: tuple[int, ...] = ()

    def listen(self, backlog: int = 128, /) -> None:
        """The same, with reserves from here on."""
        super().listen(backlog)
        self.take_reserves()

    def accept(self) -> tuple[socket.socket, Any]:
        """The same. Raises OSError with EMFILE when the reserves are spent as well."""
        self.take_reserves()
        while True:
            try:
                return super().accept()
            except OSError as error:
                if error.errno not in _NONE_FREE or not self._reserves:
                    raise
            self._drop_reserve()

    def take_reserves(self) -> None:
        """Take those that are missing while a descriptor is free: best as soon as one is."""
        with suppress(OSError):
            while len(self._reserves) < RESERVES and self.fileno() >= 0:
                self._reserves += (os.open(os.devnull, os.O_RDONLY),)

    def close(self) -> None:
        """The same, and the reserves are closed."""
        while self._reserves:
            self._drop_reserve()
        super().close()

    def _drop_reserve(self) -> None:
        *rest, last = self._reserves
        self._reserves = tuple(rest)
        os.close(last)
