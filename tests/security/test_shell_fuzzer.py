from __future__ import annotations

import shutil

import pytest

from opensesh.tools.shell.sandbox import find_lock

from .shell_fuzzer import LineGenerator, line_runner, search

pytestmark = pytest.mark.skipif(find_lock() is None, reason="runs lines behind a sandbox only")
SHELLS = [name for name in ("bash", "dash", "zsh") if shutil.which(name)]


def test_no_generated_line_has_an_effect_that_no_rule_was_asked_about() -> None:
    counts, findings = search(600, 7, SHELLS)
    assert findings == []
    assert sum(counts[f"{shell} run"] for shell in SHELLS) > 20


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_line_of_a_hundred_thousand_has_an_effect_that_no_rule_was_asked_about() -> None:
    _, findings = search(100_000, 1, SHELLS)
    assert findings == []


def test_the_search_notices_an_effect() -> None:
    with line_runner() as runner:
        assert runner.effect("sh", "ls") == ""
        assert runner.effect("sh", "touch pwned") == "pwned"
        assert runner.effect("sh", "rm victim") == "victim"
        assert runner.effect("sh", "echo x > victim") == "victim"


def test_lines_are_the_same_for_the_same_seed() -> None:
    lines = [LineGenerator(3).line() for _ in range(2)]
    assert lines[0] == lines[1]
