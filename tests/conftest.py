from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "opensesh", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("opensesh")

FIXTURES = Path(__file__).parent / "fixtures"
_connect = socket.socket.connect


def _is_loopback(address: Any) -> bool:
    if isinstance(address, (str, bytes)):
        return True
    host = str(address[0])
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _guarded_connect(self: socket.socket, address: Any) -> None:
    if not _is_loopback(address):
        raise AssertionError(f"a test tried to reach {address!r}")
    _connect(self, address)


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("OPENCODE_", "OPENSESH_", "XDG_", "GIT_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = T\n\temail = t@example.invalid\n[init]\n\tdefaultBranch = main\n"
    )
    work = home / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(socket.socket, "connect", _guarded_connect)
    return home


@pytest.fixture
def corpus() -> Path:
    return FIXTURES / "opencode-1.1.65"


@pytest.fixture
def wrap_corpus() -> Path:
    return FIXTURES / "id-wrap"
