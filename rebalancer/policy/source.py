"""A policy inside another manifest: a ConfigMap, or the values of the Helm chart.

Lines before it are replaced by empty ones, so that the lines in messages are those of the file.
"""

import textwrap

import yaml

from rebalancer.model.errors import ConfigError

KEY = "policy.yaml"
"""The key of the chart's ConfigMap."""


def policy_in(data: bytes, *, source: str) -> bytes:
    """The policy in a ConfigMap's key `policy.yaml` (or its only key), or in the `policy` of Helm values; other data
    as it is. Raises ConfigError for a ConfigMap without a policy."""
    try:
        text = data.decode()
        roots = [root for root in yaml.compose_all(text, Loader=yaml.SafeLoader) if isinstance(root, yaml.MappingNode)]
    except (yaml.YAMLError, ValueError, RecursionError):
        return data  # the loader says what is wrong
    for root in roots:
        fields = fields_of(root)
        if text_of(fields.get("kind")) == "ConfigMap":
            inner = fields.get("data")
            entries = fields_of(inner) if isinstance(inner, yaml.MappingNode) else {}
            found = entries.get(KEY) or (next(iter(entries.values())) if len(entries) == 1 else None)
            if found is None:
                line = root.start_mark.line + 1
                raise ConfigError(f"{source}:{line}: data: expected a key {KEY} with the policy in this ConfigMap")
            return _inside(found, text)
    if len(roots) == 1 and "kind" not in fields_of(roots[0]) and "policy" in fields_of(roots[0]):
        return _inside(fields_of(roots[0])["policy"], text)
    return data


def _inside(node: yaml.Node, text: str) -> bytes:
    """The text of a block scalar, or of a mapping, on its own lines."""
    line = node.start_mark.line
    if isinstance(node, yaml.ScalarNode):
        return ("\n" * (line + (node.style in ("|", ">"))) + str(node.value)).encode()
    inner = text[node.start_mark.index : node.end_mark.index]
    return ("\n" * line + textwrap.dedent(" " * node.start_mark.column + inner)).encode()


def fields_of(node: yaml.MappingNode) -> dict[str, yaml.Node]:
    return {str(key.value): value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def text_of(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
