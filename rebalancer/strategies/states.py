"""A pod's states, by the names that people see in kubectl: its phase, its reason, why its containers wait or ended."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.snapshot import PHASES, ClusterSnapshot

Bools = NDArray[np.bool_]


def in_states(snapshot: ClusterSnapshot, states: Collection[str], *, init_containers: bool) -> Bools:
    """(pods,) pods of which one state is among `states`; with `init_containers` theirs count, too."""
    phase = np.array([name in states for name in PHASES], dtype=np.bool_)
    out: Bools = phase[snapshot.pods.phase] | with_reasons(snapshot, states, init_containers=init_containers)
    return out


def with_reasons(snapshot: ClusterSnapshot, reasons: Collection[str], *, init_containers: bool) -> Bools:
    """(pods,) the same without phases."""
    said = [
        status.reason in reasons
        or any(each in reasons for each in (*status.containers, *(status.init_containers if init_containers else ())))
        for status in snapshot.statuses
    ]
    return np.array(said, dtype=np.bool_)[snapshot.pods.status]


def with_exit_codes(snapshot: ClusterSnapshot, codes: Collection[int], *, init_containers: bool) -> Bools:
    """(pods,) pods of which a container ended with one of `codes`."""
    said = [
        any(each in codes for each in (*status.exit_codes, *(status.init_exit_codes if init_containers else ())))
        for status in snapshot.statuses
    ]
    return np.array(said, dtype=np.bool_)[snapshot.pods.status]
