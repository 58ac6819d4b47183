from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.engine.opening import open_engine
from opensesh.errors import RevertConflictError
from opensesh.records import Rule
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel
from opensesh.workspace.files import blob_id
from opensesh.workspace.originals import Originals
from opensesh.workspace.revert import Reverts
from opensesh.workspace.snapshots import SnapshotLimits

from ..harness import ProcessGroup
from . import runners
from .harness import Acting, EngineHarness, open_harness

ALLOW = [Rule(permission="*", pattern="*", action="allow")]


def files() -> dict[str, bytes]:
    paths = [path for path in Path().rglob("*") if path.is_file() and path.name != "opencode.json"]
    return {path.as_posix(): path.read_bytes() for path in sorted(paths)}


def calls(*item: tuple[str, dict[str, Any]]) -> str:
    return "".join(f"CALL {tool} {json.dumps(arguments)}\n---\n" for tool, arguments in item) + "SAY done"


def at(name: str) -> str:
    return os.path.abspath(name)


def reverts(harness: EngineHarness) -> Reverts:
    return Reverts(harness.engine.sessions, harness.engine.components.snapshots)


def prompt_of(harness: EngineHarness) -> str:
    return str(harness.messages()[0].info["id"])


def patch(*lines: str) -> dict[str, str]:
    return {"patchText": "\n".join(("*** Begin Patch", *lines, "*** End Patch"))}


async def test_a_call_that_is_about_to_write_has_its_fields_in_the_order_of_the_schema() -> None:
    async with open_harness(calls(("write", {"filePath": at("a.txt"), "content": "1"}))) as harness:
        await harness.ask()
        reported = [
            event.part["state"] for event in harness.published(events.PartUpdated) if event.part["type"] == "tool"
        ]
        running = [list(state) for state in reported if "metadata" in state and state["status"] == "running"]
        assert running == [["status", "input", "metadata", "time"]]


async def test_outside_of_git_everything_that_tools_did_goes_back_and_comes_again_byte_for_byte() -> None:
    Path("old.bin").write_bytes(b"\xff\xfe\x00caf\xe9\r\n")
    Path("latin.txt").write_bytes(b"caf\xe9\r\nsecond\r\n")
    Path("moved.sh").write_bytes(b"#!/bin/sh\necho 1\n")
    Path("moved.sh").chmod(0o755)
    Path("doomed.sh").write_bytes(b"#!/bin/sh\necho 2\n")
    Path("doomed.sh").chmod(0o750)
    Path("mine.txt").write_bytes(b"the user's own")
    before = files()
    writing = calls(
        ("read", {"filePath": at("latin.txt")}),
        ("bash", {"command": "ls", "description": "look"}),
        ("edit", {"filePath": at("latin.txt"), "oldString": "second", "newString": "2nd"}),
        ("write", {"filePath": at("latin.txt"), "content": "all new\n"}),
        ("write", {"filePath": at("made/new.txt"), "content": "new\n"}),
    )
    patching = calls(
        (
            "apply_patch",
            patch(
                "*** Add File: added.txt",
                "+added",
                "*** Delete File: doomed.sh",
                "*** Update File: moved.sh",
                "*** Move to: there/moved.sh",
                "@@",
                " #!/bin/sh",
                "-echo 1",
                "+echo one",
            ),
        ),
    )
    patcher: dict[str, Any] = {"gpt-5": ScriptedModel(patching)}  # a name for which patching is on offer
    async with open_harness(writing, store=Memory(), rules=ALLOW, **patcher) as harness:
        assert (await harness.ask()).kind == "answered"
        assert (await harness.ask(model="scripted/gpt-5")).kind == "answered"
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["completed"] * 6, harness.parts("tool")
        after = files()
        assert after.keys() == {"old.bin", "mine.txt", "latin.txt", "made/new.txt", "added.txt", "there/moved.sh"}
        modes = {name: Path(name).stat().st_mode for name in after}

        done = reverts(harness).revert(harness.session, prompt_of(harness))
        assert done.left_alone == ()
        assert files() == before
        assert Path("doomed.sh").stat().st_mode & 0o111
        assert Path("moved.sh").stat().st_mode & 0o111

        reverts(harness).unrevert(harness.session)
        assert files() == after
        assert {name: Path(name).stat().st_mode for name in after} == modes


