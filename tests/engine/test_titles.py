from __future__ import annotations

import json
from typing import Any

import pytest

from opensesh import events
from opensesh.engine.prompt import Prompt
from opensesh.engine.titles import is_provisional, provisional_title
from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.library import Library
from opensesh.history.stats.usage_layer import UsageTable
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import StoredMessage
from opensesh.testing.scripted import ScriptedModel

from .harness import EngineHarness, open_harness

NAMED = "SAY ok\nUSAGE input=1000 output=100\n---\nTITLE Named by the model\nUSAGE input=200 output=10"


def prompt(*parts: dict[str, Any]) -> StoredMessage:
    return StoredMessage({"role": "user"}, list(parts))


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | more


def titles(harness: EngineHarness) -> list[str]:
    reported = [event.info["title"] for event in harness.published(events.SessionUpdated)]
    return [title for at, title in enumerate(reported) if not at or reported[at - 1] != title]


def title(harness: EngineHarness) -> str:
    return harness.engine.sessions.get(harness.session).title


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([text("Fix the parser")], "Fix the parser"),
        ([text("\n\n## Fix **the** parser\nand more")], "Fix **the** parser"),
        ([text("> quoted")], "quoted"),
        ([text("Why does the test of the parser fail on every second run, and never at night?")],
         "Why does the test of the parser fail on every…"),
        ([text("なぜ" * 60)], "なぜ" * 25 + "…"),
        ([text("x" * 80)], "x" * 50 + "…"),
        ([text("read it", synthetic=True), text("typed")], "typed"),
        ([{"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:"}], "a.png"),
        ([{"type": "subtask", "prompt": "Review the change", "description": "review"}], "Review the change"),
        ([text("   ")], ""),
    ],
)  # fmt: skip
def test_a_first_title_is_made_of_the_first_words(parts: list[dict[str, Any]], expected: str) -> None:
    assert provisional_title(prompt(*parts)) == expected


async def test_a_session_is_named_at_once_and_then_by_the_model() -> None:
    async with open_harness(NAMED, title=None) as harness:
        await harness.ask("Fix the parser")
        await harness.until(lambda: title(harness) == "Named by the model")
        assert titles(harness)[-2:] == ["Fix the parser", "Named by the model"]
        session = harness.engine.sessions.get(harness.session)
        assert "opensesh" not in session.document
        assert not is_provisional(session)


async def test_where_the_model_fails_the_first_title_stays() -> None:
    async with open_harness("SAY ok\n---\nTITLE x\nERROR auth", title=None) as harness:
        assert (await harness.ask("Fix the parser")).kind == "answered"
    session = harness.engine.sessions.get(harness.session)
    assert session.title == "Fix the parser"
    assert is_provisional(session)


async def test_an_empty_answer_is_not_a_title() -> None:
    async with open_harness('SAY ok\n---\nTITLE "  "\nTHINK hm', title=None) as harness:
        await harness.ask("Fix the parser")
    assert title(harness) == "Fix the parser"


async def test_the_model_is_not_asked_where_the_title_agent_is_switched_off() -> None:
    async with open_harness("SAY ok", title=None, config={"agent": {"title": {"disable": True}}}) as harness:
        await harness.ask("Fix the parser")
    assert title(harness) == "Fix the parser"
    assert harness.model.title_calls == ()


async def test_the_first_rename_of_a_session_is_kept() -> None:
    async with open_harness("SAY ok\n---\nTITLE Too late\nWAIT 0.3", title=None) as harness:
        await harness.ask("Fix the parser")
        harness.engine.sessions.rename(harness.session, "Mine")
    assert title(harness) == "Mine"
    assert harness.model.title_calls


async def test_only_the_first_prompt_of_a_root_session_leads_to_a_title() -> None:
    async with open_harness(f"{NAMED}\n---\nSAY again\n---\nSAY child", title=None) as harness:
        await harness.ask("Fix the parser")
        await harness.until(lambda: title(harness) == "Named by the model")
        await harness.ask("And more")
        child = await harness.engine.create(parent_id=harness.session)
        await harness.ask("Do it", child.id)
    assert len(harness.model.title_calls) == 1


async def test_the_title_is_asked_for_in_the_language_of_the_prompt() -> None:
    async with open_harness(NAMED, title=None) as harness:
        await harness.ask("Warum schlägt der Test fehl?")
    asked = str(harness.model.title_calls[0].request.messages)
    assert "language of the user's message" in asked
    assert "Warum schlägt der Test fehl?" in asked


async def test_the_small_model_of_the_configuration_is_asked() -> None:
    small = ScriptedModel("TITLE Small title")
    config = {"small_model": "scripted/small"}
    async with open_harness("SAY ok", title=None, config=config, small=small) as harness:
        await harness.ask("Fix the parser")
    assert title(harness) == "Small title"
    assert harness.model.title_calls == ()


async def test_a_prompt_without_words_is_named_after_what_is_attached() -> None:
    picture = {"type": "file", "mime": "image/png", "filename": "plan.png", "url": "data:image/png;base64,iVBORw0KGgo="}
    async with open_harness("SAY ok\n---\nTITLE x\nERROR auth", title=None) as harness:
        await harness.ask(Prompt(parts=(picture,), model="scripted/it"))
    assert title(harness) == "plan.png"


async def test_what_a_title_cost_is_counted_once_in_every_sum(tmp_path: Any) -> None:
    store = JsonTree(tmp_path / "storage")
    async with open_harness(NAMED, title=None, store=store) as harness:
        await harness.ask("Fix the parser")
    call = harness.messages()[0].info["opensesh"]["calls"][0]
    assert (call["agent"], call["modelID"], call["tokens"]["input"]) == ("title", "it", 200)
    assert call["cost"] == pytest.approx(200 * 3e-6 + 10 * 15e-6)
    answer = harness.messages()[1].info["cost"]
    assert float(Library(store=store).totals(harness.session).cost) == pytest.approx(answer + call["cost"])
    harness.engine.sessions.fork(harness.session)
    for temporary in (True, False, False):
        usage = UsageTable(DerivedCache(store=store, temporary=temporary))
        [bucket] = [bucket for bucket in usage.buckets[harness.session] if bucket.agent == "title"]
        assert list(bucket.totals[:4]) == [0, 0, 200, 10]


async def test_a_title_that_came_to_nothing_is_paid_for_too() -> None:
    async with open_harness('SAY ok\n---\nTITLE "  "\nUSAGE input=50 output=5', title=None) as harness:
        await harness.ask("Fix the parser")
    assert json.dumps(harness.messages()[0].info["opensesh"]["calls"]).count('"input": 50') == 1
