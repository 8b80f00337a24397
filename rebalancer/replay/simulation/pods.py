"""The pods of the simulated cluster, as columns."""

import math

import numpy as np

from rebalancer.replay.simulation.loads import Wide

NONE = -1
NEVER = math.inf


class PodTable:
    """Pods are indices that only grow; those that are gone keep their row. Times are seconds since the epoch."""

    def __init__(self, room: int) -> None:
        """`room`: rows before the columns grow."""
        self.load, self.node, self.recorded = (np.full(room, NONE, dtype=np.int64) for _ in range(3))
        """`recorded`: the recorded pod that each one is: the first of its load, or the replacement after the same
        eviction."""
        self.created, self.bound, self.ready_at = (np.full(room, NEVER) for _ in range(3))
        self.going_at, self.gone_at, self.from_at = (np.full(room, NEVER) for _ in range(3))
        """Terminating since, gone since, and carrying its load since."""
        self.names: list[str] = []
        self.uids: list[str] = []
        self.row_of: dict[str, int] = {}
        """uid -> pod that is there."""
        self.version = 0
        """Changes with every pod."""
        self._alive: tuple[int, Wide] = -1, np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def add(self, name: str, uid: str, *, load: int, recorded: int, created: float) -> int:
        """A new pod without a node; its row."""
        row = len(self)
        if row == len(self.load):
            for column, values in vars(self).items():
                if isinstance(values, np.ndarray):
                    empty = NEVER if values.dtype == np.float64 else NONE
                    setattr(self, column, np.concatenate([values, np.full_like(values, empty)]))
        self.load[row], self.recorded[row], self.created[row] = load, recorded, created
        self.names.append(name)
        self.uids.append(uid)
        self.row_of[uid] = row
        self.version += 1
        return row

    def remove(self, row: int, now: float) -> None:
        """A pod is gone."""
        self.gone_at[row] = now
        self.row_of.pop(self.uids[row], None)
        self.version += 1

    def alive(self) -> Wide:
        """Pods that are there, in the order of their creation."""
        if self._alive[0] != self.version:
            self._alive = self.version, np.flatnonzero(self.gone_at[: len(self)] == NEVER)
        return self._alive[1]
