"""The world that the examples of the documentation live in: a home with two projects and some months of history."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opensesh import project
from tests.conftest import FIXTURES
from tests.history.sample_tree import Json, Sample

_PRICES = '''"""What an order costs."""


def total(prices, discount=0.0):
    """The sum of the prices, less a discount between 0 and 1."""
    return round(sum(prices) * (1 + discount), 2)
'''
_TEST = """import unittest

from prices import total


class TotalTest(unittest.TestCase):
    def test_a_discount_is_taken_off(self):
        self.assertEqual(total([10, 30], discount=0.25), 30)
"""
_SONNET = {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
_TOKENS = {"input": 2_400, "output": 310, "reasoning": 0, "cache": {"read": 18_000, "write": 1_200}}


class ExampleEnvironment:
    """Everything an example may touch. ``environ`` is what its processes get."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = _environ(home)
        home.mkdir(parents=True)
        self.write(
            ".gitconfig", "[user]\n\tname = Ada\n\temail = ada@example.invalid\n[init]\n\tdefaultBranch = main\n"
        )
        self.write(".config/opencode/opencode.json", json.dumps({"model": "scripted/prompt"}))
        self.shop = self._repository("eastore", {"prices.py": _PRICES, "test_prices.py": _TEST})
        self.notes = self._repository("reading-list", {"books.md": "# Books\n"})
        self._history()
        self.write("eastore/other.json", json.dumps(_exported("ses_e1f503b9bffe3fk9XpM2JtHmpJ")))
        (home / "backup").mkdir()
        shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", home / "backup" / "opencode.db")

    def write(self, name: str, text: str) -> None:
        """A file below the home folder."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def _repository(self, name: str, files: dict[str, str]) -> Path:
        folder = self.home / name
        for file, text in files.items():
            self.write(f"{name}/{file}", text)
        for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Begin")):
            subprocess.run(["git", *words], cwd=folder, env=self.environ, check=True)
        return folder

    def _history(self) -> None:
        made = _SampleSessions(self.home / ".local" / "share" / "opencode" / "storage")
        shop, notes = made.project(self.shop), made.project(self.notes)
        policy = made.begin("2026-08-12T09:14", "Retry policy of the payment client", shop, slug="patient-otter")
        made.prompt(policy, "What is the retry policy of the payment client? It gives up too early.")
        first = made.answer(policy, "It tries twice, without a pause. I would wait longer each time.", cost=0.0211)
        made.called(first, "read", {"filePath": f"{self.shop}/payments.py"}, "1: RETRIES = 2")
        made.prompt(policy, "Do that, five times at most.")
        second = made.answer(policy, "Done: five tries, and each waits twice as long as the one before.", cost=0.0347)
        edit = {"filePath": f"{self.shop}/payments.py", "oldString": "RETRIES = 2", "newString": "RETRIES = 5"}
        made.called(second, "edit", edit, "Edited payments.py")
        child = made.begin("2026-08-12T09:20", "Find callers (@explore subagent)", shop, parent=policy["id"])
        made.prompt(child, "Find every caller of pay().", agent="explore")
        made.answer(child, "There are two: checkout.py and refunds.py.", cost=0.0049, agent="explore")
        rounding = made.begin("2026-09-03T15:40", "Rounding of discounts", shop, slug="round-penny")
        made.prompt(rounding, "Why is 0.1 + 0.2 not 0.3 on the invoice?")
        made.answer(rounding, "Binary fractions. Use Decimal, and round once, at the end.", cost=0.0158)
        books = made.begin("2026-10-02T20:05", "Sort the reading list", notes, slug="quiet-shelf")
        made.prompt(books, "Sort books.md by author.")
        made.answer(books, "Sorted. Two books had no author; they are at the end.", cost=0.0093)
        flaky = made.begin("2026-11-04T11:31", "Checkout test is flaky", shop, slug="nimble-falcon")
        made.prompt(flaky, "test_checkout fails now and then. Why?")
        made.answer(flaky, "It relies on the order of a set. Sort before you compare.", cost=0.0126)


class _SampleSessions(Sample):
    """Sessions with names and moments that do not change from one run to the next."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.path("project", "proj").unlink()

    def project(self, folder: Path) -> Json:
        path = project.resolve(folder)
        times = {"created": self.clock, "updated": self.clock}
        self.write(
            ("project", path.id),
            {"id": path.id, "worktree": path.worktree, "vcs": "git", "sandboxes": [], "time": times},
        )
        return {"project": path.id, "directory": path.directory}

    def begin(self, moment: str, title: str, filed: Json, *, parent: str = "", slug: str = "calm-river") -> Json:
        self.clock = int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)
        return self.session(title, parent=parent, slug=slug, **filed)

    def answer(self, session: Json, text: str = "", *, cost: float = 0, **more: Any) -> Json:
        parent = self.messages(session)[-1]["id"]
        where = {"cwd": session["directory"], "root": session["directory"]}
        own = {"parentID": parent, "path": where, "tokens": _TOKENS, **_SONNET}
        return super().answer(session, text, cost=cost, **own, **more)

    def called(self, answer: Json, tool: str, arguments: Json, output: str) -> None:
        self.tool(answer, tool, input=arguments, output=output, title=Path(str(arguments["filePath"])).name)


def _exported(session: str) -> Json:
    """A session of a colleague's, as ``opencode export`` prints it."""
    tree = FIXTURES / "opencode-1.1.65" / "storage"

    def records(*below: str) -> list[Json]:
        return [json.loads(path.read_bytes()) for path in sorted(tree.joinpath(*below).glob("*.json"))]

    messages = [{"info": info, "parts": records("part", info["id"])} for info in records("message", session)]
    return {"info": json.loads(next(tree.glob(f"session/*/{session}.json")).read_bytes()), "messages": messages}


def _environ(home: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "OPENSESH_", "OPENCODE_"))
    }
    own = {
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_AUTHOR_DATE": "2026-08-01T08:00:00Z",
        "GIT_COMMITTER_DATE": "2026-08-01T08:00:00Z",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "error",
    }
    return kept | own
