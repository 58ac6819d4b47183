from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

import opensesh
from opensesh import history, project, public
from opensesh.bus import Bus, Envelope
from opensesh.engine.prompt import PromptOptions
from opensesh.errors import (
    ConfigError,
    InvalidIDError,
    InvalidKeyError,
    PermissionCorrectedError,
    ReadOnlyStoreError,
    UsageError,
)
from opensesh.events import PartUpdated, PermissionAsked, QuestionAsked, SessionIdle
from opensesh.sessions import Sessions
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel

from .history.sample_stores import Database

EXAMPLE = """
import asyncio, opensesh

async def main():
    async with opensesh.open(directory=".") as engine:
        session = await engine.create(title="Fix the parser")
        async for event in engine.prompt(session.id, "Why does test_parse fail?"):
            print(event)

asyncio.run(main())
"""
EDIT = 'CALL write {"filePath": "new.txt", "content": "one"}'
ASKING = '{"permission": {"edit": "ask"}}'

Answer = Literal["once", "always", "reject"]


def states(events: list[Envelope]) -> dict[str, Any]:
    parts = [event.event.part for event in events if isinstance(event.event, PartUpdated)]
    return {part["callID"]: part["state"] for part in parts if part["type"] == "tool"}


async def converse(script: str, **options: Any) -> tuple[ScriptedModel, list[Envelope]]:
    model = ScriptedModel(script)
    async with opensesh.open(".", scripts={"model": model}, **options) as engine:
        session = await engine.create(title="x")
        return model, [event async for event in engine.prompt(session.id, "go", model="scripted/model")]


def test_the_example_of_the_documentation_runs_as_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("model.script").write_text("SAY Because of a comma.")
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"model": "scripted/model.script"}')
    exec(EXAMPLE, {"__name__": "example"})
    out = capsys.readouterr().out
    assert "Because of a comma." in out
    assert out.splitlines()[-1].startswith("Envelope(")
    assert "PromptEnded(" in out.splitlines()[-1]


def test_the_example_is_the_one_that_people_are_shown() -> None:
    shown = " ".join((opensesh.__doc__ or "").split())
    assert " ".join(EXAMPLE.split()) in shown


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import opensesh; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "opensesh"]


def test_names_that_do_not_exist_are_reported() -> None:
    name = "nonsense"
    assert name not in dir(opensesh)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(opensesh, name)


def test_every_public_name_can_be_used() -> None:
    for name in public.__all__:
        assert getattr(opensesh, name) is getattr(public, name)
        assert name in dir(opensesh)
    assert opensesh.open.__name__ == "open_engine"


def test_what_goes_with_a_prompt_of_words_is_what_a_prompt_holds() -> None:
    kept = {*opensesh.Prompt.__struct_fields__} - {"parts", "steering", "checks_model"}
    assert {*PromptOptions.__annotations__} == kept


async def test_the_text_of_an_answer_is_at_hand() -> None:
    async with opensesh.open(".", scripts={"model": ScriptedModel("THINK Hm.\nSAY Because.")}) as engine:
        session = await engine.create(title="x")
        outcome = await engine.run(session.id, "Why?", model="scripted/model")
    assert (outcome.kind, outcome.text.strip()) == ("answered", "Because.")
    assert opensesh.Outcome("aborted").text == ""


async def test_an_engine_that_was_not_entered_says_how() -> None:
    engine = opensesh.open(".")
    with pytest.raises(UsageError, match="async with"):
        await engine.create(title="x")
    await engine.open()
    session = await engine.create(title="x")
    with pytest.raises(UsageError, match="async with"):
        await engine.run(session.id, "Why?", model="scripted/prompt")


async def test_a_session_in_place_of_its_id_is_an_error_that_says_so() -> None:
    async with opensesh.open(".") as engine:
        session: Any = await engine.create(title="x")
        with pytest.raises(InvalidIDError, match=r"this is a Session, so try its \.id"):
            await engine.run(session, "Why?", model="scripted/prompt")


