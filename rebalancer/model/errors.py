"""The one exception tree, with the exit code that each branch ends in.

    RebalancerError
    ├── ConfigError        4  what the user wrote can't be used (policy, flags, kubeconfig, database URL)
    ├── ConnectError       5  an API server, Prometheus or database that can't be reached or refuses us
    └── UnsafeDataError    3  what was read is partial, stale or contradictory: nothing may be evicted on it

Every message is one line for a person: what, where, and what was expected. Secrets never stand in it.
"""

from typing import ClassVar


class RebalancerError(Exception):
    """Base of everything that this program raises on purpose."""

    exit_code: ClassVar[int] = 1


class ConfigError(RebalancerError):
    """Bad configuration: one line for each mistake, as `file:line: field: what was expected`."""

    exit_code: ClassVar[int] = 4


class ConnectError(RebalancerError):
    """A dependency can't be reached, or refuses us."""

    exit_code: ClassVar[int] = 5


class UnsafeDataError(RebalancerError):
    """Data that no decision may rest on, or a lease that somebody else holds."""

    exit_code: ClassVar[int] = 3
