"""The `lists` section of the policy file: allow and deny lists of pods."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from rebalancer.policy.schema.types import AsTuple, NonEmpty, Section, Selector

Globs = Annotated[tuple[NonEmpty, ...], AsTuple, Field(min_length=1)]
EVERYTHING: tuple[str, ...] = ("*",)


def service_glob(value: Any) -> Any:
    """The value, unless it names no namespace. Raises ValueError."""
    # "cart" alone matches no service, so a deny rule with it would deny nothing
    if isinstance(value, str) and value != "*" and "/" not in value:
        raise ValueError("expected namespace/name, for example shop/cart or */cart")
    return value


ServiceGlobs = Annotated[
    tuple[
        Annotated[NonEmpty, BeforeValidator(service_glob), WithJsonSchema({"type": "string", "pattern": r"^\*$|/"})],
        ...,
    ],
    AsTuple,
    Field(min_length=1),
]


class ListRule(Section):
    """Matches a pod if every field matches. At least one field is required."""

    clusters: Globs = EVERYTHING
    """Globs of cluster names."""
    pools: Globs = EVERYTHING
    """Globs of names of the node's pool."""
    nodes: Globs = EVERYTHING
    """Globs of names of the pod's node."""
    namespaces: Globs = EVERYTHING
    """Globs of namespaces."""
    services: ServiceGlobs = EVERYTHING
    """Globs of `namespace/name` of the top owner. A `*` matches a `/` too."""
    selector: Selector | None = None
    """Labels of the pod. An empty selector matches every pod."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> "ListRule":
        given = self.model_fields_set - ({"selector"} if self.selector is None or self.selector.is_empty else set())
        if not given:
            raise ValueError("expected a rule with at least one field: without any it would match every pod")
        return self


class Lists(Section):
    """Allow and deny lists. Deny wins."""

    allow: Annotated[tuple[ListRule, ...], AsTuple] = ()
    """If there are rules, only pods that match one may be evicted."""
    deny: Annotated[tuple[ListRule, ...], AsTuple] = ()
    """Pods that match one of these rules are never evicted."""
