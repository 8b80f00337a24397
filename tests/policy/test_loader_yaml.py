"""A policy file that is no YAML mapping, or hardly one."""

# ruff: noqa: E501 (a table of mistakes is read row by row)
import re
import time

import pytest

from rebalancer.policy import load_policy
from tests.policy.test_loader import GOOD, line_of, mistakes, with_change


def test_a_key_that_stands_twice_is_named_with_the_second_line() -> None:
    assert mistakes(with_change("  perCycle: 2", "  perCycle: 2\n  perCycle: 3")) == [
        f"p.yaml:{len(GOOD.splitlines()) + 1}: limits.perCycle: duplicate key"
    ]
    assert mistakes(GOOD + "cluster: other\n") == [f"p.yaml:{len(GOOD.splitlines()) + 1}: cluster: duplicate key"]
    (message,) = mistakes(with_change("{key: role,", "{key: role, key: x,"))
    assert message == "p.yaml:9: pools[0].selector.matchExpressions[0].key: duplicate key"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "p.yaml:1: the file is empty: expected a RebalancerPolicy"),
        (b"# only a comment\n", "p.yaml:1: the file is empty: expected a RebalancerPolicy"),
        (b"---\n", "p.yaml:1: expected a mapping with apiVersion and kind, got"),
        (b"null\n", "p.yaml:1: expected a mapping with apiVersion and kind, got nothing"),
        (b"- a\n- b\n", "p.yaml:1: expected a mapping with apiVersion and kind, got a list"),
        (b"just text\n", "p.yaml:1: expected a mapping with apiVersion and kind, got a string"),
        (b"42\n", "p.yaml:1: expected a mapping with apiVersion and kind, got int"),
        (b"a: [1,\nb: 2\n", "p.yaml:3: not YAML: "),
        (b"a: 1\n  b: 2\n", "p.yaml:2: not YAML: "),
        (b"a: 1\n\tb: 2\n", "p.yaml:2: not YAML: "),
        (b"a: 'x\n", "p.yaml:2: not YAML: "),
        (b"a: *nowhere\n", "p.yaml:1: not YAML: found undefined alias 'nowhere'"),
        (b"a: 1\n---\nb: 2\n", "p.yaml:2: not YAML: but found another document"),
        (b"a: \xe9\n", "p.yaml:1: not YAML: "),
        (b"\xff\xfe\xfd", "p.yaml:1: not YAML: "),
        (b"a: \x00\n", "p.yaml:1: not YAML: "),
    ],
)  # fmt: skip
def test_what_is_no_yaml_mapping_is_answered_in_one_line(data: bytes, message: str) -> None:
    (answer,) = mistakes(data)
    assert answer.startswith(message)


@pytest.mark.parametrize(
    "data",
    [
        b"cluster: !secret x\n",
        b"cluster: 2024-99-99\n",
        b"cluster: !!int x\n",
        b"? [a, b]\n: c\n",
        b"<<: 5\n",
        b"a: &a [*a]\n",
        b"[" * 3000,
    ],
    ids=["unknown tag", "no date", "no int", "list as key", "merge of a scalar", "anchor in itself", "deep"],
)
def test_yaml_that_cannot_be_built_is_answered_in_one_line(data: bytes) -> None:
    answers = mistakes(data)
    assert answers
    assert all(answer.startswith("p.yaml:1: ") for answer in answers)


