"""Kubernetes quantities."""

import pytest

from rebalancer.model.notation.quantity import cpu_millicores, memory_bytes, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("1", 1), ("-1", -1), ("+1", 1), ("0.5", 0.5), (".5", 0.5), ("5.", 5), ("1e3", 1_000), ("1E3", 1_000),
        ("1e-3", 0.001), ("1E", 1e18), ("1k", 1_000), ("1M", 1e6), ("1G", 1e9), ("1T", 1e12), ("1P", 1e15),
        ("1Mi", 2**20), ("1.5Gi", 1.5 * 2**30), ("1Ti", 2**40), ("1Pi", 2**50), ("1Ei", 2**60),
        ("100m", 0.1), ("100u", 1e-4), ("100n", 1e-7),
    ],
)  # fmt: skip
def test_a_quantity_is_read_with_its_suffix(text: str, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "m", "Gi", "1K", "1ki", "1mi", "1Kii", "1KM", "a", "1,5", "0x10", "--1", "1e", "1iK"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["NaN", "inf", "Infinity", "-inf", "1_000", " 5 ", "1 Gi", "1e3m"])
def test_what_only_python_takes_for_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


def test_kibibytes_are_read() -> None:
    assert memory_bytes("16393244Ki") == 16_393_244 * 1_024


def test_cpu_is_in_millicores_and_memory_in_bytes() -> None:
    assert [cpu_millicores(text) for text in ("250m", "2", "0.1", "1500000n")] == pytest.approx([250, 2_000, 100, 1.5])
    assert memory_bytes("128Mi") == 128 * 2**20
