from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .example_environment import ExampleEnvironment
from .examples import Block, Reader, blocks, commands, fits

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
EXAMPLES = {name: result for name, path in PAGES.items() if (result := blocks(path, name))}
NOT_RUN = {
    ("docs/quick-start.md", "$ pipx install ."): "fetches packages from the network",
    ("docs/quick-start.md", '$ opensesh run "Why does the parser test fail?"'): "needs a key",
}
"""Every block that is not run, by its page and its first line, and why."""
ELSEWHERE = {"docs/history.md": "tests/docs/test_history_page.py", "docs/plugins.md": "tests/plugins/test_example.py"}
"""Pages whose examples need data of their own, and the tests that run them with it."""

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the examples are for a POSIX shell"),
    pytest.mark.timeout(600),  # each runs many commands
]


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ELSEWHERE.keys()))
def test_every_example_of_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    reader = Reader(ExampleEnvironment(tmp_path / "ada"), tmp_path / "state")
    for block in EXAMPLES[name]:
        if block.is_run:
            reader.follow(block)


def test_the_examples_that_are_not_run_are_the_known_ones() -> None:
    left_out = {
        (item.page, item.first): item.why_not for result in EXAMPLES.values() for item in result if item.why_not
    }
    assert left_out == NOT_RUN


def test_pages_that_are_tested_elsewhere_are_tested_there() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text("utf-8")


def test_no_example_hides_from_this_test() -> None:
    fence = re.compile(r"^[ \t]*[`~]{3,}[ \t]*(?:console|python|py|sh|bash|shell)\b", re.MULTILINE)
    for name, path in PAGES.items():
        assert len(fence.findall(path.read_text("utf-8"))) == len(EXAMPLES.get(name, [])), name


def test_the_documented_commands_of_dev_py_exist() -> None:
    known = (ROOT / "dev.py").read_text("utf-8")
    for result in EXAMPLES.values():
        for block in result:
            if block.text.startswith("$ python3 dev.py "):
                assert all(f"python3 dev.py {command.words.split()[2]} " in known for command in commands(block.text))


def test_a_program_that_is_put_into_a_file_is_run_from_there() -> None:
    for result in EXAMPLES.values():
        for path, block in enumerate(result):
            if block.title is not None and block.kind == "python":
                assert any(_runs(later, block.title) for later in result[path + 1 :]), block


def _runs(block: Block, name: str) -> bool:
    return block.kind == "console" and name in block.text


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["1 session."], ["2 sessions."]),
        (["one", "..."], ["two"]),
        (["one"], ["one", "two"]),
        (["cost $0.02"], ["cost $0.03"]),
        (["ses_00000000000000000000000000 A"], ["ses_11111111111111111111111111 B"]),
    ],
)
def test_what_differs_is_seen(expected: list[str], printed: list[str]) -> None:
    assert not fits(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["one", "...", "four"], ["one", "two", "three", "four"]),
        (["... of ... sessions"], ["3 of 12 sessions"]),
        (["ses_00000000000000000000000000   A"], ["ses_11111111111111111111111111 A"]),
        (["took 12 ms"], ["took 1.4 s"]),
    ],
)
def test_what_differs_from_one_run_to_the_next_does_not_matter(expected: list[str], printed: list[str]) -> None:
    assert fits(expected, printed)
