"""Tables of known commands: how many words name a command, and which commands run other commands.

``git push origin main`` is a ``git push``, ``ls -la`` is an ``ls``: a reply of "always" allows the command cut after
the words that name it. ``sudo``, ``env``, ``xargs``, ``bash -c``, ``find -exec`` and similar commands run the command
in their arguments, which needs permission too.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from .lexer import ShellCommand
from .parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .lexer import Word

_TWO_WORDS = """
    ansible apt apt-get asdf bazel black brew buf bun bundle cabal cargo cdk certbot choco circleci cmake code composer
    conan conda consul corepack crictl cypress dart deno dnf docker docker-compose doppler dotnet dvc earthly elixir
    eksctl expo fastlane firebase flatpak fly flyctl flutter fnm gem git go gradle gradlew ./gradlew grunt gulp hatch
    helm heroku hg hugo invoke ip jj jupyter just k3d kind kubectl lefthook lerna make mamba meson minikube mise mix
    mvn ./mvnw ng netlify nix nomad npm npx nuget nvm nx openssl opam pacman packer pdm perl php pip pip3 pipenv pipx
    pm2 pnpm podman poe poetry port pre-commit prisma psql pulumi pyenv python python3 rails rake rbenv react-native
    redis-cli ruff rush rustup rye sbt serverless snap sops spack stack supabase svn swift systemctl task terraform
    tofu tox trunk turbo uv vagrant vault vercel vite volta wasm-pack wp wrangler xcodebuild xcrun yarn yum zig zypper
    ruby node tsx ts-node
"""

_THREE_WORDS = """
    aws az doctl gcloud gh glab oci sf sfdx
"""

# Subcommands whose next word belongs to the name too.
_LONG_SUBCOMMANDS = {
    "heroku": "pg",
    "bun": "pm run x",
    "cargo": "add run",
    "composer": "run",
    "conda": "env",
    "deno": "task",
    "docker": "buildx compose container context image network system volume",
    "dotnet": "tool",
    "git": "bisect config remote stash submodule worktree",
    "go": "mod tool",
    "helm": "repo",
    "ip": "addr link route",
    "kubectl": "config create get delete rollout",
    "nix": "flake",
    "npm": "cache config exec run run-script",
    "pnpm": "dlx exec run",
    "podman": "compose container image",
    "poetry": "env run",
    "pulumi": "stack",
    "rails": "db",
    "rustup": "component target",
    "terraform": "state workspace",
    "uv": "pip run tool",
    "yarn": "dlx run workspace",
}

ARITY = (
    dict.fromkeys(_TWO_WORDS.split(), 2)
    | dict.fromkeys(_THREE_WORDS.split(), 3)
    | {f"{name} {word}": 3 for name, words in _LONG_SUBCOMMANDS.items() for word in words.split()}
)
"""Number of words that name a command, by the beginning of the command; 1 for all others."""

_FLAGS_BEFORE_SUBCOMMAND = {
    "cargo": "-C -Z --color --config",
    "docker": "-H -c -l --config --context --host --log-level",
    "gh": "-R --repo",
    "git": "-C -c --config-env --git-dir --namespace --work-tree",
    "go": "-C",
    "helm": "-n --kube-context --kubeconfig --namespace",
    "kubectl": "-n -s --cluster --context --kubeconfig --namespace --server --user",
    "make": "-C -I -f --directory --file --makefile",
    "npm": "-C -w --prefix --workspace",
    "pnpm": "-C -F --dir --filter",
    "poetry": "-C -P --directory --project",
    "uv": "--config-file --directory --project",
    "yarn": "--cwd",
}
"""Flags that take the next word as their value and may stand before the subcommand, by command."""


def command_name(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words that name a command; the longest entry of the table decides."""
    for size in range(min(2, len(words)), 0, -1):
        length = ARITY.get(" ".join(words[:size]))
        if length is not None:
            return tuple(words[:length])
    return tuple(words[:1])


