from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensesh.config import load
from opensesh.errors import UsageError
from opensesh.redaction import Redactor, known_secrets
from opensesh.sharing.share_settings import PUBLIC_SERVER, ShareSettings, load_share_settings, normalize_server_url

SERVER = {"enterprise": {"url": "https://share.example.org/"}}


def written(path: Path, **settings: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def found(folder: Path, **environ: str) -> ShareSettings:
    return load_share_settings(load(str(folder), str(folder), environ=environ))


@pytest.fixture
def own(isolated: Path) -> Path:
    return isolated / ".config" / "opencode" / "opencode.json"


def test_nothing_is_shared_by_itself_and_opencodes_server_is_the_last_resort(tmp_path: Path) -> None:
    unset = found(tmp_path)
    assert unset == ShareSettings("manual", PUBLIC_SERVER, "", False, True, "", "")
    assert not unset.automatic
    unset.check()
    assert "everyone who has the link" in unset.describe()


def test_the_users_own_words_count(tmp_path: Path, own: Path) -> None:
    written(own, share="auto", **SERVER)
    text = found(tmp_path)
    assert (text.server, text.chosen_by_user, text.automatic) == ("https://share.example.org", True, True)
    assert str(own) in text.describe()


@pytest.mark.parametrize("name", ["opencode.json", "opencode.jsonc", ".opencode/opencode.json"])
def test_a_project_cannot_have_sessions_shared_or_say_where(tmp_path: Path, own: Path, name: str) -> None:
    written(tmp_path / name, share="auto", **SERVER)
    theirs = found(tmp_path)
    assert (theirs.automatic, theirs.chosen_by_user) == (False, False)
    assert theirs.ignored_source.startswith(str(tmp_path / name))
    for of_user in ({}, SERVER):  # with the server that is the default, or that the user chose
        written(own, **of_user)
        written(tmp_path / name, share="auto")
        assert not found(tmp_path).automatic
    written(own, share="auto")
    (tmp_path / name).write_text(json.dumps(SERVER))
    mixed = found(tmp_path)
    assert (mixed.automatic, mixed.server, mixed.chosen_by_user) == (False, "https://share.example.org", False)
    written(own, share="auto", **SERVER)
    (tmp_path / name).write_text('{"share": "disabled"}')
    assert found(tmp_path).disabled_by.startswith(str(tmp_path / name))


def test_variables_are_the_users_own_words(tmp_path: Path) -> None:
    assert found(tmp_path, OPENCODE_AUTO_SHARE="1").automatic
    assert found(tmp_path, OPENCODE_CONFIG_CONTENT=json.dumps(SERVER)).chosen_by_user
    assert not found(tmp_path, OPENSESH_SHARE_RAW="1").redact
    off = found(tmp_path, OPENCODE_DISABLE_SHARE="true", OPENCODE_AUTO_SHARE="1")
    assert not off.automatic
    with pytest.raises(UsageError, match="OPENCODE_DISABLE_SHARE"):
        off.check()


def test_a_file_that_a_variable_names_is_the_users_own_even_in_a_project(tmp_path: Path) -> None:
    written(tmp_path / "mine.json", **SERVER)
    assert found(tmp_path, OPENCODE_CONFIG=str(tmp_path / "mine.json")).chosen_by_user


@pytest.mark.parametrize(
    "url",
    [
        "",
        "share.example.org",
        "ftp://x",
        "https://",
        "https://x/?q",
        "file:///etc/passwd",
        "http://[x",
        "http://x:99999",
    ],
)
def test_what_is_not_the_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        normalize_server_url(url)


def test_an_open_connection_is_mentioned(tmp_path: Path) -> None:
    for url, is_private in (("http://share.example.org", False), ("http://127.0.0.1:4097", True)):
        text = found(tmp_path, OPENCODE_CONFIG_CONTENT=json.dumps({"enterprise": {"url": url}}))
        assert text.is_private is is_private
        assert ("not encrypted" in text.describe()) is not is_private


def test_known_secrets_come_from_the_environment_the_logins_and_the_configuration(isolated: Path) -> None:
    written(
        isolated / ".local" / "share" / "opencode" / "auth.json",
        a={"type": "oauth", "access": "an-access-word", "refresh": "a-refresh-word", "expires": 5},
    )
    written(
        isolated / ".local" / "share" / "opencode" / "mcp-auth.json",
        y={"tokens": {"accessToken": "a-login-of-mcp"}, "serverUrl": "https://not-a-secret.example"},
    )
    headers = {"cf-aig-Authorization": "Bearer a-word-to-bear", "X-Title": "not-a-secret"}
    options = {"apiKey": "configured-word", "baseURL": "https://not-a-secret.example", "headers": headers}
    config = {
        "provider": {"x": {"options": options}},
        "mcp": {"y": {"environment": {"SHOP_TOKEN": "a-word-for-mcp", "HOST": "not-a-secret.example"}}},
    }
    identity = isolated / "identity"
    identity.touch()
    environ = {
        "MY_API_KEY": "environment-word",
        "AWS_SECRET_ACCESS_KEY": "/like+a/path",
        "SHORT_TOKEN": "short",
        "KEY": str(identity),
        "PATH": "/usr/bin:/bin",
    }
    result = known_secrets(config, environ)
    logins = {"an-access-word", "a-refresh-word", "a-login-of-mcp"}
    configured = {"configured-word", "a-word-for-mcp", "Bearer a-word-to-bear", "a-word-to-bear"}
    assert result == {*logins, *configured, "environment-word", "/like+a/path"}
    cleaner = Redactor(result)
    assert cleaner.text("say environment-word twice: environment-word") == (
        "say [redacted:known-secret] twice: [redacted:known-secret]"
    )
    assert cleaner.counts == {"known-secret": 2}
    assert Redactor().text("environment-word") == "environment-word"
