"""Pods that the ledger knows to have left their nodes: each forecast subtracts them, also one without a forecast before
it."""

from rebalancer.forecast.peaks.expected_peaks import REMEMBERED_SECONDS
from rebalancer.forecast.series.membership import DepartedPod
from rebalancer.model.decisions.ports import Ledger


def evicted_pods(ledger: Ledger | None, now: float) -> tuple[DepartedPod, ...]:
    """Pods evicted within the last day, the newest last. Raises ConnectError."""
    if ledger is None:
        return ()
    found = ledger.evicted(now - REMEMBERED_SECONDS)
    return tuple(DepartedPod(each.full_name, each.node, each.at) for each in found)
