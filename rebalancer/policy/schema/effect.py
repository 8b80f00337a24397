"""The `effect` section of the policy file: what counts as hot when it is asked afterwards, and when we look."""

from typing import Annotated

from pydantic import Field

from rebalancer.policy.schema.types import Duration, NonEmpty, Percent, Section, at_least, at_most


class HotNodeSlo(Section):
    """Your own definition of a hot node, by which discovery is judged after the fact. It needs Prometheus."""

    query: NonEmpty | None = None
    """PromQL for the used share (0..1) of each node; without it the CPU that decisions are made by."""
    label: NonEmpty = "node"
    """Label of the answer that names the node; an instance's address and port are understood too."""
    threshold: Percent | None = None
    """A node above it is hot; without it its pool's own `high`."""
    for_: Annotated[Duration, at_least(0), at_most(86_400)] = Field(default=600.0, alias="for")
    """It is hot once it has been above for so long."""


class Effect(Section):
    """Afterwards: how many hot nodes were found, how many of those lost pods, and did it help."""

    hot_node_slo: HotNodeSlo = Field(default=HotNodeSlo(), alias="hotNodeSLO")
    """What a hot node is."""
    settling_time: Annotated[Duration, at_least(60), at_most(3600)] = 900.0
    """A node is assessed so long after its last eviction, and once more after an hour and after a day."""
    detail_retention: Annotated[Duration, at_least(86_400)] = 2_592_000.0
    """Cycles, refusals and episodes that are older are dropped; evictions with their cycles stay for 400 days, and a
    day's counts for good."""
