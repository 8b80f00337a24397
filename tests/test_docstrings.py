"""Docstrings name parameters that exist, and users meet no class of the product."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_glossary import policy_keys, words_of

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "rebalancer").rglob("*.py"))
TEMPLATES = sorted(path for path in (ROOT / "rebalancer").rglob("*") if path.suffix in (".html", ".js", ".txt"))

Function = ast.FunctionDef | ast.AsyncFunctionDef

DESCRIBED = re.compile(r"(?:\A|(?<=[.;:,]\s)|(?<=\n\n))`([a-z_]\w*)`(?= \([^)]*\)|:)")
"""`x`: ... or `x` (shape) ..., where a description of a parameter begins."""
NAMED = re.compile(r"`([a-z_]\w*)`")


def functions(node: ast.AST, outer: tuple[Function, ...] = ()) -> Iterator[tuple[Function, ...]]:
    """Each function of a module, after those that it is in."""
    for each in ast.iter_child_nodes(node):
        inside = (*outer, each) if isinstance(each, Function) else outer
        if isinstance(each, Function):
            yield inside
        yield from functions(each, inside)


def parameters(of: tuple[Function, ...]) -> set[str]:
    return {each.arg for function in of for each in ast.walk(function.args) if isinstance(each, ast.arg)}


def names_of(tree: ast.AST) -> set[str]:
    """Attributes, fields, functions and keywords of a module."""
    return {
        name
        for node in ast.walk(tree)
        for name in (
            getattr(node, "attr", None),
            node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None,
            node.name if isinstance(node, Function) else None,
            node.arg if isinstance(node, ast.keyword) else None,
        )
        if name
    }


@cache
def policy_words() -> set[str]:
    """`high`, `lead_time`: docstrings name keys of the policy."""
    from rebalancer.policy.schema.policy import policy_schema

    return {"_".join(words_of(key)) for key in policy_keys(policy_schema())}


def unknown_parameters(source: str, words: set[str]) -> list[str]:
    """`function: name`: described as a parameter, which it is not, or named and only a variable of the function."""
    tree = ast.parse(source)
    elsewhere = names_of(tree) | words
    found = []
    for inside in functions(tree):
        function, have, text = inside[-1], parameters(inside), ast.get_docstring(inside[-1]) or ""
        variables = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        wrong = {name for name in DESCRIBED.findall(text) if name not in have}
        wrong |= {name for name in NAMED.findall(text) if name in variables - have - elsewhere}
        found += [f"{function.name}: {name}" for name in sorted(wrong)]
    return found


def test_a_parameter_that_is_gone_is_found() -> None:
    source = '''
def one(new, earlier):
    """From `new` assessments and `known` ones before them. `moved` (pods,) is not here; `high`: a level."""
    known = [*earlier, *new]
'''
    assert unknown_parameters(source, set()) == ["one: high", "one: known", "one: moved"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_documented_parameter_exists(path: Path) -> None:
    assert unknown_parameters(path.read_text(), policy_words()) == []


SHOWN = {
    "DeschedulerPolicy": "the kind of the descheduler's file",
    "LandingRule": "what a plugin returns",
    "PersistentVolume": "a kind of Kubernetes",
    "RebalancerPolicy": "the kind of the policy file",
    "ResourceQuota": "a kind of Kubernetes",
}
"""Names of classes that users know from elsewhere; names of strategies too."""


def class_names() -> set[str]:
    """Classes of the product whose name has two humps or more."""
    return {
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", node.name)
    }


@cache
def internal_names() -> re.Pattern[str]:
    from rebalancer.policy.descheduler.document import ARGS
    from rebalancer.policy.schema.policy import policy_schema

    names = class_names() - SHOWN.keys() - ARGS.keys() - set(re.findall(r"'const': '(\w+)'", str(policy_schema())))
    return re.compile(r"(?<![\w.])(?:" + "|".join(sorted(names)) + r")(?!\w)")


def prose(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of sentences and their parts. Docstrings are for readers of the code, a single word is a code."""
    docstrings = {
        id(each.value)
        for node in ast.walk(tree)
        for each in (getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else ())
        if isinstance(each, ast.Expr)
    }
    types = {
        id(part)
        for node in ast.walk(tree)
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if hint is not None
        for part in ast.walk(hint)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings | types and (
                " " in text or id(node) in parts
            ):
                yield node.lineno, text


def test_a_class_in_a_title_is_found() -> None:
    source = (
        'def one() -> "ClusterSnapshot | None":\n    """A ClusterSnapshot."""\n    return "ClusterSnapshot of now"\n'
    )
    assert list(prose(ast.parse(source))) == [(3, "ClusterSnapshot of now")]
    assert internal_names().search("ClusterSnapshot of now")


def test_no_text_for_users_has_the_name_of_a_class() -> None:
    names = internal_names()
    texts = [(path, *each) for path in MODULES for each in prose(ast.parse(path.read_text()))]
    texts += [(path, *each) for path in TEMPLATES for each in enumerate(path.read_text().splitlines(), 1)]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}: {text.strip()[:100]}"
        for path, line, text in texts
        for match in names.finditer(text)
    ]
    assert not found, "\n".join(found)