async def test_a_session_of_a_database_is_not_gone_on_with_beside_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "data" / "opencode.db")
    session = database.session("ses_1" + "0" * 25)
    database.close()
    async with opensesh.open(".", store=str(tmp_path / "data")) as engine:
        with pytest.raises(ReadOnlyStoreError, match=f"opensesh session fork {session}"):
            await engine.run(session, "Go on.", model="scripted/prompt")
        assert not (tmp_path / "data" / "storage" / "message").exists()
        fork = await asyncio.to_thread(engine.sessions.fork, session)
        assert (await engine.run(fork.id, "Go on.", model="scripted/prompt")).kind == "answered"


async def test_a_tool_or_a_directory_that_is_not_one_is_refused() -> None:
    def plain(question: str) -> str:
        return question

    tools: Any = [plain]
    with pytest.raises(UsageError, match=r"plain is not a tool, .* @opensesh\.tool makes a tool"):
        opensesh.open(".", tools=tools)
    with pytest.raises(UsageError, match=r"there is no directory .*nowhere"):
        await opensesh.open("nowhere").open()


async def test_opening_an_engine_writes_nothing_to_the_store_until_a_session_is_created() -> None:
    store = Memory()
    async with opensesh.open(".", store=store) as engine:
        assert list(store.list()) == []
        session = await engine.create(title="x")
        stored = {key[0] for key in store.list()}
        assert {"project", "session"} <= stored
        assert session.project_id == engine.location.id


