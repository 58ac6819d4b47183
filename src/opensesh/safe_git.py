"""Settings under which git starts no program that the configuration of a repository names.

A repository that was unpacked from an archive brings its own ``.git/config``, which can name programs for hooks, file
system monitors, pagers, signatures, filters and transports. opensesh runs git in every project that it is started in,
so none of these may run.
"""

from __future__ import annotations

import os
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = {
    # Where objects are missing, git fetches them from a remote whose transport may be any program. Versions before 2.45
    # do not know the second variable.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Variables for every git command that opensesh runs for itself."""

SETTINGS = {
    "core.alternateRefsCommand": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.sshCommand": "false",
    "gpg.openpgp.program": "false",
    "gpg.program": "false",
    "gpg.ssh.program": "false",
    "gpg.x509.program": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",
    "status.submoduleSummary": "false",
}
"""Settings for the read-only commands of a model. With ``safe.bareRepository``, git ignores bare repositories that are
files of another one."""

_FILTERS = r"^filter\..*\.(clean|smudge|process)$"


def setting_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that add ``settings`` to those of ``environment``; they override every configuration file."""
    count = environment.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isascii() and count.isdigit() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def without_filters(folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with the filters switched off that the configuration of the repository itself names.

    Those of the user, such as ``git lfs install`` sets up, stay. For commands that compare files with commits.
    """
    command = ("git", "config", "-z", "--show-scope", "--name-only", "--get-regexp", _FILTERS)
    shown = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    *fields, _ = os.fsdecode(shown.stdout).split("\0")
    scopes = zip(fields[::2], fields[1::2], strict=True)
    names = {name.rpartition(".")[0] for scope, name in scopes if scope in ("local", "worktree")}
    settings = {f"{name}.{kind}": "" for name in names for kind in ("clean", "smudge", "process")}
    settings |= {f"{name}.required": "false" for name in names}
    return {**environment, **setting_variables(settings, environment)}
