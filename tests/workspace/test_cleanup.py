from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opensesh.records import Revert
from opensesh.storage import keys
from opensesh.storage.protocol import StoredMessage
from opensesh.workspace.revert_journal import RevertTrash

from .desk import Desk, contents, creates, edits, write, writes


def events_since(desk: Desk, since: int) -> list[str]:
    return [envelope.event.type for number in range(since, desk.bus.last) if (envelope := desk.bus.next_after(number))]


def shape(desk: Desk, session: str) -> list[tuple[str, list[str]]]:
    return shaped(desk.history(session))


def shaped(messages: Sequence[StoredMessage]) -> list[tuple[str, list[str]]]:
    return [(each.info["id"], [part["id"] for part in each.parts]) for each in messages]


def trash_of(desk: Desk) -> RevertTrash:
    return RevertTrash(desk.sessions, state=str(desk.home / "state"))


def test_what_a_revert_hides_is_gone_after_the_next_prompt_and_kept_in_the_trash(desk: Desk) -> None:
    session = desk.session()
    first = desk.prompt(session)
    desk.step(session, first, writes({"a": "1"}))
    kept = shape(desk, session)
    second = desk.prompt(session)
    desk.step(session, second, writes({"a": "2"}))
    whole = shape(desk, session)
    desk.reverts.revert(session, second)
    last = desk.bus.last
    gone = desk.reverts.cleanup(session)

    assert shape(desk, session) == kept
    assert gone == [name for name, _ in whole[2:]]
    assert events_since(desk, last) == ["message.removed", "message.removed", "session.diff", "session.updated"]
    assert desk.sessions.get(session).revert is None
    assert not list(desk.sessions.store.list(("part", second)))
    assert contents(desk.folder)["a"] == "1"

    (trashed,) = trash_of(desk).of_session(session)
    assert trashed.revert["messageID"] == second
    assert [each.info["id"] for each in trashed.messages] == gone
    after = desk.prompt(session)
    assert shaped(trash_of(desk).history_before(session)) == whole
    assert shape(desk, session)[-1][0] == after


def test_a_partial_revert_keeps_the_message_and_drops_its_later_parts(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    answer = desk.step(session, prompt, edits("README.md", "1\n"), edits("README.md", "2\n"))
    desk.step(session, prompt, writes({"later": "x"}))
    whole = shape(desk, session)
    parts = desk.history(session)[1].parts
    second = [part["id"] for part in parts if part["type"] == "tool"][1]
    desk.reverts.revert(session, answer, second)
    last = desk.bus.last
    gone = desk.reverts.cleanup(session)
    names = [part["id"] for part in parts]
    assert shape(desk, session) == [whole[0], (answer, names[: names.index(second)])]
    assert gone == [whole[2][0]]
    assert events_since(desk, last).count("message.part.removed") == len(names) - names.index(second)
    assert shaped(trash_of(desk).history_before(session)) == whole


def test_a_session_without_a_revert_is_not_touched(desk: Desk) -> None:
    session = desk.session()
    desk.step(session, desk.prompt(session), writes({"a": "1"}))
    last = desk.bus.last
    assert desk.reverts.cleanup(session) == []
    assert desk.bus.last == last


def test_positions_count_and_not_names_that_wrapped(desk: Desk) -> None:
    session = desk.session()
    texts: dict[str, str] = {}
    for number, name in enumerate(("msg_fff000000000AAAAAAAAAAAAAA", "msg_000000000001AAAAAAAAAAAAAA")):
        moment = 1_786_706_395_136 + (number * 2 - 1) * 1000
        info: dict[str, Any] = {"id": name, "sessionID": session, "role": "user", "time": {"created": moment}}
        desk.sessions.update_message(info)
        texts[name] = desk.part(session, name, {"type": "text", "text": name})
    old, new = texts
    desk.reverts.revert(session, new)
    assert desk.reverts.cleanup(session) == [new]
    assert [name for name, _ in shape(desk, session)] == [old]


def test_a_point_that_is_gone_only_clears_the_record(desk: Desk) -> None:
    session = desk.session()
    desk.step(session, desk.prompt(session))
    whole = shape(desk, session)
    desk.sessions.update(session, lambda info: info.update(revert={"messageID": "msg_gone"}))
    assert desk.reverts.cleanup(session) == []
    assert shape(desk, session) == whole
    assert desk.sessions.get(session).revert is None


def test_an_interrupted_cleaning_can_be_run_again(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    kept = shape(desk, session)
    second = desk.prompt(session)
    desk.step(session, second, writes({"a": "1"}))
    desk.step(session, second, writes({"a": "2"}))
    whole = shape(desk, session)
    desk.reverts.revert(session, second)
    hidden = desk.history(session)[1:]
    trash_of(desk).add_messages(session, desk.sessions.get(session).document["revert"], hidden)
    desk.sessions.remove_message(session, hidden[-1].info["id"])
    assert desk.sessions.get(session).revert == Revert(
        message_id=second,
        snapshot=desk.sessions.get(session).document["revert"]["snapshot"],
        diff=desk.sessions.get(session).document["revert"]["diff"],
    )
    desk.reverts.cleanup(session)
    assert shape(desk, session) == kept
    assert desk.sessions.store.read(keys.message(session, prompt))
    assert shaped(trash_of(desk).history_before(session)) == whole


def test_contents_that_only_the_journal_had_go_to_the_trash_too(plain: Desk) -> None:
    session = plain.session()
    prompt = plain.prompt(session)
    plain.step(session, prompt, creates("a.txt", "precious\n"))
    plain.reverts.revert(session, prompt)
    assert contents(plain.folder) == {}
    plain.reverts.cleanup(session)
    (trashed,) = trash_of(plain).of_session(session)
    kept = [path for path in Path(trashed.folder).rglob("*") if path.is_file()]
    assert any(path.read_text() == "precious\n" for path in kept)


def test_the_trash_is_emptied_only_of_what_is_old(desk: Desk) -> None:
    session = desk.session()
    prompt = desk.prompt(session)
    desk.reverts.revert(session, prompt)
    desk.reverts.cleanup(session)
    trash = trash_of(desk)
    assert trash.empty(days=30) == 0
    (trashed,) = trash.of_session(session)
    old = os.path.join(os.path.dirname(trashed.folder), "1700000000000")
    os.rename(trashed.folder, old)
    assert trash.empty(days=30) == 1
    assert trash.of_session(session) == []


def test_after_cleaning_the_session_continues_and_can_be_reverted_again(desk: Desk) -> None:
    session = desk.session()
    first = desk.prompt(session)
    desk.step(session, first, writes({"a": "1"}))
    second = desk.prompt(session)
    desk.step(session, second, writes({"a": "2"}))
    desk.reverts.revert(session, second)
    desk.reverts.cleanup(session)
    third = desk.prompt(session)
    desk.step(session, third, writes({"a": "3"}))
    write(desk.folder, {"mine": "m"})
    desk.reverts.revert(session, third)
    assert contents(desk.folder)["a"] == "1"
    desk.reverts.revert(session, first)
    assert "a" not in contents(desk.folder)
    assert contents(desk.folder)["mine"] == "m"
