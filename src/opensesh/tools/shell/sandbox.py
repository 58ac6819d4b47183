"""Sandbox of a command: which lock this machine has, and the arguments that apply it.

The kernel decides, not the text of the command: what a command and all its children may write holds for anything they
do. On Linux the lock is Landlock with a seccomp filter (:mod:`.sandbox_launcher`), or bubblewrap with the same filter
where the kernel has no Landlock; on macOS it is ``sandbox-exec``, written from its documentation and never tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from tempfile import gettempdir, mkdtemp
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from ... import safe_git
from ...config.trust import owner_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from ...config import Config

LockKind = Literal["landlock", "bubblewrap", "sandbox-exec"]

_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox_launcher.py")
_PROBE_TIMEOUT_SECONDS = 20.0


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """What a command may do."""

    writable: tuple[str, ...] = ()
    """Files and folders that may be changed, besides devices such as ``/dev/null`` and a private temporary folder."""
    strict: bool = True
    """Refuse to change modes, owners, times and attributes of files, to signal processes outside, and Unix sockets,
    behind which a service may do what the command may not."""
    network: bool = False


class Confinement(Struct, frozen=True, kw_only=True):
    """How the commands of a session are confined, apart from those that only read."""

    planning: bool = False
    """In plan mode: no command changes a file, and none outlives its call."""
    policy: SandboxPolicy | None = None
    """Otherwise, what the configuration says; ``None`` without a sandbox."""


class Lock(NamedTuple):
    """A lock of this machine."""

    kind: LockKind
    description: str


@cache
def find_lock() -> Lock | None:
    """Return the lock that this machine has, tried out once; ``None`` without one."""
    for lock in _candidates():
        policy = SandboxPolicy(writable=(os.path.abspath(os.sep + "nonexistent"),))
        try:
            arguments = sandboxed_arguments(["/bin/sh", "-c", "exit 7"], policy, lock)
            probe = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT_SECONDS, check=False
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if probe.returncode == 7:  # the code of the command: it ran
            return lock
    return None


def _candidates() -> list[Lock]:
    if sys.platform == "darwin":
        return [Lock("sandbox-exec", "sandbox-exec")] if shutil.which("sandbox-exec") else []
    if sys.platform != "linux":
        return []
    from .sandbox_launcher import MIN_LANDLOCK_ABI, has_filter, landlock_abi

    if not has_filter():
        return []
    abi = landlock_abi()
    landlock = [Lock("landlock", f"Landlock (version {abi}) and seccomp")] if abi >= MIN_LANDLOCK_ABI else []
    return landlock + ([Lock("bubblewrap", "bubblewrap and seccomp")] if shutil.which("bwrap") else [])


def sandboxed_arguments(arguments: Sequence[str], policy: SandboxPolicy, lock: Lock) -> list[str]:
    """Return the arguments that run a program under ``policy``. ``arguments[0]`` is an absolute path."""
    if lock.kind == "sandbox-exec":
        return ["sandbox-exec", "-p", _macos_profile(policy), *arguments]
    flags = ["--strict"] * policy.strict + ["--no-network"] * (not policy.network)
    launcher = [sys.executable, "-I", "-S", "-B", _LAUNCHER, *flags]
    if lock.kind == "landlock":
        writes = [item for path in policy.writable for item in ("--write", path)]
        return [*launcher, "--landlock", *writes, "--", *arguments]
    existing = [path for path in policy.writable if os.path.exists(path)]
    binds = [item for path in existing for item in ("--bind", path, path)]
    # Behind settings of the kernel (/proc/sys), root could have programs started outside.
    kernel = ["--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    bwrap = ["bwrap", "--ro-bind", "/", "/", *kernel, *binds, "--die-with-parent"]
    # Without process ids of its own, a command could change the memory of this process, which is not confined.
    isolated = ["--unshare-ipc", "--unshare-pid"] + ["--unshare-net"] * (not policy.network)
    return [*bwrap, *isolated, *launcher, "--", *arguments]


def _macos_profile(policy: SandboxPolicy) -> str:
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    rules += [f'(allow file-write* (literal "{path}"))' for path in ("/dev/null", "/dev/zero", "/dev/tty")]
    for path in policy.writable:
        quoted = os.path.realpath(path).replace("\\", "\\\\").replace('"', '\\"')
        rules.append(f'(allow file-write* (subpath "{quoted}"))')
    if not policy.network:
        rules.append("(deny network*)")
    elif policy.strict:
        rules.append("(deny network-outbound (remote unix-socket))")
    return " ".join(rules)


def sandbox_policy(config: Config, folders: Sequence[str]) -> SandboxPolicy | None:
    """Return the sandbox that the configuration sets for ordinary commands; ``None`` if it sets none.

    ``folders`` are those of the project. A project's configuration can enable the sandbox and forbid the network, but
    not the opposite, nor name folders.
    """
    settings = config.settings.opensesh.sandbox
    by_project = {
        path[2]
        for path, origin in config.origins.items()
        if path[:2] == ("opensesh", "sandbox") and len(path) > 2 and owner_of(origin, config) == "project"
    }
    if not settings.enabled and "enabled" not in by_project:
        return None
    own = [] if "writable" in by_project else settings.writable
    named = [os.path.join(config.directory, os.path.expanduser(path)) for path in own]
    # The root is the worktree where there is no repository.
    inside = [folder for folder in folders if folder != os.path.dirname(folder)]
    network = settings.network and "network" not in by_project
    return SandboxPolicy(writable=(*inside, gettempdir(), *named), strict=False, network=network)


@contextmanager
def private_folder() -> Generator[str]:
    """Create a temporary folder for one command, and delete it afterwards."""
    folder = os.path.realpath(mkdtemp(prefix="opensesh-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_variables(folder: str) -> dict[str, str]:
    """Return the variables that make programs put temporary files in ``folder``. zsh needs one for heredocs."""
    return {**dict.fromkeys(("TMPDIR", "TMP", "TEMP"), folder), "TMPPREFIX": os.path.join(folder, "zsh")}


def guarded_git_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make git start no hook, pager, monitor or other program that a repository names."""
    variables = {"GIT_PAGER": "cat", "PAGER": "cat", "GIT_EDITOR": "false"}
    variables |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    return variables | safe_git.setting_variables(safe_git.SETTINGS, environment)
