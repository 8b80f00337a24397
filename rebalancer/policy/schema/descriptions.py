"""What the source says of each field of a model.

pydantic reads it with `use_attribute_docstrings` when a model is made: a third of the time of a short command, for
texts that only the JSON Schema and some messages show.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def described(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the text below it in the source, for the fields of the model and of those that it extends."""
    out: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            out |= _module(each.__module__).get(each.__name__, {})
    return {name: text for name, text in out.items() if name in model.model_fields}


@cache
def _module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Class -> field -> text, of the classes of a module; empty without its source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):
        return {}
    return {each.name: dict(_texts(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _texts(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(model.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = getattr(below.value, "value", None)
            if isinstance(text, str):
                yield field.target.id, inspect.cleandoc(text)
