"""A policy with the former name of a key is refused with a line that names the new key."""

import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy.loader import load_policy
from rebalancer.policy.retired import RETIRED_KEYS
from rebalancer.policy.schema.policy import policy_schema
from rebalancer.policy.schema.strategies import STRATEGY_NAMES


def file_with(path: str) -> str:
    """A file whose only fault at `path` is its name, everything above it under the name that `path` has."""
    head, _, key = path.rpartition(".")
    value: object = {key: None}
    if head in STRATEGY_NAMES:
        value = {"strategies": [{"name": head, "args": value}]}
    elif head == "strategies[]":
        value = {"strategies": [{"name": "LowNodeUtilization", key: None}]}
    else:
        for section in reversed(head.split(".") if head else []):
            value = {section: value}
    return yaml.safe_dump(value, sort_keys=False)


@pytest.mark.parametrize(("old", "new"), RETIRED_KEYS.items())
def test_the_former_name_of_a_key_is_refused_with_its_new_name(old: str, new: str) -> None:
    head = new.rpartition(".")[0]
    for parent in {head, old.rpartition(".")[0]}:
        text = file_with(f"{parent}.{old.rpartition('.')[2]}".lstrip("."))
        with pytest.raises(ConfigError) as refused:
            load_policy(text.encode(), source="p.yaml")
        *above, line = str(refused.value).splitlines()
        assert line.startswith(f"p.yaml:{len(text.splitlines())}: ")
        assert line.endswith(f": `{old}` is now `{new}`")
        assert all("` is now `" in each for each in above)


def test_all_retired_keys_of_a_file_are_listed_at_once() -> None:
    text = "steering: {}\nusage:\n  debounce: {over: 2m}\n"

    with pytest.raises(ConfigError) as refused:
        load_policy(text.encode(), source="p.yaml")

    assert str(refused.value).splitlines() == [
        "p.yaml:1: steering: `steering` is now `softTaint`",
        "p.yaml:3: usage.debounce: `usage.debounce` is now `usage.stabilizationWindow`",
        "p.yaml:3: usage.debounce.over: `usage.debounce.over` is now `usage.stabilizationWindow.duration`",
    ]


def test_the_arguments_of_a_plugin_may_have_any_name() -> None:
    keys = [path.rpartition(".")[2] for path in RETIRED_KEYS]
    text = yaml.safe_dump({"strategies": [{"name": "example.com/Own", "args": dict.fromkeys(keys, 1)}]})

    with pytest.raises(ConfigError) as refused:
        load_policy(text.encode(), source="p.yaml")

    assert "is now" not in str(refused.value)


@pytest.mark.parametrize("new", RETIRED_KEYS.values())
def test_the_new_name_is_a_key_of_the_policy(new: str) -> None:
    schema = policy_schema()
    head, _, key = new.rpartition(".")
    if head in STRATEGY_NAMES:
        head, section = "args", schema["$defs"][head]
    elif head == "strategies[]":
        head, section = "", schema["$defs"]["LowNodeUtilization"]
    else:
        section = schema
    for part in head.split(".") if head else []:
        reference = section["properties"][part]
        section = schema["$defs"][reference["$ref"].rpartition("/")[2]]
    assert key in section["properties"]
