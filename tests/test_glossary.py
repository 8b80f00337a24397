"""The glossary and the names that users meet: one word for one thing, and no retired words."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ROWS = re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \| (.*?) ?\|$", PAGE, flags=re.M)
TERMS = {term: meaning for term, meaning, _ in ROWS}
IDIOMS = re.search(r"retired without a term in their place:\n(.+?)\.\n", PAGE, flags=re.S)
RETIRED = sorted(
    {word.strip() for _, _, words in ROWS for word in words.split(",") if word.strip()}
    | {word.strip() for word in (IDIOMS[1] if IDIOMS else "").replace("\n", " ").split(",")}
)
PLAIN = re.search(r"^## Plain words\n.*?\n\n(.+?)\n\n?(?:##|\Z)", PAGE, flags=re.M | re.S)

ALLOWED = re.compile(r"rebalancer\.dev/steer|`steer`")
"""The key of our taint: nodes of clusters carry it, so it stays."""


def words_of(name: str) -> list[str]:
    """`maxConcurrentNodes`, `lead_time` and `--dry-run` as single lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def known_words() -> set[str]:
    plain = PLAIN[1] if PLAIN else ""
    return {word for text in (*TERMS, plain) for word in words_of(text)}


def undefined(names: Iterator[str]) -> dict[str, list[str]]:
    """Name -> its words that the glossary neither defines nor lists as plain."""
    known = known_words()
    out = {}
    for name in sorted(set(names)):
        missing = [word for word in words_of(name) if word not in known and word.rstrip("s") not in known]
        if missing:
            out[name] = missing
    return out


def policy_keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties", {})
        if isinstance(properties, dict):
            yield from (key for key in properties if key.isidentifier())
        for value in schema.values():
            yield from policy_keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from policy_keys(value)


def json_fields() -> Iterator[str]:
    """The fields of every document that a command prints, as the reference names them."""
    for document in ("report", "replay"):
        schema = (ROOT / "docs" / "reference" / f"{document}.schema.json").read_text()
        yield from policy_keys(json.loads(schema))
    for path in sorted((ROOT / "rebalancer" / "cli").rglob("*.py")):
        if path.name == "json_schema.py":
            continue  # its keys are those of JSON Schema
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Dict(keys=keys) | ast.Call(func=ast.Name(id="pick"), args=[_, *keys]):
                    for key in keys:
                        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier():
                            yield key.value


def metric_names() -> Iterator[str]:
    return iter(re.findall(r"^\| `(rebalancer_\w+)`", (ROOT / "docs" / "reference" / "metrics.md").read_text(), re.M))


def command_names() -> Iterator[str]:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    yield from re.findall(r"^#+ `?rebalancer ([a-z -]+)", page, re.M)
    yield from re.findall(r"--([a-z][a-z-]+)", page)


def test_no_term_is_defined_twice_and_none_is_retired_as_well() -> None:
    assert len(TERMS) == len(ROWS) > 60
    assert not set(TERMS) & set(RETIRED)


def test_every_policy_key_is_made_of_words_that_the_glossary_knows() -> None:
    from rebalancer.policy.schema.policy import policy_schema

    assert undefined(policy_keys(policy_schema())) == {}


def test_every_json_field_is_made_of_words_that_the_glossary_knows() -> None:
    assert undefined(json_fields()) == {}


def test_every_metric_is_made_of_words_that_the_glossary_knows() -> None:
    names = list(metric_names())
    assert len(names) > 20
    assert undefined(iter(names)) == {}


def test_every_command_and_option_is_made_of_words_that_the_glossary_knows() -> None:
    names = list(command_names())
    assert len(names) > 40
    assert undefined(iter(names)) == {}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of docstrings, comments, messages and prose of one file."""
    source = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        # a string without a space is a name of something, not a sentence
        if token.type == tokenize.STRING and " " in token.string:
            yield from enumerate(token.string.splitlines(), token.start[0])


PATTERN = re.compile(r"(?<![\w./`-])(" + "|".join(map(re.escape, RETIRED)) + r")(?![\w`/-])", re.I)
SOURCES = [
    *sorted((ROOT / "rebalancer").rglob("*.py")),
    *sorted((ROOT / "rebalancer").rglob("*.html")),
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "glossary.md" and "adr" not in page.parts),
    *sorted((ROOT / "policies").glob("*.yaml")),
    *(page for page in sorted((ROOT / "deploy").rglob("*")) if page.suffix in (".yaml", ".md", ".txt")),
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_docstring_message_or_page_uses_a_retired_term(path: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[1]}: {text.strip()[:100]}"
        for line, text in texts(path)
        for match in PATTERN.finditer(ALLOWED.sub("", text))
    ]
    assert not found, "\n".join(found)


RETIRED_NAMES = {
    "give_up": "of the planner",
    "steer": "of the simulated soft taints: planner and placement",
    "steering": "of the planner, and the module of our taint's values",
    "steering_taint": "of the simulated soft taints",
    "useless": "of the planner",
}
"""Identifiers with a retired word that are not renamed yet."""
IDIOMS_OF_WORDS = [words_of(term) for term in RETIRED]


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of a module, its classes, functions and parameters."""
    yield 1, path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name


def retired_in(name: str) -> bool:
    words = words_of(name)
    return any(words[at : at + len(each)] == each for each in IDIOMS_OF_WORDS for at in range(len(words)))


def test_a_retired_word_in_a_name_is_found() -> None:
    assert [retired_in(name) for name in ("steered", "GaveUp", "_was_told", "gave_it_up", "wholesteer")] == [
        *(True, True, True),
        *(False, False),
    ]


def test_no_module_class_function_or_parameter_has_a_retired_name() -> None:
    found = {
        name: f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "rebalancer").rglob("*.py"))
        for line, name in identifiers(path)
        if retired_in(name)
    }
    assert found.keys() <= RETIRED_NAMES.keys(), found
