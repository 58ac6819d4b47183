from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"<!-- (tests/\S+\.py)::(\w+) -->")


def section(page: str, heading: str) -> str:
    return (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0].strip()


def readme_promises() -> list[str]:
    return re.split(r"\n(?=- )", section("README.md", "Promises"))


def security_promises() -> list[str]:
    rows = [line for line in section("docs/security.md", "Trust").splitlines() if line.startswith("| ")]
    return rows[2:]  # without the heading


PROMISES = [*readme_promises(), *security_promises()]


def first_words(promise: str) -> str:
    return promise.strip("-| ")[:40]


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_there_are_promises_to_check() -> None:
    assert len(readme_promises()) >= 7
    assert len(security_promises()) >= 12


@pytest.mark.parametrize("promise", PROMISES, ids=first_words)
def test_every_promise_names_tests_that_exist(promise: str) -> None:
    tests = TEST.findall(promise)
    assert tests, f"no test is named after: {promise}"
    for file, name in tests:
        assert name in functions(ROOT / file), f"{file} has no {name}"
