"""What the demo is made of: a project with a bug, the script that fixes it, and a place where neither can do harm."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

PROMPT = "The test fails. Find out why, and fix it."

_FILES = {
    "prices.py": '''"""What an order costs."""


def total(prices, discount=0.0):
    """The sum of the prices, less a discount between 0 and 1."""
    return round(sum(prices) * (1 + discount), 2)
''',
    "test_prices.py": """import unittest

from prices import total


class TotalTest(unittest.TestCase):
    def test_a_discount_is_taken_off(self):
        self.assertEqual(total([10, 30], discount=0.25), 30)


if __name__ == "__main__":
    unittest.main()
""",
}

_SCRIPT = """SPLIT word
DRIP PACE
THINK The test says what is expected, the code says what is done. I need both.
SAY I will read the code and run its test.
CALL read {"filePath": "prices.py"}
CALL bash {"command": "PYTHON -m unittest", "description": "Run the test"}
USAGE input=2140 output=96 reasoning=24 cache_write=1800
---
EXPECT last FAILED
SPLIT word
DRIP PACE
SAY The discount is added where it should be taken off: 40 becomes 50, not 30.
CALL edit {"filePath": "prices.py", "oldString": "(1 + discount)", "newString": "(1 - discount)"}
USAGE input=410 output=88 cache_read=3940
---
SPLIT word
DRIP PACE
SAY Now the test again.
CALL bash {"command": "PYTHON -m unittest", "description": "Run the test again"}
USAGE input=160 output=52 cache_read=4350
---
EXPECT last OK
SPLIT word
DRIP PACE
SAY Fixed: `total` raised the price by the discount instead of lowering it. The test passes.
USAGE input=130 output=34 cache_read=4510
---
TITLE Discount taken off, not added
"""


def script(pace: float) -> str:
    """What the model says, and how many seconds it takes for a word."""
    return _SCRIPT.replace("PACE", str(pace)).replace("PYTHON", _python())


def make(folder: str) -> bool:
    """Write the project; whether it is under version control, which takes git."""
    os.makedirs(folder)
    for name, text in _FILES.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    steps = (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Add prices"))
    return all(git(folder, *step) is not None for step in steps)


def git(folder: str, *arguments: str) -> str | None:
    """What git answers in ``folder``; ``None`` if it cannot, or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode(errors="replace")


@contextmanager
def secluded(folder: str) -> Generator[None]:
    """Everything that opensesh, OpenCode and git keep is in ``folder``; nothing of the user's is read or written."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("OPENSESH_", "OPENCODE_", "GIT_", "XDG_")):
            del os.environ[name]
    kept = {f"XDG_{kind.upper()}_HOME": os.path.join(folder, kind) for kind in ("data", "state", "config", "cache")}
    people = {f"GIT_{role}_{what}": "demo" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    os.environ |= {
        **kept,
        **people,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "OPENSESH_TEST_HOME": folder,
        "OPENSESH_TEST_MANAGED_CONFIG_DIR": os.path.join(folder, "config", "managed"),
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), before.get("PATH", os.defpath))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _python() -> str:
    """This Python, by the shortest name under which a shell finds it; fit for a JSON string."""
    import json
    import shlex
    import shutil

    folder = os.path.dirname(sys.executable)
    name = next((name for name in ("python3", "python") if shutil.which(name, path=folder)), None)
    return name or json.dumps(shlex.quote(sys.executable))[1:-1]
