"""The size of modules and classes, and the direction of their imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = ROOT / "rebalancer"
ROOMS = sorted(path.parent for path in PRODUCT.glob("*/__init__.py"))
MODULES = sorted(PRODUCT.rglob("*.py"))
OTHERS = sorted(path for folder in ("bench", "tests") for path in (ROOT / folder).rglob("*.py"))

SMALL_CLASSES = ("daemon", "planner", "replay")
"""Rooms whose classes are held to the limits below."""
MOST_ATTRIBUTES = 15
MOST_PARAMETERS = 8
MOST_LINES = 450
MOST_FLAT = 12
"""Modules of a room that are in none of its folders."""


def name_of(path: Path) -> str:
    """`rebalancer.store.db.engine`"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_is_longer_than_a_reader_holds(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_no_module_of_tests_or_benchmarks_is_longer() -> None:
    found = [path for path in OTHERS if len(path.read_text().splitlines()) > MOST_LINES]
    assert found == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_of_many_modules_has_folders(room: Path) -> None:
    assert len([path for path in room.glob("*.py") if path.name != "__init__.py"]) <= MOST_FLAT


def attributes(of: ast.ClassDef) -> set[str]:
    """Fields of a record, and what the methods assign to `self`."""
    fields = {
        each.target.id for each in of.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return fields | {
        node.attr
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def parameters(of: ast.ClassDef) -> int:
    """Of the constructor, without `self`; records have as many as fields."""
    made = [each.args for each in of.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return sum(len([*each.posonlyargs, *each.args, *each.kwonlyargs]) - 1 for each in made)


def test_classes_of_a_sample_are_measured() -> None:
    sample = """
class One:
    a: int
    b: str = ""
    def __init__(self, a, *, c): self.a, self.d = a, c
    def move(self): self.e += 1
"""
    (one,) = ast.parse(sample).body
    assert isinstance(one, ast.ClassDef)
    assert attributes(one) == {"a", "b", "d", "e"}
    assert parameters(one) == 2


@pytest.mark.parametrize("room", SMALL_CLASSES)
def test_no_class_has_more_attributes_or_parameters_than_a_reader_holds(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {node.name}: {len(attributes(node))} attributes, {parameters(node)} parameters"
        for path in sorted((PRODUCT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        if len(attributes(node)) > MOST_ATTRIBUTES or parameters(node) > MOST_PARAMETERS
    ]
    assert not found, "\n".join(found)


def imported(path: Path, known: set[str]) -> Iterator[str]:
    """Modules that importing this one imports. Not those for types only, nor those imported when they are needed."""
    todo: list[ast.stmt] = list(ast.parse(path.read_text()).body)
    while todo:
        match todo.pop():
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in known)
            case ast.ImportFrom(module=str(module), names=names):
                for each in names:
                    name = f"{module}.{each.name}"
                    yield from (one for one in (name if name in known else module,) if one in known)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=rest):
                todo += rest
            case ast.If(body=body, orelse=rest):
                todo += [*body, *rest]
            case ast.Try(body=body, orelse=rest, finalbody=last):
                todo += [*body, *rest, *last]
            case ast.ClassDef(body=body) | ast.With(body=body):
                todo += body


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules of which each leads to each other one: strongly connected components of more than one, by Tarjan."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        path.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                visit(other)
            if other in path:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == number[node]:
            at = path.index(node)
            if len(path) - at > 1:
                found.append(sorted(path[at:]))
            del path[at:]

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]


def test_no_modules_import_each_other() -> None:
    known = {name_of(path) for path in MODULES}
    graph = {name_of(path): set(imported(path, known)) - {name_of(path)} for path in MODULES}
    assert sum(map(len, graph.values())) > 2000
    assert circles(graph) == []
