"""Links by which one proposal is approved or rejected without credentials: each is signed, and ends with its proposal.

The signature is HMAC-SHA256 over cluster, proposal, action and expiry, with a key that only the daemon has. A link is
used once, because its proposal is decided once.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Literal

from rebalancer.model.decisions.proposals import Proposal

Action = Literal["approve", "reject"]
ACTIONS: tuple[Action, ...] = ("approve", "reject")

PATH = "/approvals"
"""Where the web server answers them; the proposal's id follows."""

LEAST_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalLinks:
    """Makes links and checks them."""

    key: bytes = field(repr=False)
    """A secret of at least LEAST_KEY_BYTES."""
    base: str = ""
    """URL of the web server as people reach it, without a slash at its end; empty where no link can be sent."""

    def url(self, proposal: Proposal, action: Action) -> str:
        """The link, until the proposal expires."""
        return f"{self.base}{self.target(proposal, action)}"

    def target(self, proposal: Proposal, action: Action) -> str:
        """The link without its server."""
        expires = str(int(proposal.expires_at))
        signed = self._signature(proposal.cluster, proposal.id, action, expires)
        # an id, a word, digits and hexadecimal digits: nothing needs an escape
        return f"{PATH}/{proposal.id}?action={action}&expires={expires}&signature={signed}"

    def is_signed(self, cluster: str, proposal: str, action: str, expires: str, signature: str) -> bool:
        """Whether the link with these parts is one of ours."""
        own = self._signature(cluster, proposal, action, expires)
        return hmac.compare_digest(own.encode(), signature.encode())

    def _signature(self, *parts: str) -> str:
        # each with its length, so that no two lists of parts are one text
        text = "".join(f"{len(each)}:{each}" for each in ("approval", *parts))
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
