"""No surface contradicts another one: each fact has the same value wherever it is shown.

The modules of `readers` have a table for each fact: where it is shown, and how it is read there. A new surface is one
line.
"""

from collections.abc import Iterator

import pytest

from tests.dashboard.readers import evictions, heat, now
from tests.dashboard.scenarios import Scene, the_scene

FACTS = {**now.FACTS, **evictions.FACTS, **heat.FACTS}


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with the_scene(tmp_path_factory.mktemp("scene")) as scene:
        yield scene


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_is_the_same_on_every_surface(it: Scene, fact: str) -> None:
    found = {surface: read(it) for surface, read in FACTS[fact].items()}
    assert found == dict.fromkeys(found, next(iter(found.values())))
