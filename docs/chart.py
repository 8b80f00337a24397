"""The chart's page: README.md from Chart.yaml and the comments of values.yaml, as helm-docs writes it.

A comment that begins with `# --` above a key describes its value; the lines after it go on. A map with a description is
one row. A value inside of it has a row where it has a description of its own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent.parent / "deploy" / "helm" / "rebalancer"
TYPES = {type(None): "object", bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}

HEAD = """# {name}

{description}

Version {version}, of the program {appVersion}. Homepage: <{home}>

```sh
helm install rebalancer deploy/helm/rebalancer --namespace rebalancer --create-namespace \\
  --set image.repository=REGISTRY/rebalancer --set-file policy=policy.yaml
```

The policy may be a map in your values too:

```yaml
image: {{repository: REGISTRY/rebalancer}}
policy:
  apiVersion: rebalancer.dev/v1alpha1
  kind: RebalancerPolicy
  cluster: my-cluster
  pools:
    - {{name: all, selector: {{}}, thresholds: {{high: 75, target: 65}}}}
  usage:
    prometheus: {{url: "http://prometheus-operated.monitoring.svc:9090"}}
  strategies:
    - name: LowNodeUtilization
```

As a part of another chart: name it under `dependencies` with `condition: rebalancer.enabled`, and its values below the
key `rebalancer`. Install, upgrade and uninstall step by step: docs/operations of the source.

## Maintainers

| Name | Email | Url |
| ---- | ------ | --- |
{maintainers}

## Requirements

Kubernetes: `{kubeVersion}`

## Values

| Key | Type | Default | Description |
|-----|------|---------|-------------|
"""


def chart_page() -> str:
    """The page, with a row for each value."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    people = [f"| {each['name']} | <{each['email']}> | <{each['url']}> |" for each in chart["maintainers"]]
    return HEAD.format(**{**chart, "maintainers": "\n".join(people)}) + "".join(
        f"| {key} | {TYPES[type(value)]} | {_default(value)} | {text.replace('|', chr(92) + '|')} |\n"
        for key, value, text in sorted(described_values())
    )


def described_values() -> Iterator[tuple[str, Any, str]]:
    """(key, default, description) of each value that has a row. Raises ValueError for a leaf without a description."""
    text = (CHART / "values.yaml").read_text()
    yield from _rows(yaml.compose(text), yaml.safe_load(text), text.splitlines(), "", covered=False)


def _rows(
    node: Any, values: dict[str, Any], lines: list[str], above: str, *, covered: bool
) -> Iterator[tuple[str, Any, str]]:
    """`covered`: a map around them has a description."""
    for key, inner in node.value:
        name, value = f"{above}{key.value}", values[key.value]
        text = _description(lines, key.start_mark)
        if text:
            yield name, value, text
        if isinstance(value, dict) and value:
            yield from _rows(inner, value, lines, f"{name}.", covered=covered or bool(text))
        elif not text and not covered:
            raise ValueError(f"values.yaml: {name} has no description (# -- ...)")


def _description(lines: list[str], mark: Any) -> str:
    """Of the key that begins at the mark: the comment right above it, from `# --` on."""
    if lines[mark.line][: mark.column].strip():
        return ""  # inside a flow mapping
    found: list[str] = []
    for line in reversed(lines[: mark.line]):
        comment = re.match(r"\s*# ?(.*)", line)
        if comment is None:
            break
        found.insert(0, comment[1])
        if comment[1].startswith("-- "):
            return " ".join(found)[3:]
    return ""


def _default(value: Any) -> str:
    return f"`{json.dumps(value, sort_keys=True, separators=(',', ':'))}`"
