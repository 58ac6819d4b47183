"""Tables of known commands: how many words name a command, and which commands run other commands.

``git push origin main`` is a ``git push``, ``ls -la`` is an ``ls``: a reply of "always" allows the command cut after
the words that name it. ``sudo``, ``env``, ``xargs``, ``bash -c``, ``find -exec`` and similar commands run the command
in their arguments, which needs permission too.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from .certainty import is_harmless_variable, line_doubts
from .lexer import ShellCommand, ShellLanguage
from .parser import ParsedLine, parse

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


class _Flags(NamedTuple):
    """The flags of a command that runs another. With any other flag it is not certain which word is the command, or in
    which directory it runs."""

    letters: str = ""
    """Those that take the next word, unless their value is attached."""
    names: str = ""
    """Long ones that take the next word."""
    switches: str = ""
    """Those without a value, by letter and by name."""


_NONE = _Flags()
_WRAPPERS: dict[str, _Flags] = {
    **dict.fromkeys(
        """
            aa-exec builtin busybox bwrap capsh catchsegv cgexec chpst daemonize dbus-launch dumb-init eatmydata
            chroot entr fakechroot faketime firejail gosu heaptrack i386 linux32 linux64 nocorrect noglob nohup perf
            chronic dbus-run-session i486 i586 i686 ifne lckdo logsave proot proxychains proxychains4 repeat rlwrap rr
            run0 runcon s6-setuidgid schedtool setarch setuidgid sg softlimit start-stop-daemon su-exec systemd-inhibit
            systemd-run taskset tini torsocks toybox tsocks uname26 unbuffer valgrind x86_64 xvfb-run
        """.split(),
        _NONE,
    ),
    "caffeinate": _Flags("tw", "", "dimsu"),
    "choom": _Flags("np", "adjust pid"),
    "chrt": _Flags("DPT", "sched-deadline sched-period sched-runtime", "abdfiomrv"),
    "command": _Flags("", "", "p"),
    "cpulimit": _Flags("cepl"),
    "doas": _Flags("Cu", "", "ns"),
    "env": _Flags("u", "unset", "iv0 ignore-environment null"),
    "exec": _Flags("a", "", "cl"),
    "fakeroot": _Flags("bis", "fd-base"),
    "flock": _Flags("Ew", "conflict-exit-code timeout wait", "enosuxF nonblock shared exclusive"),
    "gtimeout": _Flags("ks", "kill-after signal", "v foreground preserve-status"),
    "ionice": _Flags("cnpPu", "class classdata pgid pid uid", "t"),
    "ltrace": _Flags("aAeFnopsux"),
    "nice": _Flags("n", "adjustment", "0123456789"),
    "nsenter": _Flags("GSt", "setgid setuid target"),
    "numactl": _Flags("CNimp"),
    "parallel": _Flags("ajINnS", "arg-file jobs max-args sshlogin"),
    "pkexec": _Flags("", "user"),
    "prlimit": _Flags("p", "pid"),
    "setpriv": _Flags("", "bounding-set egid euid groups inh-caps regid reuid rgid ruid securebits"),
    "setsid": _Flags("", "", "cfw ctty fork wait"),
    "stdbuf": _Flags("eio", "error input output"),
    "strace": _Flags("abeIOpPsSuUX", "attach string-limit trace user", "cCdfFhiknqrtTvwxyzZ"),
    "sudo": _Flags(
        "CTghprtuU",
        "close-from command-timeout group host other-user prompt role type user",
        "AbEHnPS non-interactive",
    ),
    "time": _Flags("fo", "format output", "apvq"),
    "timeout": _Flags("ks", "kill-after signal", "v foreground preserve-status verbose"),
    "uclampset": _Flags("mMp"),
    "unshare": _Flags("GS", "setgid setuid"),
    "watch": _Flags("nq", "equexit interval", "bcdegtx"),
    "xargs": _Flags(
        "adELnPs",
        "arg-file delimiter max-args max-chars max-procs",
        "0oprtx null no-run-if-empty verbose",
    ),
}
"""Commands whose arguments are a command."""

_LOADER = re.compile(r"ld(?:-linux[\w.-]*|64|-musl[\w.-]*)?\.so(?:\.\d+)*")
"""The dynamic loader, which runs the program in its arguments."""

# The flag that gives env a command line as one word; -C and -u take the rest of their word as a value.
_ENV_SPLIT_STRING = re.compile(r"--s|-(?!-)[^CuS]*S", re.DOTALL)

_FIRST_IS_OWN = frozenset(
    """
    chroot chrt faketime flock gosu gtimeout lckdo logsave perf repeat rr runcon s6-setuidgid setarch setuidgid sg
    su-exec taskset timeout
    """.split()
)
"""Wrappers whose first argument is not the command."""

_JOINING = frozenset(("parallel", "watch"))
"""Wrappers that pass their arguments to a shell as one text."""

_SHELLS: dict[str, ShellLanguage] = {
    **dict.fromkeys(("bash", "rbash"), "bash"),
    **dict.fromkeys(("zsh", "rzsh"), "zsh"),
    **dict.fromkeys(("ksh", "ksh93", "mksh", "rksh"), "ksh"),
    **dict.fromkeys(("ash", "dash", "sh"), "posix"),
}
"""Shells whose language is known, by name."""
_WITH_SHELL_TEXT = _SHELLS.keys() | set(
    "csh elvish fish lksh newgrp nu oksh osh posh pwsh runuser script su tcsh xonsh yash ysh".split()
)
"""Commands that take a text for a shell behind ``-c``."""

_INTERPRETERS = frozenset("bun deno lua node osascript perl php psql python python3 ruby sqlite3 tsx".split())
"""Interpreters of other languages, which may read a program from their input."""

_INPUT_FILE = re.compile(r"stdin|(?:^|/)(?:dev|proc|fd)/")
"""Names by which a program finds its own input, however the path to it is spelled."""

FIND_ACTIONS = tuple("-exec -execdir -ok -okdir -delete -fls -fprint -fprint0 -fprintf".split())
"""Actions of find that change something; the first four run a command."""
_EXEC_FLAGS = {
    "find": frozenset(FIND_ACTIONS[:4]),
    **dict.fromkeys(("fd", "fdfind"), frozenset(("-x", "-X", "--exec", "--exec-batch"))),
}


def shell_language(name: str) -> ShellLanguage:
    """Return the language of the shell with this name; ``other`` for one that is not known."""
    return _SHELLS.get(name, "other")


_SEVERAL_WORDS = re.compile(r"\[|\{.*(?:,|\.\.)", re.DOTALL)
_EXEC_ATTACHED = re.compile(r"-[A-Za-z]+[xX].*|-[xX].+|--exec(?:-batch)?=.*", re.DOTALL)
"""A flag of fd that runs a command, among others or with the command attached."""


def runs_other_commands(name: str) -> bool:
    """Return whether a command of this name runs what its arguments say, so that the name alone means nothing."""
    base = os.path.basename(name)
    return _is_wrapper(base) or base in _WITH_SHELL_TEXT or base in (".", "eval", "source", "trap")


def _depends_on_arguments(name: str) -> bool:
    """Return whether more arguments than are known could make a command of this name run another, or write a file that
    the rules were not asked about."""
    return runs_other_commands(name) or os.path.basename(name) in _EXEC_FLAGS or os.path.basename(name) == "tee"


def runs_in_same_shell(name: str) -> bool:
    """Return whether the command it runs is run by the same shell, so that a ``cd`` in it takes effect."""
    return os.path.basename(name) in ("builtin", "command", "eval", "exec", "nocorrect", "noglob", "repeat")


def reads_program_from_input(command: ShellCommand) -> bool:
    """Return whether what it runs is not in its words: it comes from a pipe, as in ``curl ... | sh``, or from a
    heredoc, which is not part of the command's text."""
    name = os.path.basename(command.words[0].value)
    if not runs_other_commands(name) and name not in _INTERPRETERS:
        return False
    if any(redirect.operator.startswith("<<") for redirect in command.redirects):
        return True
    if name not in _SHELLS and name not in _INTERPRETERS:
        return False
    words = [word.value for word in command.words[1:]]
    has_script = any(not word.startswith("-") or word.startswith("--") for word in words)
    flag = "s" if name in _SHELLS else "i"  # the input besides a script, or in place of it
    return not has_script or any(
        word == "-" or _INPUT_FILE.search(word) or (re.match("-[A-Za-z]", word) and flag in word) for word in words
    )


