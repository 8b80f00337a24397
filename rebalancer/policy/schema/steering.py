"""Sections of the policy file about kube-scheduler: how it is configured, and how we steer it."""

from typing import Annotated, Literal

from rebalancer.policy.schema.limits import CountOrPercent
from rebalancer.policy.schema.types import Count, Duration, NonEmpty, Section, at_least


class SoftTaint(Section):
    """A soft taint (PreferNoSchedule) on nodes without room in real CPU, while a plan runs.

    kube-scheduler knows requests only: a hot node whose requests fall becomes its favourite.
    """

    mode: Literal["Taint", "Off"] = "Taint"
    """Taint, where patching nodes is granted; else, and with Off, only landings that hold without it are used."""
    max_nodes: CountOrPercent = "5%"
    """Of each pool: that many nodes may carry the taint at once."""
    max_nodes_at_least: Count = 1
    """A percentage never means less than this."""
    max_age: Annotated[Duration, at_least(60)] = 1800.0
    """A taint of ours that is older is removed, whatever the plan says."""


class Scheduler(Section):
    """What places the replacements."""

    config_file: NonEmpty | None = None
    """A KubeSchedulerConfiguration as kube-scheduler runs with; relative to the policy file. Absent: its defaults."""
