"""A policy inside a ConfigMap or Helm values, and its effective values."""

import textwrap
from pathlib import Path

import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy
from rebalancer.policy.effective import effective_values
from rebalancer.policy.source import policy_in

POLICY = (Path(__file__).parents[2] / "policies" / "demo.yaml").read_text()
BROKEN = POLICY.replace("minAge: 1m", "minAge: soon")
LINE = BROKEN.splitlines().index("  minAge: soon") + 1


def config_map(policy: str, key: str = "policy.yaml") -> str:
    head = "apiVersion: v1\nkind: Namespace\n---\napiVersion: v1\nkind: ConfigMap\ndata:\n"
    return f"{head}  {key}: |\n{textwrap.indent(policy, '    ')}"


def read(text: str) -> str:
    return load_policy(policy_in(text.encode(), source="f.yaml"), source="f.yaml").cluster


HELM_MAP = f"replicas: 1\npolicy:\n{textwrap.indent(POLICY, '  ')}"
HELM_TEXT = f"replicas: 1\npolicy: |\n{textwrap.indent(POLICY, '  ')}"


@pytest.mark.parametrize("text", [POLICY, config_map(POLICY), config_map(POLICY, "demo"), HELM_MAP, HELM_TEXT])
def test_config_maps_and_helm_values_are_read_as_they_are(text: str) -> None:
    assert read(text) == "demo"


@pytest.mark.parametrize("wrap", [config_map, lambda text: f"x: 1\npolicy:\n{textwrap.indent(text, '  ')}"])
def test_mistakes_inside_have_the_lines_of_the_file(wrap) -> None:  # type: ignore[no-untyped-def]
    text = wrap(BROKEN)
    line = next(at for at, each in enumerate(text.splitlines(), 1) if each.endswith("minAge: soon"))
    assert line > LINE
    with pytest.raises(ConfigError, match=rf"f\.yaml:{line}: guards\.minAge: "):
        read(text)


def test_a_config_map_without_a_policy_says_which_key() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:1: data: expected a key policy\.yaml"):
        read(yaml.safe_dump({"apiVersion": "v1", "data": {"a": "1", "b": "2"}, "kind": "ConfigMap"}))


def test_effective_values_name_the_line_or_the_default() -> None:
    data = POLICY.encode()
    values = {each.field: each for each in effective_values(load_policy(data, source="f"), data, source="f")}
    assert (values["guards.minAge"].shown, values["guards.minAge"].line) == ("1m", LINE)
    assert (values["guards.minReplicas"].shown, values["guards.minReplicas"].line) == ("2", None)
    assert values["pools[1].thresholds.high"].line == values["pools[1].name"].line + 2  # type: ignore[operator]
    assert values["limits.service.spacing"].shown == "-"
