"""Which pool each node belongs to."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.errors import ConfigError
from rebalancer.model.match import selector_matches
from rebalancer.policy.schema.policy import Pool


def assign_pools(
    pools: Sequence[Pool], node_names: Sequence[str], node_labels: Sequence[Mapping[str, str]]
) -> NDArray[np.int32]:
    """(nodes,) index into `pools`, -1 for a node in none.

    Raises ConfigError when a node is in two: its thresholds would depend on chance.
    """
    out = np.full(len(node_names), -1, dtype=np.int32)
    selectors = [pool.selector.compiled() for pool in pools]
    for node, (name, labels) in enumerate(zip(node_names, node_labels, strict=True)):
        found = [index for index, selector in enumerate(selectors) if selector_matches(selector, labels)]
        if len(found) > 1:
            shown = " and ".join(pools[index].name for index in found)
            raise ConfigError(f"pools: node {name} is in {shown}: expected selectors that don't overlap")
        if found:
            out[node] = found[0]
    return out
