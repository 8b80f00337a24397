"""Who may be moved, and who never: allow and deny lists of the policy file."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from rebalancer.policy.schema.types import AsTuple, NonEmpty, Section, Selector

Globs = Annotated[tuple[NonEmpty, ...], AsTuple, Field(min_length=1)]
EVERYTHING: tuple[str, ...] = ("*",)


def _service_glob(value: Any) -> Any:
    # "cart" alone would match no service, and a deny rule with it would deny nothing
    if isinstance(value, str) and value != "*" and "/" not in value:
        raise ValueError("expected namespace/name, for example shop/cart or */cart")
    return value


ServiceGlobs = Annotated[
    tuple[
        Annotated[NonEmpty, BeforeValidator(_service_glob), WithJsonSchema({"type": "string", "pattern": r"^\*$|/"})],
        ...,
    ],
    AsTuple,
    Field(min_length=1),
]


class ListRule(Section):
    """Matches a pod when every field of it does. At least one must be given."""

    clusters: Globs = EVERYTHING
    """Globs of cluster names."""
    pools: Globs = EVERYTHING
    """Globs of names of the pool that the pod's node belongs to."""
    nodes: Globs = EVERYTHING
    """Globs of node names: of the node that the pod would leave."""
    namespaces: Globs = EVERYTHING
    """Globs of namespaces."""
    services: ServiceGlobs = EVERYTHING
    """Globs of `namespace/name` of the top owner. A `*` matches a `/` too."""
    selector: Selector | None = None
    """Labels of the pod. An empty selector matches every pod."""

    @model_validator(mode="after")
    def _says_something(self) -> "ListRule":
        said = self.model_fields_set - ({"selector"} if self.selector is None or self.selector.is_empty else set())
        if not said:
            raise ValueError("expected a rule that says something: without any field it would match every pod")
        return self


class Lists(Section):
    """Allow and deny lists. Deny wins."""

    allow: Annotated[tuple[ListRule, ...], AsTuple] = ()
    """When there are rules here, only pods that match one may be moved."""
    deny: Annotated[tuple[ListRule, ...], AsTuple] = ()
    """Pods that match one of these are never moved."""
