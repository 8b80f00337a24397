"""The exception tree, with the exit code of each branch.

    RebalancerError
    ├── ConfigError        4  invalid user input (policy, flags, kubeconfig, database URL)
    ├── ConnectError       5  an API server, Prometheus or database that is unreachable or rejects requests
    └── UnsafeDataError    3  data is partial, stale or contradictory: nothing may be evicted on it

Every message is one line: what, where, and what was expected. It never contains a secret.
"""

from typing import ClassVar

from rebalancer.model.secrets import redacted


class RebalancerError(Exception):
    """Base of all errors that are raised on purpose."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(message))


class ConfigError(RebalancerError):
    """Bad configuration: one line for each mistake, as `file:line: field: what was expected`."""

    exit_code: ClassVar[int] = 4


class ConnectError(RebalancerError):
    """A dependency is unreachable, or rejects the request."""

    exit_code: ClassVar[int] = 5


class UnsafeDataError(RebalancerError):
    """Data that no decision may rest on, or a lease that another process holds."""

    exit_code: ClassVar[int] = 3


class LeaseHeldError(UnsafeDataError):
    """Another process holds the lease: this one follows, and has nothing to do but wait."""


def ledger_behind(*, ledger: int, known: int) -> UnsafeDataError:
    """The ledger lacks evictions: it has `ledger` of `known`."""
    return UnsafeDataError(
        f"the database has {ledger} evictions of this cluster, {known} were reserved: it was restored from a backup, "
        "or a standby without the last commits took over. Nothing is evicted until `rebalancer db accept-restore`"
    )


def cluster_renamed(cluster: str, *, before: str) -> UnsafeDataError:
    """The Lease is of a ledger that has this cluster's evictions under another name."""
    return UnsafeDataError(
        f"`cluster` in the policy is {cluster}, and was {before} when this cluster's evictions were reserved: no limit "
        f"of {cluster} counts them. Name it {before} again, or go on as {cluster} with `rebalancer db accept-restore`"
    )


def ledger_of_another(cluster: str) -> UnsafeDataError:
    """The ledger's evictions of `cluster` were made in another Kubernetes cluster of this name."""
    return UnsafeDataError(
        f"the database has evictions of another Kubernetes cluster that is named {cluster} too: name each cluster "
        "differently (`cluster` in its policy). If the cluster was rebuilt, nothing is evicted until "
        "`rebalancer db accept-restore`"
    )
