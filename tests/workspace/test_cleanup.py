from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opensesh.records import Revert
from opensesh.storage import keys
from opensesh.storage.protocol import StoredMessage
from opensesh.workspace.revert_journal import RevertTrash

from .project_setup import Workspace, contents, creates, edits, write, writes


def events_since(workspace: Workspace, since: int) -> list[str]:
    return [
        envelope.event.type
        for number in range(since, workspace.bus.last)
        if (envelope := workspace.bus.next_after(number))
    ]


def shape(workspace: Workspace, session: str) -> list[tuple[str, list[str]]]:
    return shaped(workspace.history(session))


def shaped(messages: Sequence[StoredMessage]) -> list[tuple[str, list[str]]]:
    return [(message.info["id"], [part["id"] for part in message.parts]) for message in messages]


def trash_of(workspace: Workspace) -> RevertTrash:
    return RevertTrash(workspace.sessions)


def test_what_a_revert_hides_is_gone_after_the_next_prompt_and_kept_in_the_trash(workspace: Workspace) -> None:
    session = workspace.session()
    first = workspace.prompt(session)
    workspace.step(session, first, writes({"a": "1"}))
    kept = shape(workspace, session)
    second = workspace.prompt(session)
    workspace.step(session, second, writes({"a": "2"}))
    whole = shape(workspace, session)
    workspace.reverts.revert(session, second)
    last = workspace.bus.last
    gone = workspace.reverts.cleanup(session)

    assert shape(workspace, session) == kept
    assert gone == [name for name, _ in whole[2:]]
    assert events_since(workspace, last) == ["message.removed", "message.removed", "session.diff", "session.updated"]
    assert workspace.sessions.get(session).revert is None
    assert not list(workspace.sessions.store.list(("part", second)))
    assert contents(workspace.folder)["a"] == "1"

    (trashed,) = trash_of(workspace).of_session(session)
    assert trashed.revert["messageID"] == second
    assert [message.info["id"] for message in trashed.messages] == gone
    after = workspace.prompt(session)
    assert shaped(trash_of(workspace).history_before(session)) == whole
    assert shape(workspace, session)[-1][0] == after


def test_a_partial_revert_keeps_the_message_and_drops_its_later_parts(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    answer = workspace.step(session, prompt, edits("README.md", "1\n"), edits("README.md", "2\n"))
    workspace.step(session, prompt, writes({"later": "x"}))
    whole = shape(workspace, session)
    parts = workspace.history(session)[1].parts
    second = [part["id"] for part in parts if part["type"] == "tool"][1]
    workspace.reverts.revert(session, answer, second)
    last = workspace.bus.last
    gone = workspace.reverts.cleanup(session)
    names = [part["id"] for part in parts]
    assert shape(workspace, session) == [whole[0], (answer, names[: names.index(second)])]
    assert gone == [whole[2][0]]
    assert events_since(workspace, last).count("message.part.removed") == len(names) - names.index(second)
    assert shaped(trash_of(workspace).history_before(session)) == whole


def test_a_session_without_a_revert_is_not_touched(workspace: Workspace) -> None:
    session = workspace.session()
    workspace.step(session, workspace.prompt(session), writes({"a": "1"}))
    last = workspace.bus.last
    assert workspace.reverts.cleanup(session) == []
    assert workspace.bus.last == last


def test_positions_count_and_not_names_that_wrapped(workspace: Workspace) -> None:
    session = workspace.session()
    texts: dict[str, str] = {}
    for number, name in enumerate(("msg_fff000000000AAAAAAAAAAAAAA", "msg_000000000001AAAAAAAAAAAAAA")):
        moment = 1_786_706_395_136 + (number * 2 - 1) * 1000
        info: dict[str, Any] = {"id": name, "sessionID": session, "role": "user", "time": {"created": moment}}
        workspace.sessions.update_message(info)
        texts[name] = workspace.part(session, name, {"type": "text", "text": name})
    old, new = texts
    workspace.reverts.revert(session, new)
    assert workspace.reverts.cleanup(session) == [new]
    assert [name for name, _ in shape(workspace, session)] == [old]


def test_a_point_that_is_gone_only_clears_the_record(workspace: Workspace) -> None:
    session = workspace.session()
    workspace.step(session, workspace.prompt(session))
    whole = shape(workspace, session)
    workspace.sessions.update(session, lambda info: info.update(revert={"messageID": "msg_gone"}))
    assert workspace.reverts.cleanup(session) == []
    assert shape(workspace, session) == whole
    assert workspace.sessions.get(session).revert is None


def test_an_interrupted_cleaning_can_be_run_again(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    kept = shape(workspace, session)
    second = workspace.prompt(session)
    workspace.step(session, second, writes({"a": "1"}))
    workspace.step(session, second, writes({"a": "2"}))
    whole = shape(workspace, session)
    workspace.reverts.revert(session, second)
    hidden = workspace.history(session)[1:]
    trash_of(workspace).add_messages(session, workspace.sessions.get(session).document["revert"], hidden)
    workspace.sessions.remove_message(session, hidden[-1].info["id"])
    assert workspace.sessions.get(session).revert == Revert(
        message_id=second,
        snapshot=workspace.sessions.get(session).document["revert"]["snapshot"],
        diff=workspace.sessions.get(session).document["revert"]["diff"],
    )
    workspace.reverts.cleanup(session)
    assert shape(workspace, session) == kept
    assert workspace.sessions.store.read(keys.message(session, prompt))
    assert shaped(trash_of(workspace).history_before(session)) == whole


def test_contents_that_only_the_journal_had_go_to_the_trash_too(plain: Workspace) -> None:
    session = plain.session()
    prompt = plain.prompt(session)
    plain.step(session, prompt, creates("a.txt", "precious\n"))
    plain.reverts.revert(session, prompt)
    assert contents(plain.folder) == {}
    plain.reverts.cleanup(session)
    (trashed,) = trash_of(plain).of_session(session)
    kept = [path for path in Path(trashed.folder).rglob("*") if path.is_file()]
    assert any(path.read_text() == "precious\n" for path in kept)


def test_the_trash_is_emptied_only_of_what_is_old(workspace: Workspace) -> None:
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.reverts.revert(session, prompt)
    workspace.reverts.cleanup(session)
    trash = trash_of(workspace)
    assert trash.empty(days=30) == 0
    (trashed,) = trash.of_session(session)
    old = os.path.join(os.path.dirname(trashed.folder), "1700000000000")
    os.rename(trashed.folder, old)
    assert trash.empty(days=30) == 1
    assert trash.of_session(session) == []


def test_after_cleaning_the_session_continues_and_can_be_reverted_again(workspace: Workspace) -> None:
    session = workspace.session()
    first = workspace.prompt(session)
    workspace.step(session, first, writes({"a": "1"}))
    second = workspace.prompt(session)
    workspace.step(session, second, writes({"a": "2"}))
    workspace.reverts.revert(session, second)
    workspace.reverts.cleanup(session)
    third = workspace.prompt(session)
    workspace.step(session, third, writes({"a": "3"}))
    write(workspace.folder, {"mine": "m"})
    workspace.reverts.revert(session, third)
    assert contents(workspace.folder)["a"] == "1"
    workspace.reverts.revert(session, first)
    assert "a" not in contents(workspace.folder)
    assert contents(workspace.folder)["mine"] == "m"