def nested(levels: int, entry: str) -> bytes:
    """A document of `levels` lines, each of which stands for ten of the one before."""
    lines = [f"l0: &l0 {{{', '.join(f'k{key}: {key}' for key in range(10))}}}"]
    lines += [f"l{level}: &l{level} {entry.format(', '.join([f'*l{level - 1}'] * 10))}" for level in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("entry", ["{{<<: [{}]}}", "[{}]", "{{<<: [{}], own: 1}}"])
def test_nested_merges_and_aliases_have_a_budget(entry: str) -> None:
    began = time.process_time()
    (answer,) = mistakes(nested(16, entry))
    assert re.fullmatch(r"p\.yaml:[5-6]: aliases and merge keys add more than 100,000 values: write them out", answer)
    assert time.process_time() - began < 2.0


def test_a_long_document_without_aliases_is_within_the_budget() -> None:
    data = b"kind: List\nitems: [" + b"a," * 100_001 + b"]"
    assert "add more than" not in "".join(mistakes(data))


def test_anchors_and_merge_keys_may_be_used() -> None:
    text = with_change(
        "usage:\n",
        "  - name: other\n    selector: {matchLabels: {pool: other}}\n    thresholds: &marks {high: 80, target: 70, low: 50}\n"
        "  - name: third\n    selector: {matchLabels: {pool: third}}\n    thresholds: {<<: *marks, high: 90}\nusage:\n",
    )
    pools = load_policy(text.encode(), source="p.yaml").pools
    assert [pool.thresholds.high for pool in pools if pool.thresholds] == [75, 80, 90]


def test_a_mistake_behind_an_alias_is_blamed_on_the_aliased_line() -> None:
    text = with_change(
        "usage:\n",
        "  - name: other\n    selector: {}\n    thresholds: &marks {high: 80, target: 90, low: 50}\nusage:\n",
    )
    assert mistakes(text)[0].startswith(f"p.yaml:{line_of(text, '&marks')}: pools[1].thresholds.target: ")


def test_a_key_that_is_no_string_is_a_mistake() -> None:
    (message,) = mistakes(with_change("limits:\n", "limits:\n  1: x\n"))
    assert message.startswith(f"p.yaml:{line_of(GOOD, 'limits:') + 1}: limits")
    assert message.endswith("limits.1: expected text as a key, got int (quotes would make it text)")


@pytest.mark.parametrize(
    ("key", "shown", "kind"),
    [("1", "1", "int"), ("~", "~", "null"), ("on", "on", "bool"), ("2001-01-01", "2001-01-01", "timestamp")],
)
def test_a_top_level_key_that_is_no_text_is_named_as_it_stands_in_the_file(key: str, shown: str, kind: str) -> None:
    (message,) = mistakes(GOOD + f"{key}: 2\n")
    line = len(GOOD.splitlines()) + 1
    assert message == f"p.yaml:{line}: {shown}: expected text as a key, got {kind} (quotes would make it text)"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('!!float ""', "'' is no float"),
        ('!!int ""', "'' is no int"),
        ("!!timestamp foo", "'foo' is no timestamp"),
        ("2001-01-01T00:00:00+99:99", "'2001-01-01T00:00:00+99:99' is no timestamp"),
        ("!!bool foo", "'foo' is no bool"),
        ("0x_", "'0x_' is no int"),
        ("1" * 5000, "'" + "1" * 119 + " … is no int"),
    ],
)
def test_a_value_that_yaml_stumbles_over_is_one_line_with_its_place(value: str, message: str) -> None:
    (answer,) = mistakes(GOOD + f"a: {value}\n")
    assert answer == f"p.yaml:{len(GOOD.splitlines()) + 1}: invalid value: {message}"


@pytest.mark.parametrize("value", ['"\\UFFFFFFFF"', '"\\U00110000"', '"\\uD800"', "0x" + "f" * 5000, "!!binary aGk="])
def test_a_cluster_name_that_is_none_is_one_line_whatever_python_makes_of_it(value: str) -> None:
    (answer,) = mistakes(with_change("cluster: my-cluster", f"cluster: {value}"))
    assert answer.startswith("p.yaml:")
    assert answer.isprintable()


def test_a_key_with_a_line_break_does_not_break_the_line() -> None:
    (answer,) = mistakes(GOOD + '"a\\nb": 1\n')
    assert answer.startswith(f"p.yaml:{len(GOOD.splitlines()) + 1}: 'a\\nb': unknown field")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "http://[zz]", "http://h:99999", "http://h:port", "http://h:123456", "http:///path", "http://:80",
        "http://?x", "http://u:p[x@h", "http://a]b", "http://a\\b",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_read_is_a_mistake_with_its_line(url: str) -> None:
    text = with_change("    url: http://prometheus:9090", f"    url: '{url}'")
    (message,) = mistakes(text)
    assert message.startswith(f"p.yaml:{line_of(text, 'url:')}: usage.prometheus.url: expected a ")
