"""The `approval` section of the policy file: proposals of the parts in `mode: Approve`."""

from typing import Annotated

from rebalancer.policy.schema.types import Duration, Section, at_least, at_most


class Approval(Section):
    """Proposals: plans whose evictions are made after an approval."""

    expire_after: Annotated[Duration, at_least(60), at_most(86_400)] = 1800.0
    """How long a proposal can be approved and carried out. The next cycle proposes what is still needed."""
