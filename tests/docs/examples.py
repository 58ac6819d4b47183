"""The examples of a page: how they are found, run and compared.

A ``console`` block is run line by line: a line that begins with ``$ `` is a command (``> `` continues it), and what
follows it is what it prints, on both streams. A ``python`` block is run as a program; one with a title is put into a
file of that name, for a command below it. ``<!-- not run: why -->`` right above a block leaves it out;
``<!-- figures vary -->`` says that its numbers need not be the same.

What is printed is compared roughly: identifiers, moments, lasting times and the width of gaps do not matter. A line
``...`` stands for any lines, and ``...`` in a line for anything.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .example_environment import ExampleEnvironment

_BLOCK = re.compile(
    r"(?:^<!-- (?:not run: (?P<why>.+?)|(?P<vary>figures vary)) -->\n+)?"
    r"^```(?P<kind>console|python)(?P<more>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_ROUGHLY = (
    (re.compile(r"\b(ses|msg|prt|call|que|per)_[0-9A-Za-z_]{8,}"), r"\1_ID"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?"), "MOMENT"),
    (re.compile(r"\b20\d\d-\d\d-\d\d-\d{6}-[0-9a-f]{6}\b|\b20\d{6}T?-?\d{6}-[0-9a-f]{6}\b"), "STAMP"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "LASTING"),
    (re.compile(r"\b1[789]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"\$[\d.]+  [\d,]+ tokens in .*"), "TALLY"),
    (re.compile(r"\(pid \d+ on [^)]+\)"), "(pid N on HOST)"),
    (re.compile(r"\b[0-9a-f]{11}…|\b[0-9a-f]{40}\b"), "HASH"),
    (re.compile(r"[ \t]+"), " "),
)
_FIGURES = re.compile(r"\d[\d,.]*[KM%]?[ ▏▎▍▌▋▊▉█]*")
_STATE = 'code=$?; pwd > "$WORLD_STATE/pwd"; export -p > "$WORLD_STATE/env"; exit $code'


class Block(NamedTuple):
    """An example."""

    page: str
    line: int
    kind: str
    text: str
    title: str | None
    why_not: str | None
    """Why it is not run; ``None`` if it is."""
    figures_vary: bool

    @property
    def first(self) -> str:
        return self.text.splitlines()[0]

    @property
    def is_run(self) -> bool:
        return self.why_not is None and not self.text.startswith("$ python3 dev.py ")  # what runs these very tests


class Command(NamedTuple):
    """A line to be typed, and what it prints."""

    words: str
    expected: list[str]


def blocks(page: Path, name: str) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            name,
            text.count("\n", 0, result.start("kind")) + 1,
            result["kind"],
            result["text"],
            title[1] if (title := _TITLE.search(result["more"])) else None,
            result["why"],
            result["vary"] is not None,
        )
        for result in _BLOCK.finditer(text)
    ]


def commands(text: str) -> Iterator[Command]:
    words, expected = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if words:
                yield Command(words, expected)
            words, expected = line[2:], []
        elif line.startswith("> ") and not expected and words:
            words += f"\n{line[2:]}"
        else:
            assert words, f"{line!r} comes before any command"
            expected.append(line)
    if words:
        yield Command(words, expected)


class Reader:
    """Runs the examples of a page from top to bottom, as a user who types them."""

    def __init__(self, world: ExampleEnvironment, state: Path) -> None:
        self.world = world
        self._state = state
        state.mkdir()
        (state / "pwd").write_text(str(world.shop))
        binaries = f"{Path(sys.executable).parent}:{world.environ['PATH']}"
        self._environ = world.environ | {"PATH": binaries, "WORLD_STATE": str(state)}

    def follow(self, block: Block) -> None:
        if block.title is not None:
            (self.folder / block.title).write_text(block.text, "utf-8")
        elif block.kind == "python":
            self._compare(block, Command("", []), self._run([sys.executable, "-c", block.text]))
        else:
            for command in commands(block.text):
                remembered = f'[ -e "$WORLD_STATE/env" ] && . "$WORLD_STATE/env"\n{command.words}\n{_STATE}'
                self._compare(block, command, self._run(["bash", "-c", remembered]))

    @property
    def folder(self) -> Path:
        return Path((self._state / "pwd").read_text().strip())

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )

    def _compare(self, block: Block, command: Command, done: subprocess.CompletedProcess[str]) -> None:
        shown = done.stdout.replace(str(self.world.home), "/home/ada")
        where = f"{block.page}, line {block.line}: {command.words or 'python'}\n{shown}"
        assert done.returncode == 0, f"exit code {done.returncode} in {where}"
        expected, printed = command.expected, shown.splitlines()
        if block.figures_vary:
            expected, printed = ([_FIGURES.sub("N ", _rough(line)) for line in lines] for lines in (expected, printed))
        assert not command.expected or fits(expected, printed), f"not what is printed in {where}"


def fits(expected: Sequence[str], printed: Sequence[str]) -> bool:
    pattern = "".join("(?:.*\n)*?" if line.strip() == "..." else f"{_line(line)}\n" for line in _trimmed(expected))
    return re.fullmatch(pattern, "".join(f"{_rough(line)}\n" for line in _trimmed(printed))) is not None


def _line(line: str) -> str:
    return ".*".join(re.escape(piece) for piece in _rough(line).split("..."))


def _rough(line: str) -> str:
    for pattern, mark in _ROUGHLY:
        line = pattern.sub(mark, line)
    return line.strip()


def _trimmed(lines: Sequence[str]) -> list[str]:
    return "\n".join(lines).strip("\n").split("\n")
