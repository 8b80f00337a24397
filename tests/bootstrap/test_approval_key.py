"""The key of the links to proposals: read at the start, and never shown."""

from pathlib import Path

import pytest

from rebalancer.bootstrap.process.approval_key import approval_links
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.model.errors import ConfigError
from rebalancer.model.secrets import redacted

KEY = "a-key-of-thirty-two-bytes-or-more-0001"


def test_a_key_makes_links_and_is_taken_out_of_every_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    settings = Settings(approval_key_file=str(tmp_path / "key"), dashboard_url="https://rebalancer.example/")
    links = approval_links(settings)
    assert links is not None
    assert (links.key, links.base) == (KEY.encode(), "https://rebalancer.example")
    assert KEY not in repr(links)
    assert KEY not in redacted(f"an error with {KEY}")


def test_without_a_file_there_are_none() -> None:
    assert approval_links(Settings(dashboard_url="https://rebalancer.example")) is None


@pytest.mark.parametrize(
    ("content", "said"), [("short", "at least 32 bytes, got 5"), ("", "got 0"), (None, "can't be")]
)
def test_a_file_that_can_not_be_used_ends_the_start(content: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=said) as raised:
        approval_links(Settings(approval_key_file=str(path)))
    assert str(path) in str(raised.value)
    assert not content or content not in str(raised.value).replace(str(path), "")
