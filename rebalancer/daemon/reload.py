"""Reload of the policy file: read by content, validated as a whole, activated between cycles.

A ConfigMap is replaced by a symlink and editors write in pieces, so the content decides and not the modification time.
A file that cannot be used changes nothing: the last valid policy stays active.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rebalancer.model.errors import ConfigError, RebalancerError
from rebalancer.policy import RebalancerPolicy

LOG = structlog.get_logger("rebalancer")


@dataclass(slots=True)
class Reloads:
    """Counts of reloads, and the newest error."""

    succeeded: int = 0
    failed: int = 0
    error: str = ""
    """Why the newest content is not active; empty while it is."""


class PolicyFile:
    """The policy file of a running daemon. `reload` is called by one thread, `policy` may be read by all."""

    def __init__(self, *, read: Callable[[], bytes], parse: Callable[[bytes], RebalancerPolicy]) -> None:
        """Reads the file for the first time. Raises ConfigError."""
        self._read = read
        self._parse = parse
        self.data = data = read()
        """Content of the file that `policy` was read from."""
        self.policy = parse(data)
        self._active = _digest(data)
        self._rejected = ""
        self.reloads = Reloads()

    def reload(self, activate: Callable[[RebalancerPolicy], None]) -> bool:
        """Activate the policy if the content has changed and is valid; whether that happened.

        If `activate` raises RebalancerError, another file may be at fault, so the same content is tried again.
        """
        rejected = ""
        try:
            data = self._read()
            digest = rejected = _digest(data)
            if digest == self._rejected:
                return False
            if digest == self._active:  # unchanged, or a mistake was reverted
                self._rejected = self.reloads.error = ""
                return False
            policy = self._parse(data)
            if policy.cluster != self.policy.cluster:
                raise ConfigError(
                    f"cluster: expected {self.policy.cluster} as before, got {policy.cluster}: "
                    "records and the Lease depend on it, restart the daemon to change it"
                )
            rejected = ""
            activate(policy)
        except RebalancerError as error:
            self._reject(str(error), rejected)
            return False
        self.data, self.policy, self._active, self._rejected = data, policy, digest, ""
        self.reloads.succeeded += 1
        self.reloads.error = ""
        return True

    def _reject(self, why: str, digest: str) -> None:
        if digest != self._rejected or why != self.reloads.error:
            self.reloads.failed += 1
            LOG.error("policy not reloaded, the last valid one stays active", error=why)
        self._rejected, self.reloads.error = digest, why


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
