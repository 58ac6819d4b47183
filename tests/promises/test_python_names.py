from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import opensesh
from opensesh import events
from opensesh.bus import Bus
from opensesh.errors import NotFoundError, UsageError
from opensesh.models.stream_events import Usage
from opensesh.storage.memory import Memory
from tests.cli.running import Terminal
from tests.engine.harness import open_harness
from tests.history.sample_tree import Sample


@pytest.mark.parametrize("name", ["history", "sessions", "records", "storage", "testing", "context", "bus", "project"])
def test_promise_17_every_module_of_the_reference_is_an_attribute(name: str) -> None:
    program = f"import opensesh; print(opensesh.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"opensesh.{name}"


def test_promise_17_list_shows_the_first_and_the_last_prompt(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk(answers=2)
    entry = opensesh.history.open(str(sample.root)).session(session["id"])
    assert entry.first_prompt
    listed = terminal.json("list", "--prompts")["sessions"][0]
    assert (listed["firstPrompt"], listed["lastPrompt"]) == (entry.first_prompt, entry.last_prompt)
    table = terminal.run("list", "--prompts")
    assert f"  first  {' '.join(entry.first_prompt.split())}\n  last   " in table
    assert "firstPrompt" not in terminal.json("list")["sessions"][0]


async def test_promise_17_a_subscriber_that_asks_gets_whole_parts() -> None:
    async with open_harness("SPLIT word\nSAY one two three four") as harness:
        plain = harness.engine.bus.subscribe()
        whole = harness.engine.bus.subscribe(whole_parts=True)
        await harness.ask()
        for subscription in (plain, whole):
            subscription.close_after(harness.engine.bus.last)
        deltas = [envelope.event async for envelope in plain if isinstance(envelope.event, events.PartDelta)]
        assert len(deltas) >= 3
        received = [envelope.event async for envelope in whole]
        assert not any(isinstance(event, events.PartDelta) for event in received)
        texts = [
            (event.part["text"], event.delta)
            for event in received
            if isinstance(event, events.PartUpdated) and event.part["type"] == "text" and event.delta
        ]
        text = ""
        for so_far, delta in texts:
            assert so_far == text + str(delta)
            text = so_far
        assert text == "one two three four"


def test_promise_17_a_piece_of_an_unknown_part_stays_a_piece() -> None:
    async def read() -> Any:
        bus = Bus()
        subscription = bus.subscribe(whole_parts=True)
        bus.publish(events.PartDelta(session_id="ses_1", message_id="msg_1", part_id="prt_1", delta="x"))
        return (await anext(subscription)).event

    assert isinstance(asyncio.run(read()), events.PartDelta)


def test_promise_17_sessions_are_opened_prompted_by_hand_and_streamed() -> None:
    sessions = opensesh.sessions.Sessions.open(".", Memory())
    session = sessions.create(title="By hand")
    prompts = [sessions.add_prompt(session.id, f"prompt {n}", model="a/b/c").info["id"] for n in range(100)]
    stored = sessions.messages(session.id)
    assert [message.info["id"] for message in stored] == prompts
    assert stored[0].info["model"] == {"providerID": "a", "modelID": "b/c"}
    assert list(sessions.stream(session.id)) == list(stored)[::-1]
    assert [one.id for one in sessions.newest_first()] == [session.id]
    assert sessions.get(session.id).updated >= stored[-1].info["time"]["created"]
    with pytest.raises(UsageError, match="provider/model"):
        sessions.add_prompt(session.id, "x", model="model")


def test_promise_17_a_prompt_of_an_unknown_session_stores_nothing() -> None:
    sessions = opensesh.sessions.Sessions.open(".", Memory())
    with pytest.raises(NotFoundError):
        sessions.add_prompt("ses_unknown", "x", model="a/b")
    assert sessions.store.list(("message",)) == []


def test_promise_17_a_message_is_streamed_once_even_if_others_are_added_or_removed_meanwhile() -> None:
    sessions = opensesh.sessions.Sessions.open(".", Memory())
    session = sessions.create(title="By hand")
    prompts = [sessions.add_prompt(session.id, f"prompt {n}", model="a/b").info["id"] for n in range(100)]
    streamed: list[str] = []
    for message in sessions.stream(session.id):
        streamed.append(message.info["id"])
        if len(streamed) == 5:
            for text in ("meanwhile", "and then"):
                sessions.add_prompt(session.id, text, model="a/b")
            sessions.remove_message(session.id, prompts[85])
    assert streamed == prompts[::-1]


async def test_promise_17_compaction_overflow_tokens_and_usage_have_names() -> None:
    async with open_harness("SAY one\n---\nSAY two\n---\nSAY the summary") as harness:
        for _ in range(2):
            await harness.ask()
        await (await harness.engine.compact(harness.session))
        seen = opensesh.context.visible_messages(harness.engine.sessions.messages(harness.session))
        assert len(seen) < len(harness.engine.sessions.messages(harness.session))
        newest = [message.info["id"] async for message in harness.engine.messages(harness.session)]
        assert newest == [message.info["id"] for message in harness.engine.sessions.messages(harness.session)][::-1]
        model = harness.engine.model("scripted/it")
        assert opensesh.context.is_overflow({"input": 10**9}, model, harness.engine.config)
        assert not opensesh.context.is_overflow({"input": 1}, model, harness.engine.config)
        assert opensesh.context.usage_cost(model, Usage(input=1_000_000)).cost == 3
        assert opensesh.context.estimate_tokens("eight ch") == 2
        assert await harness.engine.summarize(harness.session) == []


def test_promise_17_a_prompt_runs_without_an_event_loop() -> None:
    outcome = opensesh.run("SAY one", model="scripted/prompt", engine_options={"store": Memory()})
    assert (outcome.kind, outcome.text) == ("answered", "one")


def test_promise_17_exports_imports_statistics_and_checks_are_functions(sample: Sample, tmp_path: Path) -> None:
    session, location = sample.talk(answers=2), str(sample.root)
    path = tmp_path / "all.json"
    assert opensesh.history.export(str(path), [session["id"]], format="json", place=location) == 1
    assert json.loads(path.read_text())
    empty = tmp_path / "empty" / "storage"
    empty.mkdir(parents=True)
    [imported] = opensesh.history.import_sessions(str(path), place=str(empty))
    assert (imported.id, imported.act) == (session["id"], "added")
    assert opensesh.history.statistics("session", place=str(empty)).rows[0].key == session["id"]
    assert opensesh.history.diagnose(location).place == location
    assert not [finding for finding in opensesh.history.repair(location).findings if finding.fixable]
