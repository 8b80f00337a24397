"""Who may post."""

import base64
import logging
from pathlib import Path

import pytest

from rebalancer.model.errors import ConfigError
from rebalancer.web.http.auth import LOOK_SECONDS, Auth, Denial


class Watch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def basic(text: str | bytes) -> str:
    return "Basic " + base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret-token\n")
    return path


@pytest.fixture
def user(tmp_path: Path) -> Path:
    path = tmp_path / "basic"
    path.write_text("alertmanager:pass:word\n")
    return path


@pytest.mark.parametrize(
    ("headers", "denial"),
    [
        (["Bearer s3cret-token"], None),
        (["bearer   s3cret-token "], None),
        ([basic("alertmanager:pass:word")], None),
        ([], Denial.MISSING),
        ([""], Denial.WRONG),
        (["Bearer"], Denial.WRONG),
        (["Bearer "], Denial.WRONG),
        (["Bearer s3cret-toke"], Denial.WRONG),
        (["Bearer s3cret-token2"], Denial.WRONG),
        (["s3cret-token"], Denial.WRONG),
        (["Digest s3cret-token"], Denial.WRONG),
        (["Bearer \xfc\xff"], Denial.WRONG),
        ([basic("s3cret-token")], Denial.WRONG),
        ([basic("alertmanager:")], Denial.WRONG),
        ([basic(b"\xff\xfe")], Denial.WRONG),
        (["Basic !!!"], Denial.WRONG),
        (["Basic \xfc"], Denial.WRONG),
        (["Bearer s3cret-token", "Bearer s3cret-token"], Denial.WRONG),
    ],
    ids=str,
)
def test_only_the_right_credentials_pass(headers: list[str], denial: Denial | None, token: Path, user: Path) -> None:
    auth = Auth(bearer_token_file=str(token), basic_auth_file=str(user))

    assert auth.denial(headers) == denial


def test_without_any_secret_no_request_passes() -> None:
    auth = Auth()

    assert not auth.configured
    assert auth.denial([]) == Denial.MISSING
    assert auth.denial(["Bearer x"]) == Denial.WRONG
    assert auth.denial(["Bearer "]) == Denial.WRONG
    assert auth.denial([basic(":")]) == Denial.WRONG


def test_everybody_passes_where_that_was_asked_for() -> None:
    assert Auth(insecure_no_auth=True).denial([]) is None


def test_a_secret_goes_before_insecure_no_auth_even_when_its_file_is_gone(token: Path) -> None:
    auth = Auth(bearer_token_file=str(token), insecure_no_auth=True)
    token.unlink()

    assert auth.denial([]) == Denial.MISSING
    assert auth.denial(["Bearer s3cret-token"]) == Denial.NO_SECRET


def test_the_wrong_kind_of_credentials_does_not_pass(token: Path) -> None:
    assert Auth(bearer_token_file=str(token)).denial([basic("a:s3cret-token")]) == Denial.WRONG


def test_a_new_token_holds_from_the_next_look_on(token: Path) -> None:
    watch = Watch()
    auth = Auth(bearer_token_file=str(token), monotonic=watch)
    assert auth.denial(["Bearer s3cret-token"]) is None

    token.write_text("another")
    watch.now += LOOK_SECONDS / 2
    assert auth.denial(["Bearer s3cret-token"]) is None
    watch.now += LOOK_SECONDS
    assert auth.denial(["Bearer s3cret-token"]) == Denial.WRONG
    assert auth.denial(["Bearer another"]) is None


@pytest.mark.parametrize("content", ["", " \n", None])
def test_a_file_that_empties_or_vanishes_closes_the_door_until_it_is_back(token: Path, content: str | None) -> None:
    watch = Watch()
    auth = Auth(bearer_token_file=str(token), monotonic=watch)
    assert auth.denial(["Bearer s3cret-token"]) is None

    if content is None:
        token.unlink()
    else:
        token.write_text(content)
    watch.now += LOOK_SECONDS
    for header in ("Bearer s3cret-token", "Bearer ", "Bearer x"):
        assert auth.denial([header]) == Denial.NO_SECRET

    token.write_text("s3cret-token")
    watch.now += LOOK_SECONDS
    assert auth.denial(["Bearer s3cret-token"]) is None


def test_a_password_file_without_a_user_closes_the_door(user: Path) -> None:
    user.write_text("password")
    auth = Auth(basic_auth_file=str(user))

    assert auth.denial([basic("password")]) == Denial.NO_SECRET
    with pytest.raises(ConfigError, match="expected user:password"):
        auth.check_files()


def test_files_can_be_checked_before_anybody_calls(token: Path, user: Path) -> None:
    Auth().check_files()
    Auth(bearer_token_file=str(token), basic_auth_file=str(user)).check_files()

    user.unlink()
    with pytest.raises(ConfigError, match=r"basic: the user:password can't be read: No such file"):
        Auth(bearer_token_file=str(token), basic_auth_file=str(user)).check_files()


def test_the_log_tells_of_a_change_once_and_never_the_secret(token: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    watch = Watch()
    auth = Auth(bearer_token_file=str(token), monotonic=watch)
    for content in ("first-secret", "", "", "second-secret"):
        token.write_text(content)
        watch.now += LOOK_SECONDS
        auth.denial(["Bearer guessed-secret"])

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert "secret" not in caplog.text.replace(str(token), "")