def skip_global_flags(name: str, arguments: Sequence[str]) -> list[str]:
    """Return ``arguments`` without the flags before the subcommand of ``name``; empty if there are none."""
    base = os.path.basename(name)
    if base not in _FLAGS_BEFORE_SUBCOMMAND:
        return []
    with_value = _FLAGS_BEFORE_SUBCOMMAND[base].split()
    index = 0
    while index < len(arguments) and arguments[index][:1] in ("-", "+"):
        index += 2 if arguments[index] in with_value else 1
    return list(arguments[index:]) if index else []


class _ValueFlags(NamedTuple):
    """The flags of a command that take the next word, unless their value is attached."""

    letters: str = ""
    names: str = ""


_NONE = _ValueFlags()
_WRAPPERS: dict[str, _ValueFlags] = {
    "builtin": _NONE,
    "busybox": _NONE,
    "caffeinate": _ValueFlags("tw"),
    "chroot": _ValueFlags("", "groups userspec"),
    "command": _NONE,
    "doas": _ValueFlags("Cu"),
    "entr": _NONE,
    "env": _ValueFlags("Cu", "chdir unset"),
    "exec": _ValueFlags("a"),
    "fakeroot": _ValueFlags("bils", "fd-base faked lib"),
    "flock": _ValueFlags("Ew", "conflict-exit-code timeout wait"),
    "gtimeout": _ValueFlags("ks", "kill-after signal"),
    "ionice": _ValueFlags("cnpPu", "class classdata pgid pid uid"),
    "nice": _ValueFlags("n", "adjustment"),
    "nocorrect": _NONE,
    "noglob": _NONE,
    "nohup": _NONE,
    "parallel": _ValueFlags("ajINnS", "arg-file jobs max-args sshlogin"),
    "pkexec": _ValueFlags("", "user"),
    "repeat": _NONE,
    "setsid": _NONE,
    "stdbuf": _ValueFlags("eio", "error input output"),
    "strace": _ValueFlags("abeEIoOpPsSuUX", "attach env output string-limit trace user"),
    "sudo": _ValueFlags(
        "CDRTghprtuU", "chdir chroot close-from command-timeout group host other-user prompt role type user"
    ),
    "taskset": _NONE,
    "time": _ValueFlags("fo", "format output"),
    "timeout": _ValueFlags("ks", "kill-after signal"),
    "toybox": _NONE,
    "unbuffer": _NONE,
    "unshare": _ValueFlags("GRSw", "root setgid setuid wd"),
    "watch": _ValueFlags("nq", "equexit interval"),
    "xargs": _ValueFlags("adEIJLnPRsS", "arg-file delimiter max-args max-chars max-procs process-slot-var"),
}
"""Commands whose arguments are a command."""

# The flag that gives env a command line as one word; -C and -u take the rest of their word as a value.
_ENV_SPLIT_STRING = re.compile(r"--s|-(?!-)[^CuS]*S", re.DOTALL)

_FIRST_IS_OWN = frozenset(("chroot", "flock", "gtimeout", "repeat", "taskset", "timeout"))
"""Wrappers whose first argument is not the command."""

_JOINING = frozenset(("parallel", "watch"))
"""Wrappers that pass their arguments to a shell as one text."""

_SHELLS = frozenset(("ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"))
_WITH_SHELL_TEXT = _SHELLS | {"runuser", "script", "su"}
"""Commands that take a text for a shell behind ``-c``."""

_INTERPRETERS = frozenset("bun deno lua node osascript perl php psql python python3 ruby sqlite3 tsx".split())
"""Interpreters of other languages, which may read a program from their input."""

_EXEC_FLAGS = {
    "find": frozenset(("-exec", "-execdir", "-ok", "-okdir")),
    **dict.fromkeys(("fd", "fdfind"), frozenset(("-x", "-X", "--exec", "--exec-batch"))),
}


def runs_other_commands(name: str) -> bool:
    """Return whether a command of this name runs what its arguments say, so that the name alone means nothing."""
    base = os.path.basename(name)
    return base in _WRAPPERS or base in _WITH_SHELL_TEXT or base in (".", "eval", "source", "trap")


