"""When pods are known to end: terminating ones, those with a deadline, and those of a Job that has run before."""

import numpy as np

from rebalancer.model.cluster.owners import RUN_ONCE_KINDS
from rebalancer.model.cluster.pods import SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Floats

LEAST_RUNS = 3
"""Runs that have finished, before the longest of them says how long the next one takes at most."""


def ends(snapshot: ClusterSnapshot) -> Floats:
    """(pods,) seconds since the epoch; NaN where it isn't known. A terminating pod ends with its grace period at the
    latest, and a run of a Job after the longest of its last runs; one that takes longer has no known end."""
    pods, owned = snapshot.pods, snapshot.pods.owner >= 0
    deadlines = np.array([*(owner.ends for owner in snapshot.owners), np.nan])[pods.owner]
    out: Floats = np.fmin(pods.ends, deadlines)
    run_once = np.array([*(owner.kind in RUN_ONCE_KINDS for owner in snapshot.owners), False])[pods.owner] & owned
    if not run_once.any():
        return out
    top = snapshot.top_owner
    done = run_once & (pods.phase == SUCCEEDED) & np.isfinite(pods.unready_since - pods.started)
    longest, runs = np.zeros(len(snapshot.owners)), np.zeros(len(snapshot.owners), dtype=np.int64)
    np.maximum.at(longest, top[pods.owner[done]], (pods.unready_since - pods.started)[done])
    np.add.at(runs, top[pods.owner[done]], 1)
    running = np.flatnonzero(run_once & snapshot.active & ~pods.terminating)
    by = top[pods.owner[running]]
    expected = np.where(runs[by] >= LEAST_RUNS, pods.started[running] + longest[by], np.nan)
    expected[expected <= snapshot.taken] = np.nan
    out[running] = np.fmin(out[running], expected)
    return out
