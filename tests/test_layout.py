"""Tests mirror the rooms of the product, and helper modules say by their name what they are."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = sorted(path.parent for path in TESTS.glob("*/__init__.py"))
ROOMS = {path.name for path in (TESTS.parent / "rebalancer").iterdir() if (path / "__init__.py").is_file()}

CROSS_ROOM = {
    "bench": "each benchmark starts",
    "deploy": "manifests, chart and pages",
    "differential": "recorded decisions of other programs beside those of this one",
    "e2e": "the program as a process",
    "faults": "the list of faults with the tests of each",
    "programs": "starts the program for tests of any folder",
    "real": "servers that are not ours",
    "stories": "whole clusters over time, in the lab",
}

HELPERS = {
    "builders": "make data: clusters, policies, objects, findings",
    "fakes": "stand in for something at the network's edge, or for a clock",
    "servers": "start and stop real servers and daemons",
    "scenarios": "set a stage: a cluster with a history, before or after something",
    "matrix": "lists tests of other folders with what they hold",
    "actors": "the same by actor",
    "oracles": "state a rule a second time, plainly and independently",
    "readers": "read back what the product wrote, without its code",
    "programs": "run as processes that tests start",
}


def test_every_folder_of_tests_is_a_room_or_crosses_rooms() -> None:
    folders = {path.name for path in FOLDERS}
    assert folders - ROOMS == set(CROSS_ROOM)


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in TESTS.glob("*/__init__.py")), ids=lambda path: path.name
)
def test_every_helper_module_has_a_name_that_says_what_it_is(folder: Path) -> None:
    helpers = {
        path.relative_to(folder).parts[0].removesuffix(".py")
        for path in folder.rglob("*.py")
        if not path.name.startswith("test_") and path.name not in ("__init__.py", "conftest.py")
    }
    if folder.name != "programs":
        assert helpers <= set(HELPERS)