async def test_opening_does_its_blocking_work_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    resolve = project.resolve

    def note_thread(directory: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return resolve(directory, **options)

    monkeypatch.setattr(project, "resolve", note_thread)
    async with opensesh.open(".", store=Memory()):
        pass
    assert threads
    assert threading.get_ident() not in threads


async def test_a_caller_may_pass_the_bus_and_the_session_service() -> None:
    bus, published = Bus(), list[Envelope]()
    bus.listen(published.append)
    sessions = Sessions(Memory(), project.resolve("."), bus=bus)
    scripts = {"model": ScriptedModel("SAY Hello.")}
    async with opensesh.open(".", bus=bus, sessions=sessions, scripts=scripts) as engine:
        session = await engine.create(title="x")
        assert (await engine.run(session.id, "go", model="scripted/model")).kind == "answered"
        assert (engine.bus, engine.sessions) == (bus, sessions)
    assert any(isinstance(envelope.event, SessionIdle) for envelope in published)


async def test_diff_todo_context_revert_and_unrevert_are_methods_of_the_engine() -> None:
    todos = '{"todos": [{"id": "1", "content": "one", "status": "pending", "priority": "high"}]}'
    model = ScriptedModel(f"{EDIT}\nCALL todowrite {todos}\n---\nSAY Done.")
    async with opensesh.open(".", scripts={"model": model}) as engine:
        session = await engine.create(title="x")
        await engine.run(session.id, "go", model="scripted/model")
        prompt = engine.sessions.messages(session.id)[0].info["id"]
        assert [change["file"] for change in await engine.diff(session.id)] == ["new.txt"]
        assert [change["file"] for change in await engine.diff(session.id, prompt)] == ["new.txt"]
        assert [todo["content"] for todo in await engine.todo(session.id)] == ["one"]
        assert (await engine.context(session.id)).step == 3
        await engine.revert(session.id, prompt)
        assert not Path("new.txt").exists()
        await engine.unrevert(session.id)
        assert Path("new.txt").read_text() == "one"


async def test_permission_is_asked_of_the_caller() -> None:
    Path("opencode.json").write_text(ASKING)
    asked: list[PermissionAsked] = []

    async def allow(request: PermissionAsked) -> Answer:
        asked.append(request)
        return "once"

    _, events = await converse(f"{EDIT}\n---\nSAY Done.", permission=allow)
    assert [state["status"] for state in states(events).values()] == ["completed"]
    assert (asked[0].permission, Path("new.txt").read_text()) == ("edit", "one")
    assert "+one" in asked[0].metadata["diff"]


async def test_callbacks_need_not_be_asynchronous() -> None:
    def at_once(_: PermissionAsked) -> Answer:
        return "once"

    Path("opencode.json").write_text(ASKING)
    _, events = await converse(f"{EDIT}\n---\nSAY Done.", permission=at_once)
    assert [state["status"] for state in states(events).values()] == ["completed"]


async def test_a_request_without_a_callback_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Path("opencode.json").write_text(ASKING)
    settings = opensesh.Settings(unanswered_warning_seconds=0.01)
    calls = "\n".join(f'CALL write {{"filePath": "{name}.txt", "content": "x"}}' for name in "ab")
    async with opensesh.open(".", scripts={"model": ScriptedModel(calls)}, settings=settings) as engine:
        session = await engine.create(title="x")
        outcome = await engine.submit(session.id, "go", model="scripted/model")
        async with asyncio.timeout(60):
            while not caplog.messages or len(engine.permissions()) < 2:
                await asyncio.sleep(0.01)
        engine.abort(session.id)
        assert (await outcome).kind == "aborted"
    assert len(caplog.messages) == 1
    assert "the permission edit is waiting" in caplog.text
    assert "engine.reply_permission()" in caplog.text


async def test_always_is_asked_once() -> None:
    Path("opencode.json").write_text(ASKING)
    asked: list[PermissionAsked] = []

    async def allow(request: PermissionAsked) -> Answer:
        asked.append(request)
        await asyncio.sleep(0.05)
        return "always"

    calls = "\n".join(f'CALL write {{"filePath": "{name}.txt", "content": "x"}}' for name in "abc")
    _, events = await converse(f"{calls}\n---\nSAY Done.", permission=allow)
    assert [state["status"] for state in states(events).values()] == ["completed"] * 3
    assert len(asked) == 1


async def test_a_caller_may_refuse_or_say_what_to_do_instead() -> None:
    Path("opencode.json").write_text(ASKING)

    async def refuse(request: PermissionAsked) -> Answer:
        return "reject"

    async def correct(request: PermissionAsked) -> Answer:
        raise PermissionCorrectedError("use another name")

    async def stumble(request: PermissionAsked) -> Answer:
        raise RuntimeError("oh no")

    async def mumble(request: PermissionAsked) -> Any:
        return "perhaps"

    for callback in (refuse, stumble, mumble):
        model, events = await converse(f"{EDIT}\n---\nSAY Done.", permission=callback)
        assert [state["status"] for state in states(events).values()] == ["error"]
        assert len(model.calls) == 1
    model, _ = await converse(f"{EDIT}\n---\nEXPECT last use another name\nSAY Done.", permission=correct)
    model.assert_complete()
    assert not Path("new.txt").exists()


async def test_a_pending_callback_is_cancelled_when_the_run_ends() -> None:
    Path("opencode.json").write_text(ASKING)
    left: list[str] = []
    asking = asyncio.Event()

    async def ponder(request: PermissionAsked) -> Answer:
        asking.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            left.append(request.id)
            raise
        return "once"

    model = ScriptedModel(f"{EDIT}\n---\nSAY Done.")
    async with opensesh.open(".", scripts={"model": model}, permission=ponder) as engine:
        session = await engine.create(title="x")
        outcome = await engine.submit(session.id, "go", model="scripted/model")
        await asyncio.wait_for(asking.wait(), 60)
        engine.abort(session.id)
        assert (await asyncio.wait_for(outcome, 60)).kind == "aborted"
        await asyncio.sleep(0.05)
        assert len(left) == 1


async def test_an_answer_from_elsewhere_settles_it() -> None:
    Path("opencode.json").write_text(ASKING)

    async def ponder(request: PermissionAsked) -> Answer:
        engine.reply_permission(request.id, "once")
        await asyncio.sleep(60)
        return "reject"

    model = ScriptedModel(f"{EDIT}\n---\nSAY Done.")
    async with opensesh.open(".", scripts={"model": model}, permission=ponder) as engine:
        session = await engine.create(title="x")
        outcome = await asyncio.wait_for(engine.run(session.id, "go", model="scripted/model"), 60)
    assert (outcome.kind, Path("new.txt").read_text()) == ("answered", "one")


async def test_what_is_asked_in_the_very_instant_an_engine_closes_is_not_waited_for() -> None:
    async def ponder(request: PermissionAsked) -> Answer:
        await asyncio.sleep(60)
        return "once"

    async with asyncio.timeout(60), opensesh.open(".", permission=ponder) as engine:
        asked = PermissionAsked(id="per_1", session_id="ses_1", permission="x", patterns=[], metadata={}, always=[])
        engine.bus.publish(asked)


async def test_questions_are_put_to_the_caller() -> None:
    options = [{"label": "Red", "description": ""}, {"label": "Blue", "description": ""}]
    question = {"question": "Which?", "header": "W", "options": options}
    script = f'CALL question {json.dumps({"questions": [question]})}\n---\nEXPECT last "Which?"="Blue"\nSAY Done.'

    async def blue(request: QuestionAsked) -> list[list[str]] | None:
        return [[request.questions[0]["options"][1]["label"]]]

    async def silence(request: QuestionAsked) -> list[list[str]] | None:
        return None

    async def stumble(request: QuestionAsked) -> list[list[str]] | None:
        raise RuntimeError("oh no")

    model, _ = await converse(script, settings=opensesh.Settings(question=blue))
    model.assert_complete()
    for callback in (silence, stumble):
        model, events = await converse(script, settings=opensesh.Settings(question=callback))
        assert [state["status"] for state in states(events).values()] == ["error"]
        assert len(model.calls) == 1


async def test_a_function_is_a_tool() -> None:
    @opensesh.tool
    async def tickets(project: str, limit: int = 2) -> str:
        """List the tickets of a project."""
        return f"{limit} tickets of {project}"

    script = 'EXPECT tools tickets\nCALL tickets {"project": "east"}\n---\nEXPECT last 2 tickets of east\nSAY Done.'
    model, events = await converse(script, tools=[tickets])
    model.assert_complete()
    assert [state["output"] for state in states(events).values()] == ["2 tickets of east"]


async def test_an_outcome_is_what_a_caller_waits_for() -> None:
    model = ScriptedModel("SAY Hello.")
    async with opensesh.open(".", scripts={"model": model}) as engine:
        session = await engine.create()
        outcome = await engine.run(session.id, "go", model="scripted/model")
    assert isinstance(outcome, opensesh.Outcome)
    assert outcome.kind == "answered"


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (42, {}, "a prompt is text; this is a value of type int"),
        (None, {}, "a prompt is text; this is a value of type NoneType"),
        ("hi", {"model": 5}, "model of a prompt is text; this is a value of type int"),
        ("hi", {"agent": 5}, "agent of a prompt is text; this is a value of type int"),
        ("hi", {"variant": ["high"]}, "variant of a prompt is text; this is a value of type list"),
        ("hi", {"system": b"x"}, "system of a prompt is text; this is a value of type bytes"),
        ("hi", {"tools": ["bash"]}, "tools of a prompt are switched on or off by name"),
        ("hi", {"tools": {"bash": "no"}}, "tools of a prompt are switched on or off by name"),
        (public.Prompt(parts=({"type": "text", "text": "hi"},)), {"model": "a/b"}, "model: beside a Prompt"),
    ],
)
async def test_a_prompt_of_another_type_is_refused_by_name(prompt: Any, options: Any, message: str) -> None:
    async with opensesh.open() as engine:
        session = await engine.create()
        for submit in (engine.run, engine.append):
            with pytest.raises(UsageError, match=message):
                await submit(session.id, prompt, **options)


