from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.engine.loop import Outcome
from opensesh.engine.prompt import text_prompt
from opensesh.errors import UsageError
from tests.cli.running import Terminal
from tests.engine.harness import open_harness

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SESSION = "ses_e1f50577fffejV6VGQt622W6kl"
FORMAT = {"type": "json_schema", "schema": SCHEMA}


async def test_promise_18_the_stream_of_a_prompt_ends_with_its_outcome() -> None:
    async with open_harness('SAY Counting.\nCALL StructuredOutput {"n": 3}') as harness:
        stream = harness.engine.prompt(harness.session, "Count.", model="scripted/it", format=FORMAT)
        last = [envelope.event async for envelope in stream][-1]
        assert isinstance(last, events.PromptEnded)
        assert (last.kind, last.text, last.structured, last.error) == ("answered", "Counting.", {"n": 3}, None)
        assert last.cost == sum(answer.info["cost"] for answer in harness.answers())


async def test_promise_18_an_outcome_has_the_structured_answer_and_shows_it() -> None:
    async with open_harness('SAY Counting.\nCALL StructuredOutput {"n": 3}') as harness:
        outcome = await harness.engine.run(harness.session, "Count.", model="scripted/it", format=FORMAT)
    assert outcome.structured == {"n": 3}
    assert repr(outcome) == "Outcome(kind='answered', text='Counting.', structured={'n': 3})"
    assert Outcome("aborted").structured is None


async def test_promise_18_the_stream_of_a_prompt_that_failed_ends_with_the_error() -> None:
    async with open_harness("SAY three\n---\nSAY four") as harness:
        stream = harness.engine.prompt(harness.session, "Count.", model="scripted/it", format=FORMAT)
        last = [envelope.event async for envelope in stream][-1]
        assert isinstance(last, events.PromptEnded)
        assert last.kind == "failed"
        assert last.error is not None
        assert last.error["name"] == "StructuredOutputError"


@pytest.mark.parametrize(
    "malformed",
    [
        {},
        {"type": "json"},
        {"type": "json_schema"},
        FORMAT | {"schema": 3},
        FORMAT | {"schema": {"type": "array"}},
        FORMAT | {"schema": {"type": "object", "required": 3}},
        FORMAT | {"schema": {"$ref": "#/nowhere"}},
    ],
)
async def test_promise_18_a_malformed_format_is_an_error(malformed: dict[str, Any]) -> None:
    async with open_harness("SAY never asked") as harness:
        with pytest.raises(UsageError, match="format"):
            await harness.ask(text_prompt("Count.", model="scripted/it", format=malformed))
        assert harness.answers() == []


@pytest.mark.parametrize(
    ("name", "beginning"), [("page.html", "<!doctype html>"), ("all.md", "#"), ("all.json", "{"), ("all.txt", "{")]
)
def test_promise_18_an_export_has_the_format_of_the_file_ending(
    terminal: Terminal, store: Path, tmp_path: Path, name: str, beginning: str
) -> None:
    terminal.run("export", SESSION, "-o", str(tmp_path / name))
    assert (tmp_path / name).read_text().lower().startswith(beginning)
