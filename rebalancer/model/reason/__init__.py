"""Codes for everything that was not done, and why.

- `groups`  why a hot episode was missed, or a hot node not relieved: what rates and reports count
- `reasons` the codes of pods, nodes and cycles, with what lifts each
- `refusal` a code with its numbers and names
"""

from rebalancer.model.reason.groups import BlockedReason, Code, MissReason
from rebalancer.model.reason.reasons import Reason
from rebalancer.model.reason.refusal import Refusal, particulars

__all__ = ["BlockedReason", "Code", "MissReason", "Reason", "Refusal", "particulars"]
