"""ResourceQuotas as the snapshot has them."""

from rebalancer.kube.snapshot.quarantine import whole
from rebalancer.kube.snapshot.records import Meta, Object, Wire
from rebalancer.model.cluster.quota import CPU_QUOTAS, QuotaScope, ResourceQuota
from rebalancer.model.notation.quantity import LARGEST, parse_quantity


class ScopeExpression(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(Wire, frozen=True):
    match_expressions: list[ScopeExpression] | None = None


class QuotaSpec(Wire, frozen=True):
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(Wire, frozen=True):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class Quota(Object, frozen=True):
    """A ResourceQuota."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def quota_of(quota: Quota) -> ResourceQuota:
    """The record as a `ResourceQuota`. Raises ValueError where it could not be read in full or a figure is no quantity.

    Without a status nothing is counted: the controller has not seen it yet. A larger amount than any that a cluster can
    have counts as that one.
    """
    whole(quota)
    hard, used, spec = quota.status.hard or {}, quota.status.used or {}, quota.spec
    selector = spec.scope_selector.match_expressions or () if spec.scope_selector is not None else ()
    return ResourceQuota(
        namespace=quota.metadata.namespace,
        name=quota.metadata.name,
        free={name: _amount(name, amount) - _amount(name, used.get(name, "0")) for name, amount in hard.items()},
        scopes=(
            *(QuotaScope(name=name) for name in spec.scopes or ()),
            *(
                QuotaScope(name=each.scope_name, operator=each.operator, values=tuple(each.values or ()))
                for each in selector
            ),
        ),
    )


def _amount(resource: str, text: str) -> float:
    return min(parse_quantity(text) * (1000.0 if resource in CPU_QUOTAS else 1.0), LARGEST)
