"""Fuzzer for the analysis of command lines: generates lines, runs those that rules would let pass, looks for effects.

Lines come from a grammar of ordinary commands, of everything in which a shell evaluates text, and of random changes to
the result. A line that the analysis lets pass without a question runs in a real shell, in a folder of its own behind a
sandbox. Every command that the rules allow only reads, so that any change in the folder is an effect that the rules
were not asked about. Run as a program for a long search::

    python -m tests.security.shell_fuzzer --lines 100000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from opensesh.config.rules import decide, rules
from opensesh.config.schema import Action
from opensesh.errors import PermissionDeniedError
from opensesh.permissions import may_be_denied
from opensesh.tools.shell.effects import analyse_command
from opensesh.tools.shell.known_commands import shell_language
from opensesh.tools.shell.sandbox import SandboxPolicy, find_lock, sandboxed_arguments

READERS = "ls echo cat true false pwd wc head printf test [ : type find".split()
DESCRIPTORS = "/dev/stdin /dev/stdout /dev/stderr /dev/fd/0 /dev/fd/1 /dev/fd/3 /proc/self/fd/3".split()
FLAGS = """-c -n -i -s -u -a -I -E -P -S -0 -t 5 1 ls --process-slot-var=PATH --replace=ls --arg-file=victim --chdir=0
--unset=PATH --foreground --adjustment=5 --signal=9""".split()
SHELL_WORDS = "read export set command exec wait shift exit return break continue umask jobs".split()
SHELLS = "bash sh zsh dash".split()
WRAPPERS = [*"env nice timeout xargs nohup".split(), *SHELLS]
ALLOWED = (
    *(f"{name} *" for name in (*READERS, *SHELL_WORDS, *WRAPPERS) if name not in SHELLS),
    *(f"{name} -c *" for name in SHELLS),  # a file that is named would be a program
    *(f"{name}=* {reader} *" for name in ("x", "FOO") for reader in READERS),
    *("IFS= read *", "cd *", "x=*", "y=*", "> *", "< *"),
)
WRITING_FLAGS = ("find *-delete*", "find *-f*")
COMMANDS: dict[str, Action] = {"*": "ask", **dict.fromkeys(ALLOWED, "allow"), **dict.fromkeys(WRITING_FLAGS, "ask")}
RULES = rules({"bash": COMMANDS, "edit": "deny", "external_directory": "deny"}, "/")

PAYLOADS = ["touch pwned", "rm victim", "echo x >pwned", "cp victim pwned", ": >victim"]
PROGRAMS = PAYLOADS[:2]
"""Payloads that need no shell."""
SPECIAL = """RANDOM SECONDS OPTIND HISTCMD HOME PATH IFS PS4 ENV BASH_ENV LINENO UID EUID SHLVL BASH_ARGV0 BASH_CMDS
BASH_ALIASES EPOCHSECONDS COLUMNS TMOUT path functions commands aliases argv status fpath cdpath CDPATH GLOBIGNORE
BASHPID SRANDOM DIRSTACK FUNCNEST MAILCHECK OPTARG REPLY _ NULLCMD READNULLCMD TMPPREFIX LD_PRELOAD GIT_PAGER""".split()
NAMES = ["x", "y", "a", "b", "FOO", "name"]
TEXT = ["a", "-l", "victim", "sub", "*", "*.txt", "'a b'", '"a b"', "a\\ b", "--", "-", "1", "~", "{a,b}", "a=b", "[a]"]


_CORPUS: dict[str, list[str]] = json.loads((Path(__file__).parent / "shell_lines.json").read_text())
KNOWN_ATTACKS = [line for lines in _CORPUS.values() for line in lines if len(line) < 300]


class Finding(NamedTuple):
    """A line that had an effect without a question."""

    shell: str
    line: str
    effect: str


class LineGenerator:
    """Generates command lines, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def line(self) -> str:
        if self._chance(0.2):
            known = self._random.choice(KNOWN_ATTACKS)
            text = self._mutated(known.replace("touch canary", self._pick(*PAYLOADS)))
        elif self._chance(0.2):
            return self._plain()
        else:
            text = self._list(3)
        while self._random.random() < 0.25:
            text = self._mutated(text)
        return text

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _mutated(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        piece = self._pick(
            *"$`'\"\\;&|<>(){}[]=!#~*?@^%:+-, \n\t", "$(", "${", "$((", "((", "[[", "]]", "<<", ">(", "@P",
            "\\\n", "\\\n", "\r", "\x01", "\x7f", "\x85", "\xa0", "\u200b", "\udc81", "\udc88", ";;&",
            "esac", "%n", "{fd}",
        )  # fmt: skip
        match self._random.randrange(4):
            case 0:
                return text[:at] + piece + text[at:]
            case 1:
                return text[:at] + text[at + self._random.randint(1, 3) :]
            case 2:
                other = self._random.randrange(len(text) + 1)
                low, high = min(at, other), max(at, other)
                return text[:low] + text[low:high] + text[low:]
            case _:
                return text[:at] + piece + text[at + 1 :]

    def _plain(self) -> str:
        """Return a line of ordinary commands and files: most of these run, and tell about descriptors and flags."""
        pieces: list[str] = []
        for _ in range(self._random.choice((1, 1, 2))):
            words = [
                self._pick(*READERS[:4], "printf", "find .", f"bash -c '{self._pick('ls', 'cat')}'"),
                self._pick("", "a", "1"),
            ]
            if self._chance(0.4):
                flags = [self._pick(*FLAGS) for _ in range(self._random.randint(0, 2))]
                words = [self._pick(*WRAPPERS), *flags, *words]
            for _ in range(self._random.choice((0, 1, 2, 2))):
                operator = self._pick("<", "<", ">", ">", ">>", "<>", ">|")
                target = (
                    self._pick("victim", "/dev/null", *DESCRIPTORS)
                    if operator != "<"
                    else self._pick("victim", "a.txt")
                )
                words.append(f"{self._pick('', '', '1', '2', '3')}{operator}{target}")
            command = " ".join(words)
            pieces.append(self._pick(command, command, f"{{ {command}; }} 3<victim", f"({command}) <victim"))
        return self._pick("; ", " | ", " && ").join(pieces)

    def _list(self, depth: int) -> str:
        count = self._random.choice((1, 1, 1, 2, 2, 3))
        pieces = [self._command(depth) for _ in range(count)]
        text = pieces[0]
        for piece in pieces[1:]:
            text += self._pick("; ", " && ", " || ", " | ", "\n", " & ", ";") + piece
        return text

    def _command(self, depth: int) -> str:
        if depth > 0 and self._chance(0.2):
            return self._compound(depth - 1)
        if self._chance(0.1):
            return self._search_of_files()
        if depth > 0 and self._chance(0.1):
            return self._text_behind_a_command(depth - 1)
        if self._chance(0.2):
            return " ".join(self._assignment(depth) for _ in range(self._random.randint(1, 2)))
        return self._simple(depth)

    def _search_of_files(self) -> str:
        """find, with flags that the shell makes of other words."""
        words = ["-exec", *self._pick(*PROGRAMS).split(), "\\;"]
        flag = self._pick(
            "-e*", "-exe?", "-e[x]ec", "''-exec*", "{-exec,}", "*", '"$x"', "$x", "$y$x", "${x}", "-execd*"
        )
        return self._pick(
            f"find . -maxdepth 0 {{{','.join(words)}}}",
            f"x='a -o {' '.join(words[:-1])} ;'; find . -maxdepth 0 {self._pick('-name', '-path', '')} $x",
            f"x=-exec; find . -maxdepth 0 {self._pick('', '-name', '-newer -name')} {flag} {' '.join(words[1:])}",
            f"cd options && find . {flag} {' '.join(words[1:])}",
            f"find . {self._word(0)} {self._word(0)}",
        )

    def _text_behind_a_command(self, depth: int) -> str:
        """A heredoc, a case or a test whose end the shell may see elsewhere."""
        body, delimiter = self._pick(*PAYLOADS), self._pick("E", "'E'", '"E"', "\\E", "E\\\n", "$E", "-E")
        operator = self._pick("<<", "<<-", "<\\\n<", "<<\\\n", "<<\\\n-", "<<\t", "<<- ")
        end = self._pick("E", "\tE", "E)", "E ", "-E", "$E", "\\\nE", "E;", "E\\\n", "E " + body + ")")
        word = self._pick("esac", "es\\\nac", "]]", "]\\\n]", "done", "do\\\nne", "fi", "}", "}\\\n")
        return self._pick(
            f"cat {operator}{delimiter}\n{end}\n{body}\n{delimiter}\nE\n",
            f"echo $(cat {operator}{delimiter}\n{end}\n{body}\nE\n)",
            f"cat <(cat {operator}{delimiter}\n{end} {body})\nE\n)",
            f"[[ a {word} && {body} && [[ b ]]",
            f"(case x in x) ls;; {word} | {body.split()[0]} | cat)\n{self._list(depth)};; esac)",
            f"printf '{self._pick('', '12')}%{self._pick('', '1', '-1')}n' {self._name()}; {self._list(depth)}",
            f'echo "${self._name()}\\\n[{self._name()}]"',
        )

    def _simple(self, depth: int) -> str:
        words = [self._assignment(depth)] if self._chance(0.1) else []
        words.append(self._command_name(depth))
        words += [self._word(depth) for _ in range(self._random.randint(0, 3))]
        while self._chance(0.25):
            words.insert(self._random.randrange(len(words) + 1), self._redirection(depth))
        return " ".join(words)

    def _command_name(self, depth: int) -> str:
        match self._random.randrange(12):
            case 0:
                return self._pick(*SHELL_WORDS)
            case 1:
                flags = " ".join(self._pick(*FLAGS) for _ in range(self._random.randint(0, 2)))
                return f"{self._pick(*WRAPPERS)} {flags} {self._pick(*READERS)}"
            case 2:
                return self._pick("declare -i", "let", "unset", "eval", "trap", "mapfile", "local", "typeset", "alias")
            case 3:
                return self._word(depth)
            case 4:  # a command as the argument of an option
                flag = self._pick(*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
                return f"{self._pick(*SHELL_WORDS, *READERS)} -{flag} {self._pick(*PAYLOADS)}"
            case _:
                return self._pick(*READERS)

    def _payload(self) -> str:
        command = self._pick(*PAYLOADS)
        forms = (
            "$({})",
            "`{}`",
            "a[$({})]",
            "a[`{}`]",
            "{}",
            "$(({}))",
            "${{x:-$({})}}",
            "*(e:{}:)",
            "x[$({})]=1",
            "-v a[$({})]",
        )
        return self._pick(*forms).format(command)

    def _quoted_payload(self) -> str:
        payload = self._payload()
        form = self._random.randrange(5)
        if form == 0:
            return "$'" + payload.replace("$", "\\x24").replace("'", "") + "'"
        if form == 1:
            return "".join("\\" + char for char in payload)
        if form == 2:
            return '"' + payload.replace("$", "\\$").replace("`", "\\`") + '"'
        return f"'{payload}'"

    def _word(self, depth: int) -> str:
        match self._random.randrange(9):
            case 0 | 1:
                return self._quoted_payload()
            case 2 | 3:
                return self._expansion(depth)
            case 4:
                return f'"{self._pick("", "a ", "x=")}{self._expansion(depth)}{self._pick("", "b", "[a]", ":h")}"'
            case 5:
                return self._pick(*TEXT) + self._expansion(depth)
            case _:
                return self._pick(*TEXT)

    def _name(self) -> str:
        return self._pick(*SPECIAL) if self._chance(0.15) else self._pick(*NAMES)

    def _expansion(self, depth: int) -> str:
        name = self._name()
        if depth > 0 and self._chance(0.1):
            inner = self._list(depth - 1)
            return self._pick(f"$({inner})", f"`{inner}`", f"<({inner})", f"$(< {self._word(0)})", f"$(({name}+1))")
        operator = self._pick(
            "", "", "", "", "@P", "@Q", "@A", ":-a", "-a", ":=a", ":+a", "%a", "##*a", "%%.*", "/a/b", ":1", ":a",
            "[a]", "[@]", "^^", "[$x]", ":$x", "//a/$x", ":-$x", "%$x",
        )  # fmt: skip
        prefix = self._pick("", "", "", "", "#", "!", "(e)", "~", "=", "+", "^")
        plain = self._pick(f"${name}", f"${{{name}}}", "$1", "$@", "$*", "$#", "$?", "$!", "$-", "$$", "$0", "$")
        return self._pick(plain, plain, f"${{{prefix}{name}{operator}}}", f"$[{name}]", f"$(({name}))", "$(( 1 + 2 ))")

    def _assignment(self, depth: int) -> str:
        name, value = self._name(), self._pick(self._word(depth), self._quoted_payload(), "a", "1", "")
        target = self._pick("", "", "", "", "", "[a]", f"[{self._quoted_payload()}]", "[1]", "[$x]")
        operator = self._pick("=", "=", "=", "+=")
        return f"{name}{target}{operator}{self._pick(value, value, value, f'({value})', f'([{value}]=1)')}"

    def _redirection(self, depth: int) -> str:
        descriptor = self._pick(
            "", "", "", "2", "1", "3", "10", "{x}", "{x[a]}", f"{{x[{self._quoted_payload()}]}}", "{PATH}"
        )
        operator = self._pick(">", ">>", "<", ">&", "<&", "<>", ">|", "&>", "<<<", "<<", ">")
        target = self._pick(
            "/dev/null", "/dev/null", "1", "2", "victim", "victim", "pwned", self._pick(*DESCRIPTORS),
            self._pick(*DESCRIPTORS), self._word(0), self._expansion(0),
        )  # fmt: skip
        if operator == "<<":
            return f"<<{self._pick('E', 'E', repr('E'))}\n{self._word(depth)}\n{self._expansion(0)}\nE\n"
        return f"{descriptor}{operator}{self._pick('', ' ')}{target}"

    def _compound(self, depth: int) -> str:
        body, other = self._list(depth), self._list(depth)
        test = self._pick(
            f"[[ {self._word(0)} {self._pick('-eq', '==', '=~', '<', '-nt')} {self._word(0)} ]]",
            f"[[ {self._pick('-v', '-n', '-z', '-f', '-o')} {self._word(0)} ]]",
            f"(({self._pick('', ' ')}{self._pick(self._name(), *READERS[:3])} ))",
            f"(( {self._quoted_payload()} ))",
            f"[ {self._word(0)} {self._pick('-eq', '=', '!=', '-lt')} {self._word(0)} ]",
            f"[ {self._pick('-v', '-n', '-z', '-f')} {self._word(0)} ]",
            "false",
        )
        words = " ".join(self._word(0) for _ in range(2))
        return self._pick(
            f"({body})",
            f"{{ {body}; }}",
            f"if {test}; then {body}; else {other}; fi",
            f"for {self._name()} in {words}; do {body}; done",
            f"for {self._name()} in {words}; do {body}; done",
            f"case {self._word(0)} in {self._pick('a', '*', self._expansion(0))}) {body};; esac",
            f"{test} && {body}",
            f"! {body}",
            f"f() {{ {body}; }}; f",
            f"function f {{ {body}; }}; f",
            f"{{ {body} }} always {{ {other} }}",
            f"coproc {body}",
            f"time {body}",
            f"select {self._name()} in {words}; do {body}; break; done",
            f"while read -r {self._pick(self._name(), *READERS[:3])}; do {body}; done < victim",
            f"read -r {self._pick(*NAMES, *READERS[:3])} < victim; {body}",
            f"alias ls='{self._pick(*PAYLOADS)}'\n{body}",
            f"repeat 1 {body}",
            f"for ((x=0; x<1; x++)); do {body}; done",
        )


def is_let_pass(line: str, shell: str, directory: str, environment: dict[str, str]) -> bool:
    """Whether the rules let the line run without a question, as the bash tool asks them."""
    effects = analyse_command(line, directory, shell_language(shell), environment)
    inside = all(os.path.realpath(path).startswith(os.path.realpath(directory)) for path in effects.paths)
    if effects.writes or effects.any_write or effects.any_path or not inside:
        return False
    try:
        if may_be_denied("bash", effects.patterns, effects.possible, RULES, effects.forms):
            return False
    except PermissionDeniedError:
        return False
    return all(decide("bash", pattern, RULES).action == "allow" for pattern in effects.patterns)


def _is_passed_on(line: str) -> bool:
    """Whether a shell can be given the line."""
    try:
        os.fsencode(line)
    except UnicodeEncodeError:
        return False
    return "\0" not in line


class LineRunner:
    """A process in the sandbox that runs lines and reports what they changed."""

    def __init__(self, folder: Path) -> None:
        self.project = str(folder / "project")
        self.environment = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        os.makedirs(self.environment["HOME"])
        lock = find_lock()
        assert lock is not None, "the fuzzer runs lines behind a sandbox only"
        arguments = sandboxed_arguments(
            [sys.executable, "-I", "-S", str(Path(__file__).parent / "line_runner.py"), self.project],
            SandboxPolicy(writable=(str(folder),), strict=False),
            lock,
        )
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment, text=True
        )

    def effect(self, shell: str, line: str) -> str:
        """What the line changed; empty if nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([shutil.which(shell), line]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def line_runner() -> Generator[LineRunner]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        runner = LineRunner(Path(folder))
        try:
            yield runner
        finally:
            runner.close()


def search(lines: int, seed: int, shells: list[str]) -> tuple[Counter[str], list[Finding]]:
    """Generate lines for each shell in turn; return how many were generated and run, and what was found."""
    generator, counts, findings = LineGenerator(seed), Counter[str](), list[Finding]()
    with line_runner() as runner:
        for number in range(lines):
            shell, line = shells[number % len(shells)], generator.line()
            counts[f"{shell} generated"] += 1
            if not _is_passed_on(line) or not is_let_pass(line, shell, runner.project, runner.environment):
                continue
            counts[f"{shell} run"] += 1
            if effect := runner.effect(shell, line):
                findings.append(Finding(shell, line, effect))
    return counts, findings


def main() -> int:
    parser = argparse.ArgumentParser(description="search for lines with effects that no rule was asked about")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shells", default="bash,dash,zsh")
    options = parser.parse_args()
    counts, findings = search(options.lines, options.seed, options.shells.split(","))
    print(json.dumps(counts))
    for finding in findings:
        print(json.dumps(finding._asdict()))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
