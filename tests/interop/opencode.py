"""The real OpenCode, run against a :class:`~opensesh.testing.wire.WireServer`.

``OPENSESH_TEST_VERSIONS`` replaces the versions that the slow tests of databases use: several with ``>`` between them
open one data folder in turn (``1.2.1>1.14.41>1.18.33``).
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

from opensesh.testing.wire import WireServer

from .opencode_programs import ENVIRONMENT, JSON_FILES, OpenCodeError, opencode_binary

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

Json = dict[str, Any]

DATABASE = "1.18.33"
"""A version that keeps sessions in ``opencode.db``."""

_CHOSEN_VERSIONS = tuple(ENVIRONMENT.get("OPENSESH_TEST_VERSIONS", "").split())
OTHER_VERSIONS = _CHOSEN_VERSIONS or ("1.18.34", "1.17.0", "1.15.13", "1.14.41", "1.2.27")
"""Other versions with a database, one a change of what they store."""
UPGRADES = (
    () if _CHOSEN_VERSIONS else ("1.2.1>1.2.27>1.14.41>1.18.33", "1.1.65>1.2.4>1.15.13>1.17.11", "1.14.34>1.18.33")
)
"""Versions that open one data folder in turn."""

MODEL = {"providerID": "fake", "modelID": "scripted"}

_NOWHERE = "http://127.0.0.1:9/"
"""An address at which no registry answers, so that OpenCode installs no plugins by itself."""


def new_repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a Git repository with one commit, which is the same every time: ``README.md``, or ``files``."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {"README.md": "hello\n"}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    who = {"NAME": "T", "EMAIL": "t@example.invalid", "DATE": "2026-01-01T00:00:00+0000"}
    environment = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    environment |= {"PATH": ENVIRONMENT["PATH"], "HOME": str(path), "GIT_CONFIG_NOSYSTEM": "1"}
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        subprocess.run(("git", *command), cwd=path, env=environment, check=True, timeout=60)
    return path


class OpenCode:
    """OpenCode with folders of its own under ``root``, and a model that ``wire`` plays.

    Nothing runs until :meth:`start` (or ``with``); the command line works without it. ``start`` and ``stop`` may
    alternate, so that others can read and write :attr:`storage` in between.
    """

    running: list[OpenCode] = []

    def __init__(
        self,
        root: Path,
        wire: WireServer | str,
        *,
        version: str = JSON_FILES,
        directory: Path | None = None,
        config: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``wire`` may be the address of a server; ``config`` is merged over the configuration, key by key."""
        self.binary = opencode_binary(version)
        self.version = version
        self.root = root
        self.directory = directory or new_repository(root / "work")
        self.log = root / "opencode.log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._may_be_writing = False
        """Whether a request since :meth:`settle` may still write something after its answer."""
        self.opener = build_opener(ProxyHandler({}))
        self.environment = _isolated(root) | dict(environment or {})
        base_url = wire.base_url if isinstance(wire, WireServer) else wire
        folder = root / "config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "opencode.json").write_text(json.dumps(_configuration(base_url) | dict(config or {})))

    @property
    def data(self) -> Path:
        """The data folder: ``$XDG_DATA_HOME/opencode``."""
        return self.root / "data" / "opencode"

    @property
    def storage(self) -> Path:
        """The tree of JSON files, in versions that have one."""
        return self.data / "storage"

    @property
    def database(self) -> Path:
        """The database, in versions that have one."""
        return self.data / "opencode.db"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # The server

    def start(self, timeout: float = 60.0) -> None:
        """Run ``serve`` and wait until it listens."""
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [str(self.binary), "serve", "--port", str(port), "--hostname", "127.0.0.1"]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        OpenCode.running.append(self)
        atexit.register(self.stop)
        deadline = time.monotonic() + timeout
        # No request may be sent before: OpenCode 1.17 and later never answer one that arrives before they print this.
        while b" listening on " not in self.log.read_bytes()[begin:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = self.log_tail()
                self.stop()
                raise OpenCodeError(f"OpenCode {self.version} did not start within {timeout:g} s:\n{text}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server and everything it started. Does nothing if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        OpenCode.running.remove(self)
        atexit.unregister(self.stop)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)

    def kill(self) -> None:
        """Kill the server in the middle of whatever it does; :meth:`start` runs it again."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self.stop()

    def log_tail(self, lines: int = 60) -> str:
        """Return the end of what the server printed, and of its own log."""
        logs = [self.log, *sorted((self.data / "log").glob("*.log"))[-1:]]
        tails = [path.read_text("utf-8", "replace").splitlines()[-lines:] for path in logs if path.exists()]
        return "\n".join(line for tail in tails for line in tail)

    # Its HTTP API

    def request(self, method: str, path: str, body: Json | None = None, *, timeout: float = 60.0, **query: Any) -> Any:
        """Send a request about :attr:`directory`, and return the answer. Raises :class:`OpenCodeError`."""
        arguments = {name: value for name, value in query.items() if value is not None}
        url = f"{self.url}{path}" + (f"?{urlencode(arguments)}" if arguments else "")
        headers = {"x-opencode-directory": quote(str(self.directory))}
        content = None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
        self._may_be_writing |= method != "GET"
        try:
            asked = Request(url, content, headers, method=method)
            with self.opener.open(asked, timeout=timeout) as response:
                answer = response.read()
        except HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            raise OpenCodeError(f"{method} {path}: {error.code} {text[:2000]}", error.code) from None
        except (URLError, OSError) as error:
            raise OpenCodeError(f"{method} {path}: {error}\n{self.log_tail(20)}") from error
        return json.loads(answer) if answer else None

    @contextmanager
    def events(self) -> Generator[Iterator[Json]]:
        """Yield the events that the server sends to its clients from now on."""
        headers = {"x-opencode-directory": quote(str(self.directory))}
        with self.opener.open(Request(f"{self.url}/event", headers=headers), timeout=60) as response:
            received = (json.loads(line[5:]) for line in response if line.startswith(b"data:"))
            next(received)  # that it is connected
            yield received

    def create(self, title: str | None = None, parent: str | None = None) -> Json:
        """Create a session."""
        return self.request("POST", "/session", {"title": title, "parentID": parent})

    def get(self, session: str) -> Json:
        """Return a session."""
        return self.request("GET", f"/session/{session}")

    def list(self, **query: Any) -> Sequence[Json]:
        """Return the sessions of the project. The query may have ``roots``, ``search``, ``limit`` and ``start``."""
        return self.request("GET", "/session", **query)

    def children(self, session: str) -> Sequence[Json]:
        """Return the sessions of the subagents of a session."""
        return self.request("GET", f"/session/{session}/children")

    def messages(self, session: str, limit: int | None = None) -> Sequence[Json]:
        """Return the messages of a session, each as ``{"info": ..., "parts": [...]}``."""
        return self.request("GET", f"/session/{session}/message", limit=limit)

    def show(self, session: str) -> Sequence[Json]:
        """Return the messages of an idle session, after every request that shows a part of it was answered."""
        if self._may_be_writing:
            self.settle()
        assert self.get(session)["id"] == session
        assert session in [info["id"] for info in self.list(limit=10_000)]
        for path in ("children", "todo", "diff"):
            self.request("GET", f"/session/{session}/{path}")
        path, deadline = f"/session/{session}/message", time.monotonic() + 60
        messages = self.messages(session)
        # On a busy machine a summary may still be stored after everything has been quiet for a while.
        while [self.request("GET", f"{path}/{message['info']['id']}") for message in messages] != messages:
            assert time.monotonic() < deadline, f"the messages of {session} are not those that are shown one by one"
            messages = self.messages(session)
        return messages

    def prompt(self, session: str, prompt: str | Sequence[Json], *, timeout: float = 60.0, **options: Any) -> Json:
        """Send a prompt, and return the answer: ``{"info": ..., "parts": [...]}``.

        ``options`` are those of the API: ``agent``, ``model``, ``noReply``, ``messageID``, ``system``, ``tools``.
        """
        path = f"/session/{session}/message"
        answer = self.request("POST", path, _prompt_body(prompt, options), timeout=timeout)
        if answer is None:
            raise OpenCodeError(f"the prompt was refused without a reason:\n{self.log_tail(20)}")
        return answer

    def prompt_async(self, session: str, prompt: str | Sequence[Json], **options: Any) -> None:
        """Send a prompt without waiting for the answer."""
        self.request("POST", f"/session/{session}/prompt_async", _prompt_body(prompt, options))

    def shell(self, session: str, command: str, agent: str = "build") -> Json:
        """Run a shell command of the user."""
        return self.request("POST", f"/session/{session}/shell", {"command": command, "agent": agent})

    def fork(self, session: str, message: str | None = None) -> Json:
        """Copy the session up to ``message``, which is not part of the copy."""
        return self.request("POST", f"/session/{session}/fork", {"messageID": message})

    def revert(self, session: str, message: str, part: str | None = None) -> Json:
        """Revert to before ``message``."""
        return self.request("POST", f"/session/{session}/revert", {"messageID": message, "partID": part})

    def unrevert(self, session: str) -> Json:
        """Undo the revert."""
        return self.request("POST", f"/session/{session}/unrevert")

    def abort(self, session: str) -> bool:
        """Abort the run of a session."""
        return self.request("POST", f"/session/{session}/abort")

    def ends(self, session: str) -> int:
        """Count the ends of the session's loop in the log; a loop that is aborted ends twice.

        Its clients see the first end. The second comes a little later: a prompt that arrives between the two is ended
        by the second, and is never answered.
        """
        text = "".join(path.read_text("utf-8", "replace") for path in (self.data / "log").glob("*.log"))
        return len(re.findall(rf"sessionID={session} cancel$", text, re.MULTILINE))

    def summarize(self, session: str, *, auto: bool = False) -> bool:
        """Compact the session."""
        return self.request("POST", f"/session/{session}/summarize", {**MODEL, "auto": auto})

    def update(self, session: str, *, title: str | None = None, archived: int | None = None) -> Json:
        """Rename or archive."""
        moment = None if archived is None else {"archived": archived}
        return self.request("PATCH", f"/session/{session}", {"title": title, "time": moment})

    def delete(self, session: str) -> bool:
        """Remove the session and its children."""
        return self.request("DELETE", f"/session/{session}")

    def todo(self, session: str) -> Sequence[Json]:
        """Return the todo list of a session."""
        return self.request("GET", f"/session/{session}/todo")

    def diff(self, session: str) -> Sequence[Json]:
        """Return the files that the session changed."""
        return self.request("GET", f"/session/{session}/diff")

    def status(self) -> dict[str, Json]:
        """Return the status of every session that is not idle."""
        return self.request("GET", "/session/status")

    def settle(self, timeout: float = 60.0) -> None:
        """Wait until no session runs and nothing is being written any more.

        Titles come late, and so do the summaries of prompts: git compares the snapshots after the run has ended.
        """
        deadline = time.monotonic() + timeout
        before: object = None
        unchanged_since = 0.0
        while time.monotonic() < deadline:
            now = None if self._runs_git() or self.status() else _traces(self.data)
            if now is None or now != before:
                unchanged_since = time.monotonic()
            elif time.monotonic() - unchanged_since > 0.3:
                self._may_be_writing = False
                return
            before = now
            time.sleep(0.03)
        raise OpenCodeError(f"OpenCode was still busy after {timeout:g} s: {self.status()}")

    def _runs_git(self) -> bool:
        """Whether the server has a git process; False where the system has no ``/proc``."""
        assert self._process is not None
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread or a process that has just ended
            for thread in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
                for child in thread.read_text().split():
                    if Path(f"/proc/{child}/comm").read_text() == "git\n":
                        return True
        return False

    # Its command line

    def cli(
        self, *arguments: str, prompt: str = "", check: bool = True, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, with ``prompt`` on its standard input.

        What it prints goes through a file: the program may exit before a pipe has been read.
        """
        with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+") as errors:
            done = subprocess.run(
                (str(self.binary), *arguments),
                cwd=self.directory,
                env=self.environment,
                input=prompt,
                stdout=out,
                stderr=errors,
                text=True,
                timeout=timeout,
                check=False,
                start_new_session=True,
            )
            out.seek(0)
            errors.seek(0)
            done = subprocess.CompletedProcess(arguments, done.returncode, out.read(), errors.read())
        if check and done.returncode:
            raise OpenCodeError(f"opencode {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def export(self, session: str) -> Json:
        """Return what ``opencode export`` prints: ``{"info": ..., "messages": [...]}``."""
        return json.loads(self.cli("export", session).stdout)

    def session_list(self) -> Sequence[Json]:
        """Return what ``opencode session list`` prints as JSON; without sessions it prints nothing."""
        return json.loads(self.cli("session", "list", "--format", "json").stdout or "[]")

    def import_file(self, path: Path) -> str:
        """Run ``opencode import``, and return what it printed: its exit code is always 0."""
        return self.cli("import", str(path)).stdout

    def run(self, prompt: str, *arguments: str) -> Sequence[Json]:
        """Run ``opencode run``, and return the events that it printed."""
        printed = self.cli("run", "--format", "json", *arguments, prompt=prompt).stdout
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def _prompt_body(prompt: str | Sequence[Json], options: Mapping[str, Any]) -> Json:
    parts = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
    return {"model": MODEL, "parts": parts, **options}


def _traces(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and modification time of every file with sessions."""
    traces: dict[str, tuple[int, int]] = {}
    for path in (*folder.glob("opencode.db*"), *(folder / "storage").rglob("*")):
        with suppress(FileNotFoundError):
            result = path.stat()
            traces[str(path)] = (result.st_size, result.st_mtime_ns)
    return traces


def _isolated(root: Path) -> dict[str, str]:
    environment = {name: ENVIRONMENT[name] for name in ("PATH", "LANG", "TMPDIR") if name in ENVIRONMENT}
    for name, folder in {"HOME": "home", **{f"XDG_{one.upper()}_HOME": one for one in _FOLDERS}}.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        environment[name] = str(root / folder)
    for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"):
        environment[f"OPENCODE_DISABLE_{name}"] = "1"
    nowhere = dict.fromkeys(("BUN_CONFIG_REGISTRY", "NPM_CONFIG_REGISTRY", "npm_config_registry"), _NOWHERE)
    return environment | nowhere | {"TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1"}


_FOLDERS = ("data", "config", "cache", "state")


def _configuration(base_url: str) -> Json:
    model = {
        "name": "Scripted",
        "reasoning": True,
        "tool_call": True,
        "limit": {"context": 200_000, "output": 8192},
        "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Fake",
        "options": {"baseURL": base_url, "apiKey": "x"},
        "models": {"scripted": model},
    }
    return {
        "model": "fake/scripted",
        "small_model": "fake/scripted",
        "share": "disabled",
        "autoupdate": False,
        "lsp": False,  # the machine may have any language servers
        "provider": {"fake": provider},
        "permission": {"bash": "allow", "edit": "allow", "external_directory": "allow"},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
