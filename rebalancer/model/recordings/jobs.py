"""What the record of Jobs lacks, from the Jobs of today."""

from collections.abc import Sequence
from dataclasses import replace

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot


def with_failure_policies(owners: Sequence[Owner], today: ClusterSnapshot) -> tuple[Owner, ...]:
    """The owners of a recording, whose Jobs have the podFailurePolicy of today's Job of that name, or else of one of
    the same CronJob: whether it ignores DisruptionTarget."""
    known = {_key(each): each.spares_disruptions for each in today.owners if each.kind == "Job"}
    known |= {
        _above(today.owners, each): each.spares_disruptions
        for each in today.owners
        if each.kind == "Job" and each.parent >= 0
    }
    return tuple(
        replace(each, spares_disruptions=known.get(_key(each), known.get(_above(owners, each), False)))
        if each.kind == "Job"
        else each
        for each in owners
    )


def _key(job: Owner) -> tuple[str, str, str]:
    return job.kind, job.namespace, job.name


def _above(owners: Sequence[Owner], job: Owner) -> tuple[str, str, str]:
    return _key(owners[job.parent]) if job.parent >= 0 else ("", "", "")