def inner_line(command: ShellCommand) -> ParsedLine:
    """Return the commands that ``command`` itself would run, as far as its words tell. Raises :class:`Unparsable`."""
    name = os.path.basename(command.words[0].value) if command.words else ""
    words = command.words[1:]
    describes = name == "command" and bool(words) and words[0].value in ("-v", "-V")
    if _is_wrapper(name) and not describes:
        return _wrapped_command(name, words)
    if name in _WITH_SHELL_TEXT:
        return _shell_line(name, command)
    if name in ("eval", "trap"):
        line = parse(_joined(words) if name == "eval" else words[0].value if words else "")
        return ParsedLine(line.commands, [*line.doubts, f"{name}, which evaluates text"])
    if name in _EXEC_FLAGS:
        is_uncertain = any(_may_become_flag(name, word) for word in words)
        doubts = [f"{name} with words that may become flags"] if is_uncertain else []
        if any(word.value in ("-execdir", "-okdir") for word in words):
            doubts.append(f"{name}, which runs commands elsewhere")
        return ParsedLine(list(_exec_commands(words, _EXEC_FLAGS[name])), doubts)
    return _NOTHING


_NOTHING = ParsedLine([], [])


def _may_become_flag(name: str, word: Word) -> bool:
    """Return whether a word of find or fd may run a command that it does not show: by an expansion, or because it is a
    pattern and there are files with the names of flags."""
    if name != "find" and _EXEC_ATTACHED.fullmatch(word.value):
        return True
    if word.literal:
        return False
    if not word.static or _SEVERAL_WORDS.search(word.value):
        return True
    if name == "find":
        return any(fnmatchcase(action, word.value) for action in FIND_ACTIONS)
    return not re.match(r"[A-Za-z0-9_./]", word.text)


