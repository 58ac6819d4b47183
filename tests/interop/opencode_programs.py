"""The programs of OpenCode, fetched from npm.

``OPENSESH_TEST_CACHE`` names the folder that keeps them (default ``~/.cache/opensesh-tests``), and
``OPENSESH_TEST_OPENCODE`` a program to run in place of every version: another build, or another implementation of
``serve``. Both are read, and the environment is remembered, when this module is imported: the tests hide them later.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

JSON_FILES = "1.1.65"
"""The last version that keeps sessions as JSON files."""
ENVIRONMENT = dict(os.environ)
CACHE = Path(ENVIRONMENT.get("OPENSESH_TEST_CACHE") or Path.home() / ".cache" / "opensesh-tests")

_NO_NETWORK = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT)\b"
)


class OpenCodeError(Exception):
    """An answer that is no success, or none at all."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def opencode_binary(version: str = JSON_FILES) -> Path:
    """The program of that version, fetched if it is not there yet. Skips the test without npm or a network."""
    override = ENVIRONMENT.get("OPENSESH_TEST_OPENCODE")
    if override:
        return Path(override)
    package = f"opencode-{_platform()}"
    program = CACHE / f"{package}-{version}" / "opencode"
    if not program.exists():
        with _locked(CACHE / f"{package}-{version}.lock"):
            if not program.exists():
                _fetch(package, version, program)
    return program


def _platform() -> str:
    system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform)
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    if system is None or machine is None:
        pytest.fail(f"this harness knows no OpenCode for {sys.platform} on {platform.machine()}")
    return f"{system}-{machine}"


def _fetch(package: str, version: str, program: Path) -> None:
    npm = shutil.which("npm", path=ENVIRONMENT.get("PATH"))
    if npm is None:
        pytest.skip("npm is not installed, and OpenCode comes from there")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        done = subprocess.run(
            (npm, "pack", f"{package}@{version}", "--fetch-retries=1", "--pack-destination", folder),
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        unreachable = _NO_NETWORK.search(done.stderr)
        if done.returncode and unreachable:
            pytest.skip(f"no network to fetch {package}@{version} with: npm says {unreachable[0]}")
        if done.returncode:
            raise OpenCodeError(f"npm pack {package}@{version} failed:\n{done.stderr}")
        _unpack(next(Path(folder).glob("*.tgz")), program)


def _unpack(archive: Path, program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_suffix(".unfinished")
    with tarfile.open(archive) as tar, unfinished.open("wb") as file:
        member = tar.extractfile("package/bin/opencode")
        if member is None:
            raise OpenCodeError(f"{archive.name} holds no program")
        shutil.copyfileobj(member, file)
    unfinished.chmod(0o755)
    unfinished.replace(program)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """One process at a time; the lock goes with the process that holds it."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
