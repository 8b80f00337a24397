"""The policy file while we run: read again by content, checked whole, swapped between cycles.

A ConfigMap is swapped by a symlink and an editor writes in pieces, so what counts is the content, not the time stamp. A
file that can't be used changes nothing: the last good policy stays in force, and everybody is told.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy

LOG = structlog.get_logger("rebalancer")


@dataclass(slots=True)
class Reloads:
    """How reloading went."""

    succeeded: int = 0
    failed: int = 0
    error: str = ""
    """Why the newest content is not in force; empty while it is."""


class PolicyFile:
    """The policy in force. `look` is called by one thread, `policy` may be read by all."""

    def __init__(self, *, read: Callable[[], bytes], parse: Callable[[bytes], RebalancerPolicy]) -> None:
        """Reads it for the first time. Raises ConfigError."""
        self._read = read
        self._parse = parse
        data = read()
        self.policy = parse(data)
        self._seen = self._good = _digest(data)
        self._before = self._good, self.policy
        self._told = ""
        self.reloads = Reloads()

    def look(self) -> RebalancerPolicy | None:
        """The new policy when the content has changed and can be used; None otherwise."""
        try:
            data = self._read()
        except ConfigError as error:
            self._refuse(str(error), "")
            return None
        digest = _digest(data)
        if digest == self._seen:
            return None
        if digest == self._good:  # somebody took a mistake back
            self._seen, self.reloads.error = digest, ""
            return None
        try:
            policy = self._parse(data)
            if policy.cluster != self.policy.cluster:
                raise ConfigError(
                    f"cluster: expected {self.policy.cluster} as before, got {policy.cluster}: "
                    "records and Lease go by it, restart for another"
                )
        except ConfigError as error:
            self._refuse(str(error), digest)
            return None
        self._before = self._good, self.policy
        self._seen = self._good = digest
        self.policy = policy
        self.reloads.succeeded += 1
        self.reloads.error = ""
        return policy

    def take_back(self, why: str) -> None:
        """The newest policy could not be put in force after all (a file that it names): it is tried again."""
        self._good, self.policy = self._before
        self.reloads.succeeded -= 1
        if why != self._told:
            self.reloads.failed += 1
            LOG.error("policy not reloaded, the last good one stays in force", error=why)
        self._seen, self._told, self.reloads.error = "", why, why

    def _refuse(self, why: str, digest: str) -> None:
        if digest != self._seen or why != self.reloads.error:
            self.reloads.failed += 1
            LOG.error("policy not reloaded, the last good one stays in force", error=why)
        self._seen, self.reloads.error = digest, why


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