@pytest.mark.parametrize("parts", ["hi", {"type": "text", "text": "hi"}, ["hi"]])
def test_parts_of_a_prompt_are_a_list_of_objects(parts: Any) -> None:
    with pytest.raises(UsageError, match="parts of a prompt are a list like"):
        opensesh.Prompt(parts=parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": 5}, "store is a path, a URL or a store; this is a value of type int"),
        ({"config": "opencode.json"}, 'config is an object like {"agent": {...}}'),
        ({"settings": {"interactive": False}}, "settings is an opensesh.Settings"),
        ({"scripts": ScriptedModel("SAY x")}, "scripts is a dictionary such as"),
        ({"scripts": {"a": "SAY x"}}, "scripts is a dictionary such as"),
    ],
)
def test_an_option_of_another_type_is_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opensesh.open(".", **options)


async def test_a_program_adds_agents_and_rules_to_the_configuration_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "opencode.json").write_text('{"permission": {"bash": "allow", "edit": "ask"}}')
    config = {"agent": {"reviewer": {"mode": "primary", "prompt": "Review."}}, "permission": {"bash": "deny"}}
    script = 'CALL bash {"command": "touch made", "description": "x"}\n---\nSAY Reviewed.'
    async with opensesh.open(tmp_path, store=Memory(), config=config) as engine:
        assert engine.config.document["permission"] == {"bash": "deny", "edit": "ask"}
        session = await engine.create()
        await engine.run(session.id, script, model="scripted/prompt", agent="reviewer")
    assert not (tmp_path / "made").exists()


