"""Which lines the daemon logs."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from rebalancer.daemon.logs import set_up
from rebalancer.model.secrets import remember


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raising = root.handlers, root.level, logging.raiseExceptions
    levels = {name: logging.getLogger(name).level for name in ("kubernetes", "urllib3", "apscheduler", "alembic")}
    yield
    root.handlers, logging.raiseExceptions = handlers, raising
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("level", "ours", "of_a_library"),
    [
        ("debug", ["debug", "info", "warning", "error"], ["warning", "error"]),
        ("info", ["info", "warning", "error"], ["warning", "error"]),
        ("warning", ["warning", "error"], ["warning", "error"]),
        ("error", ["error"], ["error"]),
    ],
)
def test_the_log_level_is_the_lowest_that_is_logged_and_libraries_log_no_requests(
    level: str, ours: list[str], of_a_library: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(as_json=True, level=level)
    for each in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger("rebalancer.daemon"), each)("ours %s", each)
        for library in ("kubernetes.client.rest", "urllib3.connectionpool"):
            getattr(logging.getLogger(library), each)("library %s", each)
    output = capsys.readouterr().err
    words = ("debug", "info", "warning", "error")
    assert [each for each in words if f"ours {each}" in output] == ours
    assert [each for each in words if f"library {each}" in output] == of_a_library


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_no_line_has_a_secret_whatever_text_it_comes_in(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    remember("the-secret-word")
    set_up(as_json=as_json)
    logging.getLogger("rebalancer.daemon").warning("a server said %s", "the-secret-word")
    structlog.get_logger("rebalancer").error("refused", error="with the-secret-word in it")
    output = capsys.readouterr().err
    assert output.count("***") == 2
    assert "the-secret-word" not in output
