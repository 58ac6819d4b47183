from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"<!-- (tests/\S+\.py)::(\w+) -->")
TEST_FILE = re.compile(r"`(tests/\S+\.py)`")


def section(page: str, heading: str) -> str:
    return (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0].strip()


def readme_promises() -> list[str]:
    return re.split(r"\n(?=- )", section("README.md", "Promises"))


def security_promises() -> list[str]:
    rows = [line for line in section("docs/security.md", "Trust").splitlines() if line.startswith("| ")]
    return rows[2:]  # without the heading


def security_statements() -> list[str]:
    # Every paragraph and list item that says what holds; a section with a promise in one paragraph names its tests in
    # another. What explains or limits a promise is not one.
    statements: list[str] = []
    for name in re.findall(r"^## (.+)", (ROOT / "docs/security.md").read_text(), re.MULTILINE):
        text = re.sub(r"```.*?```", "", section("docs/security.md", name), flags=re.DOTALL)
        promised = re.split(r"\*\*(?:Not promised|Limits)\.\*\*", text)[0]
        if re.search(r"\*\*Promised?\.\*\*", promised):
            statements.append(text)
        if name not in ("Sandbox", "Plan mode"):
            kept = [item.strip() for item in re.split(r"\n\n|\n(?=- )", promised)]
            statements += [item for item in kept if re.match(r"(?!\*\*|\||A store, |Redaction cannot)\S", item)]
    return statements


def server_promises() -> list[str]:
    lists = [section(page, "Security") for page in ("docs/server.md", "docs/web.md")]
    return [item for text in lists for item in re.split(r"\n\n|\n(?=- )", text) if item.startswith("- ")]


def concept_promises() -> list[str]:
    pages = [(ROOT / "docs/concepts" / page).read_text() for page in ("cost.md", "revert.md")]
    texts = [re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in pages]
    return [item for text in texts for item in re.split(r"\n\n|\n(?=- )", text) if item.startswith("- ")]


PROMISES = [*readme_promises(), *security_promises(), *security_statements(), *server_promises(), *concept_promises()]


def first_words(promise: str) -> str:
    return promise.strip("-| ")[:40]


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_there_are_promises_to_check() -> None:
    assert len(readme_promises()) >= 7
    assert len(security_promises()) >= 12
    assert len(security_statements()) >= 30
    assert len(server_promises()) >= 17
    assert len(concept_promises()) >= 17


@pytest.mark.parametrize("promise", PROMISES, ids=first_words)
def test_every_promise_names_tests_that_exist(promise: str) -> None:
    tests = TEST.findall(promise)
    files = TEST_FILE.findall(promise)
    assert tests or files, f"no test is named after: {promise}"
    assert all((ROOT / file).is_file() for file in files), files
    for file, name in tests:
        assert name in functions(ROOT / file), f"{file} has no {name}"
