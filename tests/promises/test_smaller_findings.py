from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opensesh import events, history, ids
from opensesh.engine.prompt import text_prompt
from opensesh.engine.prompts import format_day
from opensesh.engine.settings import Settings
from opensesh.errors import UsageError
from opensesh.history.stats.money import Repricer, units
from opensesh.models.catalogue import Catalogue
from opensesh.models.openai_chat import OpenAIChat
from opensesh.storage.memory import Memory
from tests.cli.running import Terminal
from tests.engine.harness import echo, open_harness
from tests.models.wires import Server, lines

DAY_MS = 86_400_000
SLOW = "SPLIT word\nDRIP 0.05\nSAY one two three four five six seven eight nine ten\n---\nSAY never asked"


@pytest.mark.parametrize("prompt", ["", "  \n"])
async def test_promise_19_an_empty_prompt_is_an_error_and_asks_no_model(prompt: str) -> None:
    async with open_harness("SAY never asked") as harness:
        with pytest.raises(UsageError, match="the prompt is empty"):
            await harness.engine.run(harness.session, prompt, model="scripted/it")
        with pytest.raises(UsageError, match="the prompt is empty"):
            text_prompt(prompt)
        assert not harness.messages()
        assert not harness.model.calls


@pytest.mark.parametrize("opencode_events", [False, True])
async def test_promise_19_the_date_is_sent_once_a_day(opencode_events: bool) -> None:
    store, settings = Memory(), Settings(opencode_events=opencode_events)
    async with open_harness("SAY ok\n---\nSAY ok\n---\nSAY ok", store=store, settings=settings) as harness:
        key = ("session", "global", harness.session)
        store.update(key, lambda info: info["time"].update(created=info["time"]["created"] - 3 * DAY_MS))
        reminder = f"Today is {format_day(ids.now_ms())}."
        for _ in range(3):
            await harness.ask()
        prompts = [message for message in harness.messages() if message.info["role"] == "user"]
        assert [str(prompt.parts).count(reminder) for prompt in prompts] == [1, 0, 0]


def test_promise_19_a_reminder_is_not_glued_to_the_users_words(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("run", "--quiet", "-m", "scripted/prompt", "SAY one")
    [entry] = history.open().sessions()
    path = Path(entry.origin)
    record = json.loads(path.read_text())
    record["time"]["created"] -= 3 * DAY_MS
    path.write_text(json.dumps(record))
    terminal.run("run", "--quiet", "-c", "-m", "scripted/prompt", "SAY two")
    line = json.loads(terminal.run("export", "last", "--format", "jsonl"))
    prompt = [message["content"] for message in line["messages"] if message["role"] == "user"][-1]
    assert prompt.startswith("SAY two\n<system-reminder>")


def read_from_pipe(*options: str) -> tuple[str, str]:
    """Return what arrives first at the end of a pipe, and the rest."""
    Path("slow.script").write_text(SLOW)
    command = f"{sys.executable} -m opensesh run {' '.join(options)} -m scripted/slow.script go | cat"
    with subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        return os.read(process.stdout.fileno(), 1000).decode(), process.stdout.read().decode()


def test_promise_19_a_pipe_gets_the_answer_as_it_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = "one two three four five six seven eight nine ten\n"
    first, rest = read_from_pipe()
    assert first + rest == answer
    assert rest
    assert read_from_pipe("--quiet") == (answer, "")


def chunk(delta: dict[str, Any], reason: str | None = None) -> str:
    # json.dumps escapes a surrogate, as servers do that cut text by UTF-16 units.
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


async def test_promise_19_a_character_that_a_server_splits_is_one_character() -> None:
    halves = ["Go \ud83d", "\ude80!", " \ud83d", "", "\ude80", " alone \ud83d", " and \ude80", " last \ud83d"]
    raw = ['{"id": "\ud83d', "\ude80", '"}']
    calls = [{"index": 0, "id": "c", "function": {"name": "echo", "arguments": raw[0]}}]
    calls += [{"index": 0, "function": {"arguments": text}} for text in raw[1:]]
    first = [
        *(chunk({"reasoning_content": text}) for text in halves),
        *(chunk({"tool_calls": [call]}) for call in calls),
        chunk({}, "tool_calls"),
    ]
    second = [*(chunk({"content": text}) for text in halves), chunk({}, "stop")]
    provider = OpenAIChat("key", "http://127.0.0.1/v1", transport=Server(lines(*first), lines(*second)).transport)
    async with open_harness(provider, tools=[echo()]) as harness:
        outcome = await harness.ask()
        published = [envelope.event for envelope in harness.received if isinstance(envelope.event, events.PartDelta)]
        assert all(event.delta.encode() for event in published)
        parts = [part for message in harness.messages() for part in message.parts]
    whole = "Go \N{ROCKET}! \N{ROCKET} alone \ufffd and \ufffd last \ufffd"
    assert outcome.text == whole
    assert [part["text"] for part in parts if part["type"] == "reasoning"] == [whole]
    assert [part["state"]["input"] for part in parts if part["type"] == "tool"] == [{"id": "\N{ROCKET}"}]


def test_promise_19_a_retired_model_is_priced_and_not_offered(tmp_path: Path) -> None:
    newer = tmp_path / "api.json"
    newer.write_text(json.dumps({"anthropic": {"name": "Anthropic", "models": {"claude-9": {"name": "Claude 9"}}}}))
    for environ in ({}, {"OPENCODE_MODELS_PATH": str(newer)}):
        catalogue = Catalogue(environ=environ)
        model = catalogue.known("anthropic", "claude-sonnet-4-20250514")
        assert model is not None
        assert model.status == "deprecated"
        assert model.price is not None
        assert (model.price.rates.input, model.price.rates.output) == (3.0, 15.0)
        assert model.id not in catalogue.models("anthropic")
        assert catalogue.known("anthropic", "claude-unknown") is None
        used = 1_000_000, 0, 0, 0, 0
        assert Repricer(catalogue).cost("anthropic", "claude-sonnet-4-20250514", used) == units(3)