async def test_what_a_write_wrote_over_is_named_in_its_record_and_put_aside() -> None:
    Path("a.txt").write_bytes(b"precious\n")
    script = calls(("read", {"filePath": at("a.txt")}), ("write", {"filePath": at("a.txt"), "content": "new\n"}))
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        metadata = harness.parts("tool")[1]["state"]["metadata"]
        assert list(metadata) == ["diagnostics", "filepath", "exists", "truncated", "opensesh"]
        (write,) = metadata["opensesh"]["writes"]
        assert write["file"] == at("a.txt")
        assert write["before"] == f"100644 {blob_id(b'precious' + bytes([10]))}"
        assert write["after"] == f"100644 {blob_id(b'new' + bytes([10]))}"
        assert harness.engine.components.originals.content(write["before"].split()[1]) == b"precious\n"
        assert (
            harness.store.read(("part", harness.answers()[1].info["id"], harness.parts("tool")[1]["id"]))
            == harness.parts("tool")[1]
        )


async def test_the_record_says_what_is_intended_before_the_file_is_touched() -> None:
    seen: list[dict[str, Any]] = []

    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        await ctx.before_write({at("a.txt"): b"new\n"})
        seen.append(harness.parts("tool")[0]["state"])
        assert Path("a.txt").read_bytes() == b"old\n"
        await ctx.progress(title="half way", metadata={"so": "far"})
        seen.append(harness.parts("tool")[0]["state"])
        Path("a.txt").write_bytes(b"new\n")
        ctx.after_write(at("a.txt"))
        return "written"

    Path("a.txt").write_bytes(b"old\n")
    async with open_harness(calls(("act", {})), tools=[Acting("act", act)]) as harness:
        await harness.ask()
        intended = {"file": at("a.txt"), "before": f"100644 {blob_id(b'old' + bytes([10]))}"}
        intended |= {"after": blob_id(b"new\n")}
        assert [state["status"] for state in seen] == ["running", "running"]
        assert seen[0]["metadata"] == {"opensesh": {"writes": [intended]}}
        assert seen[1]["metadata"] == {"so": "far", "opensesh": {"writes": [intended]}}
        reverts(harness).revert(harness.session, prompt_of(harness))
        assert files() == {"a.txt": b"old\n"}


async def test_what_a_tool_did_before_it_failed_is_reverted_and_what_it_only_planned_does_not_count() -> None:
    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        await ctx.before_write({at("a.txt"): b"new\n", at("b.txt"): b"new\n", at("c.txt"): None})
        Path("a.txt").write_bytes(b"new\n")
        ctx.after_write(at("a.txt"))
        Path("b.txt").write_bytes(b"by someone else\n")
        raise RuntimeError("the disk is full")

    for name in "abc":
        Path(f"{name}.txt").write_bytes(b"old\n")
    async with open_harness(calls(("act", {})), tools=[Acting("act", act)]) as harness:
        await harness.ask()
        (part,) = harness.parts("tool")
        assert part["state"]["status"] == "error"
        assert [item["file"] for item in part["state"]["metadata"]["opensesh"]["writes"]] == [at("a.txt")]
        reverts(harness).revert(harness.session, prompt_of(harness))
        assert files() == {"a.txt": b"old\n", "b.txt": b"by someone else\n", "c.txt": b"old\n"}


async def test_what_a_command_changed_outside_of_git_is_named_and_left_alone() -> None:
    Path("kept.txt").write_text("kept\n")
    Path("over.txt").write_text("before\n")
    command = "echo shell > over.txt; rm kept.txt; echo new > made.txt"
    script = calls(
        ("bash", {"command": command, "description": "d"}), ("write", {"filePath": at("w.txt"), "content": "w"})
    )
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        left = files()
        done = reverts(harness).revert(harness.session, prompt_of(harness))
        assert [item.name for item in done.left_alone] == ["kept.txt", "made.txt", "over.txt"]
        assert {item.reason for item in done.left_alone} == {
            "a command changed it, and what it held before was not recorded"
        }
        assert files() == {name: data for name, data in left.items() if name != "w.txt"}
        reverts(harness).unrevert(harness.session)
        assert files() == left


async def test_a_command_that_changed_what_a_tool_had_written_does_not_keep_it_from_going_back() -> None:
    Path("a.txt").write_text("one\n")
    script = calls(
        ("read", {"filePath": at("a.txt")}),
        ("write", {"filePath": at("a.txt"), "content": "two\n"}),
        ("bash", {"command": "echo three > a.txt", "description": "d"}),
    )
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        Path("a.txt").write_text("the user's own\n")
        with pytest.raises(RevertConflictError):
            reverts(harness).revert(harness.session, prompt_of(harness))
        Path("a.txt").write_text("three\n")
        assert reverts(harness).revert(harness.session, prompt_of(harness)).left_alone == ()
        assert files() == {"a.txt": b"one\n"}
        reverts(harness).unrevert(harness.session)
        assert files() == {"a.txt": b"three\n"}


