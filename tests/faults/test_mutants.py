"""The list of mutants fits the product and the matrix. `make mutants` runs them."""

from pathlib import Path

import pytest

from tests.faults.programs import mutants as program
from tests.faults.readers import ROOT, Mutant, read_mutants, rows

MUTANTS = read_mutants()


def test_every_row_has_a_mutant_and_every_mutant_a_row() -> None:
    assert {mutant.row for mutant in MUTANTS} == set(rows())


def test_there_are_at_least_60_different_mutants() -> None:
    assert len({(mutant.file, mutant.text, mutant.becomes) for mutant in MUTANTS}) >= 60


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_every_mutant_stands_in_its_file_once_and_is_python(file: str) -> None:
    source = (ROOT / file).read_text()
    for mutant in (each for each in MUTANTS if each.file == file):
        broken = mutant.applied(source)
        assert broken != source
        compile(broken, file, "exec")


def a_mutant(**fields: str) -> Mutant:
    return Mutant(**{"row": "a row", "file": "code.py", "text": "1", "becomes": "2", "breaks": "one", **fields})


def test_a_mutant_whose_text_is_missing_or_stands_twice_is_an_error() -> None:
    for source in ("0", "1 1"):
        with pytest.raises(ValueError, match=r"has . times '1'"):
            a_mutant().applied(source)


def test_a_mutant_is_caught_by_a_test_that_fails_with_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / "test_code.py").write_text(
        "import code_of, pytest\n"
        "def test_one(): assert code_of.ONE == 1\n"
        "def test_wrong(): assert code_of.ONE == 5\n"
        "def test_skipped(): pytest.skip('no server')\n"
        "def test_nothing(): pass\n"
    )
    (tmp_path / "code_of.py").write_text("ONE = 1\n")
    monkeypatch.setattr(program, "ROOT", tmp_path)
    (folder := tmp_path.parent / f"{tmp_path.name}-copy").mkdir()
    tree = program.Tree(folder)

    def word(*tests: str, text: str = "1") -> str:
        mutant = a_mutant(file="code_of.py", text=text)
        return tree.try_out(mutant, tuple(f"test_code.py::test_{test}" for test in tests)).word

    assert word("nothing", "one") == "caught"
    assert word("nothing") == "survived"
    assert word("skipped") == "skipped"
    assert word("wrong") == "unclear"
    assert (tree.root / "code_of.py").read_text() == "ONE = 1\n"