def runs_in_same_shell(name: str) -> bool:
    """Return whether the command it runs is run by the same shell, so that a ``cd`` in it takes effect."""
    return os.path.basename(name) in ("builtin", "command", "eval", "exec", "nocorrect", "noglob", "repeat")


def reads_program_from_input(command: ShellCommand) -> bool:
    """Return whether what it runs is not in its words: it comes from a pipe, as in ``curl ... | sh``, or from a
    heredoc, which is not part of the command's text."""
    name = os.path.basename(command.words[0].value)
    if not runs_other_commands(name) and name not in _INTERPRETERS:
        return False
    if any(redirect.operator in ("<<", "<<-") for redirect in command.redirects):
        return True
    words = [word.value for word in command.words[1:]]
    return (name in _SHELLS or name in _INTERPRETERS) and all(
        word.startswith("-") and not word.startswith("--") for word in words
    )


def inner_commands(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield the commands that ``command`` itself would run, as far as its words tell. Raises :class:`Unparsable`."""
    if not command.words:
        return
    name = os.path.basename(command.words[0].value)
    words = command.words[1:]
    if name in _WRAPPERS:
        yield from _wrapped_command(name, words)
    elif name in _WITH_SHELL_TEXT:
        yield from parse(_shell_text([word.value for word in words]))
    elif name == "eval":
        yield from parse(_joined(words))
    elif name == "trap" and words:
        yield from parse(words[0].value)
    elif name in _EXEC_FLAGS:
        yield from _exec_commands(words, _EXEC_FLAGS[name])


def _wrapped_command(name: str, words: Sequence[Word]) -> Iterator[ShellCommand]:
    flags = _WRAPPERS[name]
    index = 0
    while index < len(words) and words[index].value.startswith("-"):
        flag = words[index].value
        index += 1
        if flag == "--":
            break
        if name == "env" and _ENV_SPLIT_STRING.match(flag):
            attached = flag.partition("=")[2] if flag.startswith("--") else flag.partition("S")[2]
            yield from parse(f"{attached} {_joined(words[index:])}")
            return
        if flag.startswith("--"):
            index += any(long.startswith(flag[2:]) for long in flags.names.split())
        else:
            # Behind a letter that takes a value, the rest of the word is that value.
            first = next((at for at, letter in enumerate(flag) if at and letter in flags.letters), None)
            index += first == len(flag) - 1
    if name in _FIRST_IS_OWN:
        index += 1
    while index < len(words) and name in ("env", "sudo", "doas") and "=" in words[index].value:
        index += 1
    rest = words[index:]
    if name in _JOINING:
        yield from parse(_joined(rest))
    elif name == "flock" and rest and rest[0].value in ("-c", "--command"):
        yield from parse(_joined(rest[1:2]))
    else:
        yield from _command_of(rest)


def _exec_commands(words: Sequence[Word], exec_flags: frozenset[str]) -> Iterator[ShellCommand]:
    """Yield the commands between an ``-exec`` flag and ``;``, ``+`` or the end."""
    start: int | None = None
    for index, word in enumerate(words):
        if word.value in exec_flags:
            start = index + 1
        elif start is not None and word.value in (";", "+"):
            yield from _command_of(words[start:index])
            start = None
    if start is not None:
        yield from _command_of(words[start:])


def _joined(words: Sequence[Word]) -> str:
    return " ".join(word.value for word in words)


def _command_of(words: Sequence[Word]) -> Iterator[ShellCommand]:
    if words:
        yield ShellCommand(text=" ".join(word.text for word in words), words=tuple(words))


def _shell_text(values: Sequence[str]) -> str:
    """Return the text for a shell: the first word behind ``-c`` that is neither a flag nor a flag's value."""
    for start, value in enumerate(values):
        if value.startswith("--command="):
            return value.partition("=")[2]
        if value == "--command" or (value.startswith("-") and value[1:2] != "-" and "c" in value):
            index = start
            while index < len(values) and values[index][:1] in ("-", "+"):
                index += 2 if values[index][-1:] in ("o", "O") else 1
            return values[index] if index < len(values) else ""
    return ""
