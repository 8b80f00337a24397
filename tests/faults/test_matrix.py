"""The matrices name tests that exist, each once."""

import re
from collections import Counter
from pathlib import Path

from tests.faults.actors import ACTORS
from tests.faults.matrix import MATRIX
from tests.faults.programs.matrix import ROWS

ROOT = Path(__file__).parents[2]
FAULTS = [fault for faults in MATRIX.values() for fault in faults]
POWERS = [power for powers in ACTORS.values() for power in powers]


def test_every_test_of_the_matrix_exists_and_stands_there_once() -> None:
    tests = [test for row in ROWS for test in row.tests]
    assert max(Counter(tests).values()) == 1
    for test in tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_every_row_is_complete() -> None:
    assert len(FAULTS) == len({fault.name for fault in FAULTS})
    for fault in FAULTS:
        assert all((fault.name, fault.outcome, fault.ends, fault.seen, fault.action, fault.tests)), fault.name
    assert len(POWERS) == len({power.name for power in POWERS}) >= 15
    for power in POWERS:
        assert all((power.name, power.worst, power.bound, power.tests)), power.name


def test_both_matrices_are_run() -> None:
    assert len(ROWS) == len(FAULTS) + len(POWERS)
    assert {actor.lower() for actor in ACTORS} == {
        "pod creator",
        "namespace admin",
        "controller author",
        "alert sender",
        "metrics writer",
        "node",
    }
