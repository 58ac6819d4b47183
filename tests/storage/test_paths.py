from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.storage import paths

PLACES: list[tuple[Callable[[], str], str, str, str]] = [
    (paths.data, "XDG_DATA_HOME", ".local/share", "opencode"),
    (paths.config, "XDG_CONFIG_HOME", ".config", "opencode"),
    (paths.opencode_cache, "XDG_CACHE_HOME", ".cache", "opencode"),
    (paths.opencode_state, "XDG_STATE_HOME", ".local/state", "opencode"),
    (paths.storage, "XDG_DATA_HOME", ".local/share", "opencode/storage"),
    (paths.cache, "XDG_CACHE_HOME", ".cache", "opensesh"),
    (paths.state, "XDG_STATE_HOME", ".local/state", "opensesh"),
]


@pytest.mark.parametrize(("place", "variable", "usual", "name"), PLACES)
def test_everything_lies_where_opencode_and_xdg_say(
    place: Callable[[], str], variable: str, usual: str, name: str, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(place()) == isolated / usual / name
    monkeypatch.setenv(variable, "")
    assert Path(place()) == isolated / usual / name
    monkeypatch.setenv(variable, str(isolated / "elsewhere"))
    assert Path(place()) == isolated / "elsewhere" / name


def test_another_home_and_another_environment_may_be_asked_about(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(isolated / "mine"))
    theirs = isolated / "theirs"
    assert Path(paths.xdg("data", "opencode", {}, str(theirs))) == theirs / ".local" / "share" / "opencode"
    assert Path(paths.xdg("data", "opencode", {"XDG_DATA_HOME": str(theirs)})) == theirs / "opencode"
