"""The matrix names tests that exist, each once."""

import re
from collections import Counter
from pathlib import Path

from tests.faults.matrix import MATRIX

ROOT = Path(__file__).parents[2]
FAULTS = [fault for faults in MATRIX.values() for fault in faults]


def test_every_test_of_the_matrix_exists_and_stands_there_once() -> None:
    tests = [test for fault in FAULTS for test in fault.tests]
    assert max(Counter(tests).values()) == 1
    for test in tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_every_row_is_complete() -> None:
    assert len(FAULTS) == len({fault.name for fault in FAULTS})
    for fault in FAULTS:
        assert all((fault.name, fault.outcome, fault.ends, fault.seen, fault.action, fault.tests)), fault.name
