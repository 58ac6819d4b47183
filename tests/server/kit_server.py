"""Servers in processes of their own, with the scripted model of the acceptance kit, and programs that use them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).parent / "acceptance"
OURS = f"{sys.executable} -m opensesh serve --port {{port}} --hostname 127.0.0.1"
CACHE = Path(os.environ.get("OPENSESH_TEST_CACHE") or Path.home() / ".cache" / "opensesh-tests")
_ENVIRONMENT = dict(os.environ)
_NO_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|No matching distribution"
)
_CLIENT_SECONDS = 240


class KitServer(NamedTuple):
    """A server that runs."""

    url: str
    root: Path
    """The folder of its homes; a second server can share it."""
    model_port: int
    pid: int = 0

    @property
    def directory(self) -> Path:
        """The project."""
        return self.root / "proj" / "_cwd"


@contextmanager
def kit_server(root: Path, command: str = OURS, *, beside: KitServer | None = None) -> Generator[KitServer]:
    """Run a server with the configuration of the kit; ``beside`` another one, on the same data folder."""
    kit = kit_module("apicheck")
    model_port: int = beside.model_port if beside is not None else kit_module("scripted_model").start(0)[1]
    server = kit.Spawned(command, root, model_port, {}) if beside is None else _second(kit, command, beside)
    try:
        server.wait()
        yield KitServer(server.url, root, model_port, server.process.pid)
    finally:
        server.stop()


def run_client(server: KitServer, *command: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a client in the project of a server, with homes of its own."""
    homes = server.root / "client"
    environment = {name: _ENVIRONMENT[name] for name in ("PATH", "LANG") if name in _ENVIRONMENT} | {"TERM": "dumb"}
    for name, variable in (("home", "HOME"), ("data", "XDG_DATA_HOME"), ("config", "XDG_CONFIG_HOME")):
        (homes / name).mkdir(parents=True, exist_ok=True)
        environment[variable] = str(homes / name)
    for flag in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"):
        environment[f"OPENCODE_DISABLE_{flag}"] = "1"
    environment["XDG_CACHE_HOME"], environment["XDG_STATE_HOME"] = str(homes / "cache"), str(homes / "state")
    return subprocess.run(
        [str(word) for word in command],
        input=text,
        capture_output=True,
        text=True,
        env=environment,
        cwd=server.directory,
        timeout=_CLIENT_SECONDS,
        check=False,
    )


def javascript_sdk(version: str) -> Path:
    """Return the folder of OpenCode's SDK; it is fetched if it is not there yet."""
    folder = CACHE / f"sdk-{version}"
    return _installed(
        folder,
        folder / "node_modules/@opencode-ai/sdk",
        ("npm", "install", "--prefix", str(folder)),
        f"@opencode-ai/sdk@{version}",
    )


def python_sdk() -> Path:
    """Return a Python with OpenCode's SDK."""
    folder = CACHE / "python-sdk"
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, env=_ENVIRONMENT)
    python = folder / "bin" / "python"
    packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/opencode_ai"
    _installed(folder, packages, (str(python), "-m", "pip", "install", "--quiet"), "opencode-ai==0.1.0a36")
    return python


def program(name: str) -> str:
    """Return the path of a program that is not part of this project; skips the test without it."""
    result = shutil.which(name, path=_ENVIRONMENT.get("PATH"))
    if result is None:
        pytest.skip(f"{name} is not installed")
    return result


def _installed(folder: Path, package: Path, install: Sequence[str], name: str) -> Path:
    if not package.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [program(install[0]), *install[1:], name]
        done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode and _NO_NETWORK.search(done.stderr):
            pytest.skip(f"{name} cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
    return folder


def kit_module(name: str) -> Any:
    """Return a module of the acceptance kit."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))  # the tool imports its own modules
    known = sys.modules.get(name)
    if known is not None:
        return known
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module: ModuleType = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _second(kit: Any, command: str, beside: KitServer) -> Any:
    """Start another server on the homes of one that runs."""
    server = kit.Spawned.__new__(kit.Spawned)
    server.port, server.root = kit.free_port(), beside.root
    server.url = f"http://127.0.0.1:{server.port}"
    server.log = (beside.root / "second.log").open("wb")
    environment = kit.make_env(beside.root, beside.model_port)
    server.process = subprocess.Popen(
        command.format(port=server.port).split(),
        cwd=beside.directory,
        env=environment,
        stdout=server.log,
        stderr=server.log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    return server