def _is_wrapper(name: str) -> bool:
    return name in _WRAPPERS or _LOADER.fullmatch(name) is not None


def _shell_line(name: str, command: ShellCommand) -> ParsedLine:
    """Return the commands in the text for another shell: behind ``-c``, in a heredoc, or in a here-string."""
    values = [word.value for word in command.words[1:]]
    text = _shell_text(values)
    bodies = [body for redirect in command.redirects for body in redirect.bodies]
    doubts: list[str] = []
    if name not in _SHELLS or bodies or (not text and reads_program_from_input(command)):
        doubts.append(f"{name}, which runs text from its input or as another user")
    elif text and (len(values) != 2 or not re.fullmatch(r"-[eluxc]+", values[0])):
        doubts.append(f"{name} with flags or arguments that its text may use")
    elif not all(word.literal for word in command.words):
        doubts.append(f"{name} with a text that is not literal")
    language = _SHELLS.get(name, "posix")
    commands: list[ShellCommand] = []
    for source in (text, *bodies):
        line = parse(source, language)
        commands += line.commands
        # The variables of the environment are considered with the other commands of the line.
        doubts += [*line.doubts, *line_doubts(line.commands, language, ())]
    return ParsedLine(commands, doubts)


def _wrapped_command(name: str, words: Sequence[Word]) -> ParsedLine:
    flags = _WRAPPERS.get(name, _NONE)
    doubts: list[str] = []
    index = 0
    while index < len(words) and words[index].value.startswith("-"):
        flag = words[index].value
        index += 1
        if flag == "--":
            break
        if name == "env" and _ENV_SPLIT_STRING.match(flag):
            attached = flag.partition("=")[2] if flag.startswith("--") else flag.partition("S")[2]
            line = parse(f"{attached} {_joined(words[index:])}")
            return ParsedLine(line.commands, [*line.doubts, "env -S, which splits text by rules of its own"])
        takes_next = _takes_next_word(flag, flags)
        if takes_next is None:
            doubts.append(f"{name} {flag}, which may take the next word")
        index += bool(takes_next)
    if name in _FIRST_IS_OWN:
        index += 1
    assignments = takewhile(lambda word: "=" in word.value, words[index:] if name in ("env", "sudo", "doas") else ())
    for assignment in assignments:
        if not is_harmless_variable(assignment.value.partition("=")[0]):
            doubts.append(f"{name} with a variable that may decide what the command does")
        index += 1
    rest = words[index:]
    doubts += [f"{name} with a word that may become the command" for word in words[:index] if not word.literal]
    if name in ("chroot", "parallel") or (name == "xargs" and rest and _depends_on_arguments(rest[0].value)):
        doubts.append(f"{name}, which runs a command from its input, or elsewhere")
    is_text = name in ("flock", "sg") and bool(rest) and rest[0].value in ("-c", "--command")
    line = parse(_joined(rest[1:2] if is_text else rest)) if is_text or name in _JOINING else None
    return ParsedLine(line.commands if line else list(_command_of(rest)), doubts + (line.doubts if line else []))


def _takes_next_word(flag: str, flags: _Flags) -> bool | None:
    """Return whether a flag of a wrapper takes the next word as its value; ``None`` if it is not known."""
    switches, *long_switches = flags.switches.split() or [""]
    if flag.startswith("--"):
        name, has_value, _ = flag[2:].partition("=")
        known = [*flags.names.split(), *long_switches]
        if has_value or name in long_switches:
            return False if name in known else None
        return True if name in flags.names.split() else None
    for at, letter in enumerate(flag[1:], 1):
        if letter in flags.letters:  # the rest of the word is its value
            return at == len(flag) - 1
        if letter not in switches:
            return None
    return False


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