async def test_a_mistake_in_the_configuration_of_a_program_is_named() -> None:
    with pytest.raises(ConfigError, match=r"the argument config.*agnet"):
        async with opensesh.open(config={"agnet": {}}):
            pass


def test_statistics_by_something_else_are_refused() -> None:
    wrong: Any = "week"
    with pytest.raises(UsageError, match="statistics are by one of day, month, project, model, agent, session, not"):
        history.statistics(wrong)


def test_a_budget_is_exact() -> None:
    wrong: Any = 0.5
    with pytest.raises(UsageError, match="budget is an"):
        opensesh.Settings(budget=wrong)
    with pytest.raises(UsageError, match=r"run of a budget is a Decimal.*not 0\.5"):
        opensesh.Budget(run=wrong)


async def test_what_is_read_of_a_session_takes_an_id_and_no_session() -> None:
    async with opensesh.open() as engine:
        session: Any = await engine.create()
        for read in (engine.todo(session), anext(engine.messages(session))):
            with pytest.raises(InvalidKeyError, match=r"try its \.id"):
                await read


async def test_a_step_of_a_context_is_named_by_its_number_as_well() -> None:
    async with opensesh.open() as engine:
        session = await engine.create()
        await engine.run(session.id, "Hello?", model="scripted/prompt")
        assert await engine.context(session.id, 1) == await engine.context(session.id, "1")


async def test_abort_takes_an_id_and_no_session() -> None:
    async with opensesh.open() as engine:
        session: Any = await engine.create()
        with pytest.raises(InvalidIDError, match=r"try its \.id"):
            engine.abort(session)
        assert engine.abort(session.id) is False


def test_a_permission_callback_has_to_be_a_function() -> None:
    always: Any = "always"
    with pytest.raises(UsageError, match="permission is a function that returns 'once', 'always' or 'reject'"):
        opensesh.open(permission=always)


async def test_an_engine_is_entered_once() -> None:
    engine = opensesh.open()
    async with engine:
        pass
    with pytest.raises(UsageError, match="can be entered once"):
        await engine.__aenter__()


async def test_a_synchronous_run_in_a_coroutine_says_what_to_write_instead() -> None:
    with pytest.raises(UsageError, match=r"await engine\.run"):
        opensesh.run("SAY hi", model="scripted/prompt")


def test_places_and_files_may_be_paths(tmp_path: Path) -> None:
    place, copy, file = tmp_path / "one", tmp_path / "two", tmp_path / "all.json"
    outcome = opensesh.run("SAY hi", engine_options={"store": place / "storage"}, model="scripted/prompt")
    assert repr(outcome) == "Outcome(kind='answered', text='hi')"
    assert [session.messages for session in opensesh.history.open(place).sessions()] == [2]
    assert opensesh.history.export(file, format="json", place=place) == 1
    (copy / "storage").mkdir(parents=True)
    assert len(opensesh.history.import_sessions(file, place=copy)) == 1
    assert opensesh.history.statistics(place=copy).total.totals.messages == 2
    assert opensesh.history.diagnose(copy).findings == opensesh.history.diagnose(place).findings


def test_an_export_has_the_format_of_its_ending_and_statistics_count_dollars(tmp_path: Path) -> None:
    opensesh.run("Hello?", model="scripted/prompt")
    for name, begin in (("all.html", "<!"), ("all.json", "{"), ("all.md", "# "), ("all", "{")):
        assert history.export(tmp_path / name) == 1
        assert (tmp_path / name).read_text().startswith(begin)
    [session] = history.open().sessions()
    assert 0 < history.statistics("model").total.totals.dollars == session.cost