async def test_a_tool_that_writes_while_a_command_runs_is_the_one_who_did() -> None:
    Path("a.txt").write_text("one\n")
    script = (
        f'CALL read {{"filePath": "{at("a.txt")}"}}\n---\n'
        'CALL bash {"command": "sleep 0.5", "description": "d"}\n'
        f'CALL write {{"filePath": "{at("a.txt")}", "content": "two\\n"}}\n---\nSAY done'
    )
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        assert files() == {"a.txt": b"two\n"}
        assert reverts(harness).revert(harness.session, prompt_of(harness)).left_alone == ()
        assert files() == {"a.txt": b"one\n"}


async def test_a_command_that_could_not_be_watched_is_named() -> None:
    for number in range(4):
        Path(f"{number}.txt").write_text("x")
    async with open_harness(
        calls(("bash", {"command": "echo hi > 1.txt", "description": "d"})), rules=ALLOW
    ) as harness:
        harness.engine.components.snapshots.limits = SnapshotLimits(watched_files=2)
        await harness.ask()
        assert "opensesh" not in harness.parts("tool")[0]["state"]["metadata"]
        preview = reverts(harness).preview(harness.session, prompt_of(harness))
        assert preview.unwatched == ("echo hi > 1.txt",)
        assert preview.document["commands"] == ["echo hi > 1.txt"]


async def test_what_a_tool_wrote_through_a_link_goes_back_and_the_link_stays() -> None:
    Path("real.txt").write_text("one\n")
    Path("link.txt").symlink_to("real.txt")
    script = calls(("read", {"filePath": at("link.txt")}), ("write", {"filePath": at("link.txt"), "content": "two\n"}))
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        assert Path("real.txt").read_text() == "two\n"
        reverts(harness).revert(harness.session, prompt_of(harness))
        assert Path("link.txt").readlink() == Path("real.txt")
        assert Path("real.txt").read_text() == "one\n"


async def test_when_what_was_put_aside_is_gone_the_texts_of_the_record_still_serve() -> None:
    Path("a.txt").write_text("one\n")
    Path("b.txt").write_text("one\n")
    script = calls(
        ("read", {"filePath": at("a.txt")}),
        ("read", {"filePath": at("b.txt")}),
        ("edit", {"filePath": at("a.txt"), "oldString": "one", "newString": "two"}),
        ("write", {"filePath": at("b.txt"), "content": "two\n"}),
    )
    async with open_harness(script, rules=ALLOW) as harness:
        await harness.ask()
        assert harness.engine.components.originals.drop(set(), days=-1) > 0
        done = reverts(harness).revert(harness.session, prompt_of(harness))
        assert [item.name for item in done.left_alone] == ["b.txt"]
        assert files() == {"a.txt": b"one\n", "b.txt": b"two\n"}


async def test_a_file_too_large_to_keep_is_reported_as_lost() -> None:
    Path("a.txt").write_text("one\n")
    script = calls(("read", {"filePath": at("a.txt")}), ("write", {"filePath": at("a.txt"), "content": "two\n"}))
    async with open_harness(script, rules=ALLOW) as harness:
        assert harness.engine.components.originals.max_file_bytes == 64 << 20
        harness.engine.components.originals.max_file_bytes = 3
        await harness.ask()
        assert [item.name for item in reverts(harness).revert(harness.session, prompt_of(harness)).left_alone] == [
            "a.txt"
        ]
        assert files() == {"a.txt": b"two\n"}


async def test_the_same_content_is_put_aside_once_and_damage_is_noticed() -> None:
    originals = Originals(Memory())
    Path("a").write_bytes(b"same" * 1000)
    Path("b").write_bytes(b"same" * 1000)
    one, two = originals.put("a"), originals.put("b")
    assert one == two
    assert one is not None
    (stored,) = (path for path in Path(originals.folder).rglob("*") if path.is_file())
    assert stored.stat().st_size == originals.size() < 200
    assert originals.put("none") == ("", "")
    assert originals.put(".") is None
    stored.write_bytes(b"damaged")
    assert originals.content(one.oid) is None


@pytest.mark.parametrize("half", [False, True])
async def test_a_process_killed_while_it_wrote_leaves_a_session_that_can_go_back(
    isolated: Path, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(isolated / "state"))
    Path("a.txt").write_text("precious\n")
    with ProcessGroup() as processes:
        processes.start(runners.die_while_writing, str(isolated), half).wait()
    store = runners.tree(str(isolated), "relaxed")
    async with open_engine(".", store=store) as engine:
        (session,) = engine.sessions.list()
        assert await engine.resume(session.id) is not None
        engine.abort(session.id)
        prompt = engine.sessions.messages(session.id)[0].info["id"]
        again = Reverts(engine.sessions, engine.components.snapshots)
        if half:
            assert Path("a.txt").read_text() == "new te"
            with pytest.raises(RevertConflictError):
                again.revert(session.id, prompt)
        again.revert(session.id, prompt, force=half)
        assert Path("a.txt").read_text() == "precious\n"
