from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh import ids
from opensesh.bus import Bus, Envelope
from opensesh.errors import InvalidIDError, InvalidKeyError, NotFoundError, RecordError, UsageError
from opensesh.project import ProjectLocation
from opensesh.records import Rule, Session
from opensesh.sessions import Sessions, default_title, fork_title
from opensesh.storage import revocations
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import StoredMessage

PLACE = ProjectLocation("/srv/dev/eastore", "abc123", "/srv/dev/eastore", "/srv/dev/eastore", "git")


class EventRecorder:
    def __init__(self, bus: Bus) -> None:
        self.envelopes: list[Envelope] = []
        bus.listen(self.envelopes.append)

    def types(self) -> list[str]:
        result = [envelope.event.type for envelope in self.envelopes]
        self.envelopes.clear()
        return result


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def recorder(bus: Bus) -> EventRecorder:
    return EventRecorder(bus)


@pytest.fixture
def sessions(bus: Bus, tmp_path: Path) -> Sessions:
    return Sessions(JsonTree(tmp_path / "storage", durability="relaxed"), PLACE, bus=bus)


def add(sessions: Sessions, session: Session, role: str, text: str, **more: Any) -> str:
    message: dict[str, Any] = {
        "id": ids.ascending("msg"),
        "sessionID": session.id,
        "role": role,
        "time": {"created": ids.now_ms()},
    }
    sessions.update_message(message | more)
    part = {
        "id": ids.ascending("prt"),
        "sessionID": session.id,
        "messageID": message["id"],
        "type": "text",
        "text": text,
    }
    sessions.update_part(part)
    return message["id"]


def talk(sessions: Sessions, session: Session, *prompts: str) -> list[str]:
    made: list[str] = []
    for prompt in prompts:
        made.append(add(sessions, session, "user", prompt))
        made.append(add(sessions, session, "assistant", f"re: {prompt}", parentID=made[-1]))
    return made


def test_the_sessions_of_a_folder_are_opened_by_its_path(tmp_path: Path) -> None:
    session = Sessions.open(tmp_path, tmp_path / "storage").create(title="T")
    assert list(Sessions.open(str(tmp_path), str(tmp_path / "storage")).list()) == [session]


def test_what_is_not_valid_is_not_stored(sessions: Sessions, recorder: EventRecorder) -> None:
    wrong: Any = 5
    with pytest.raises(RecordError, match="title"):
        sessions.create(title=wrong)
    with pytest.raises(RecordError, match="permission"):
        sessions.create(permission=[Rule(permission="bash", pattern="*", action=wrong)])
    several: Any = ({"bash": "deny"}, [{"permission": "bash", "pattern": "*", "action": "deny"}])
    for rules in several:
        with pytest.raises(UsageError, match=r"a list of opensesh\.records\.Rule"):
            sessions.create(permission=rules)
    session = sessions.create(title="T")
    before = list(sessions.list())
    with pytest.raises(RecordError, match="title"):
        sessions.rename(session.id, wrong)
    assert list(sessions.list()) == before == [session]
    info: dict[str, Any] = {"id": ids.ascending("msg"), "sessionID": session.id, "role": "user"}
    info["time"] = {"created": ids.now_ms()}
    part = {"id": ids.ascending("prt"), "sessionID": session.id, "messageID": info["id"], "type": "text", "text": 5}
    recorder.types()
    for message in (StoredMessage(info | {"variant": 5}, []), StoredMessage(info, [part])):
        with pytest.raises(RecordError):
            sessions.add_message(message)
    assert not sessions.messages(session.id)
    assert not recorder.types()


def test_a_new_session_has_opencodes_fields_in_opencodes_order(sessions: Sessions, recorder: EventRecorder) -> None:
    session = sessions.create()
    assert list(session.document) == ["id", "slug", "version", "projectID", "directory", "title", "time"]
    assert session.has_default_title
    assert session.slug.count("-") == 1
    assert recorder.types() == ["session.created", "session.updated"]
    assert sessions.get(session.id) == session


def test_a_child_names_its_parent_and_may_carry_rules(sessions: Sessions) -> None:
    parent = sessions.create(title="p")
    child = sessions.create(parent_id=parent.id, permission=[Rule(permission="todowrite", pattern="*", action="deny")])
    assert list(child.document)[5:8] == ["parentID", "title", "permission"]
    assert child.title.startswith("Child session - ")
    assert sessions.children(parent.id) == [child]


def test_a_given_id_is_checked_and_can_never_leave_the_store(sessions: Sessions) -> None:
    assert sessions.create(session_id="ses_mine").id == "ses_mine"
    with pytest.raises(InvalidIDError):
        sessions.create(session_id="msg_mine")
    with pytest.raises(InvalidKeyError):
        sessions.create(session_id="ses_/../../../escaped")
    with pytest.raises(InvalidKeyError):
        sessions.get("ses_../../x")


def test_a_session_is_found_in_any_project_it_is_filed_under(sessions: Sessions) -> None:
    elsewhere = Sessions(sessions.store, ProjectLocation("/other", "other", "/other", "/other", "git")).create(
        title="there"
    )
    assert sessions.get(elsewhere.id).title == "there"
    assert sessions.rename(elsewhere.id, "renamed").project_id == "other"
    with pytest.raises(NotFoundError, match="there is no session ses_nope"):
        sessions.get("ses_nope")


def test_updates_touch_by_default(bus: Bus) -> None:
    now = [1_000]
    sessions = Sessions(Memory(), PLACE, bus=bus, clock=lambda: now[0])
    session = sessions.create(title="a")
    now[0] = 2_000
    assert sessions.rename(session.id, "b").updated == 1_000
    assert sessions.touch(session.id).updated == 2_000
    now[0] = 3_000
    archived = sessions.archive(session.id)
    assert (archived.time.archived, archived.updated) == (3_000, 2_000)
    assert "archived" not in sessions.archive(session.id, archived=False).document["time"]


def test_an_edit_that_fails_changes_nothing_and_publishes_nothing(sessions: Sessions, recorder: EventRecorder) -> None:
    session = sessions.create(title="a")
    recorder.types()

    def edit(info: dict[str, Any]) -> None:
        info["title"] = "half"
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        sessions.update(session.id, edit)
    assert sessions.get(session.id).title == "a"
    assert recorder.types() == []


def test_a_fork_copies_everything_under_new_names(sessions: Sessions, recorder: EventRecorder) -> None:
    session = sessions.create(title="Work")
    made = talk(sessions, session, "one", "two")
    sessions.update(session.id, lambda info: info.update(metadata={"ticket": 7}, workspaceID="wrk_1"))
    recorder.types()
    fork = sessions.fork(session.id)
    assert (fork.title, fork.parent_id) == ("Work (fork #1)", None)
    assert (fork.document["metadata"], fork.document["workspaceID"]) == ({"ticket": 7}, "wrk_1")
    copies = sessions.messages(fork.id)
    assert [copy.parts[0]["text"] for copy in copies] == ["one", "re: one", "two", "re: two"]
    assert not {copy.info["id"] for copy in copies} & set(made)
    assert [copies[1].info["parentID"], copies[3].info["parentID"]] == [copies[0].info["id"], copies[2].info["id"]]
    assert all(
        part["sessionID"] == fork.id and part["messageID"] == copy.info["id"] for copy in copies for part in copy.parts
    )
    assert [copy.info["time"] for copy in copies] == [old.info["time"] for old in sessions.messages(session.id)]
    assert recorder.types()[0::9] == ["session.created", "session.updated"]


def test_what_names_a_message_or_a_part_names_its_copy_in_a_fork(sessions: Sessions) -> None:
    session = sessions.create(title="Work")
    made = talk(sessions, session, "one", "two")
    first = sessions.messages(session.id)[0]
    masked = {"opensesh": {"masked": [first.parts[0]["id"], "prt_elsewhere"], "kept": 1}}
    sessions.update_message(sessions.messages(session.id)[-1].info | masked)
    wish = {"id": ids.ascending("prt"), "sessionID": session.id, "messageID": made[-2], "type": "compaction"}
    sessions.update_part(wish | {"auto": True, "tail_start_id": made[0]})
    copies = sessions.messages(sessions.fork(session.id).id)
    assert copies[2].parts[-1]["tail_start_id"] == copies[0].info["id"]
    assert copies[3].info["opensesh"] == {"masked": [copies[0].parts[0]["id"], "prt_elsewhere"], "kept": 1}


def test_a_fork_stops_before_the_message_by_position(wrap_corpus: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(wrap_corpus / "storage", tmp_path / "storage")
    sessions = Sessions(JsonTree(tmp_path / "storage", durability="relaxed"), PLACE)
    (session,) = sessions.list()
    history = sessions.messages(session.id)
    fork = sessions.fork(session.id, before=history[9].info["id"])
    assert [copy.parts[0].get("text") for copy in sessions.messages(fork.id)] == [
        old.parts[0].get("text") for old in history[:9]
    ]
    with pytest.raises(NotFoundError, match="no message msg_nope"):
        sessions.fork(session.id, before="msg_nope")


@pytest.mark.parametrize(
    ("title", "forked"),
    [
        ("Work", "Work (fork #1)"),
        ("Work (fork #1)", "Work (fork #2)"),
        ("Work (fork #9)", "Work (fork #10)"),
        ("Work (fork #1) more", "Work (fork #1) more (fork #1)"),
        ("(fork #1)", "(fork #1) (fork #1)"),
        ("two\nlines (fork #1)", "two\nlines (fork #1) (fork #1)"),
    ],
)
def test_fork_titles_count(title: str, forked: str) -> None:
    assert fork_title(title) == forked


def test_descendants_are_walked_in_order_and_a_circle_does_not_trap_them(sessions: Sessions) -> None:
    root = sessions.create(title="root")
    one = sessions.create(title="one", parent_id=root.id)
    two = sessions.create(title="two", parent_id=root.id)
    deep = sessions.create(title="deep", parent_id=one.id)
    sessions.update(root.id, lambda info: info.update(parentID=deep.id))
    assert [descendant.title for descendant in sessions.descendants(root.id)] == ["one", "deep", "two"]
    assert [child.id for child in sessions.children(root.id)] == [one.id, two.id]


def test_ancestors_are_those_that_are_still_there_and_a_circle_does_not_trap_them(sessions: Sessions) -> None:
    root = sessions.create()
    child = sessions.create(parent_id=root.id)
    leaf = sessions.create(parent_id=child.id)
    assert [ancestor.id for ancestor in sessions.ancestors(leaf.id)] == [child.id, root.id]
    assert sessions.ancestors(root.id) == []
    sessions.update(root.id, lambda info: info.update(parentID=leaf.id))
    assert [ancestor.id for ancestor in sessions.ancestors(leaf.id)] == [child.id, root.id]
    sessions.update(child.id, lambda info: info.update(parentID=ids.descending("ses")))
    assert [ancestor.id for ancestor in sessions.ancestors(leaf.id)] == [child.id]


def test_a_message_with_its_parts_is_published_once_all_of_it_is_stored(
    sessions: Sessions, recorder: EventRecorder
) -> None:
    session = sessions.create()
    recorder.types()
    info = {"id": ids.ascending("msg"), "sessionID": session.id, "role": "user", "time": {"created": ids.now_ms()}}
    part = {"id": ids.ascending("prt"), "sessionID": session.id, "messageID": info["id"], "type": "text", "text": "x"}
    sessions.add_message(StoredMessage(info, [part]))
    assert sessions.messages(session.id) == [StoredMessage(info, [part])]
    assert recorder.types() == ["message.updated", "message.part.updated"]


def test_removing_takes_everything_with_it_and_leaves_no_empty_folder(
    sessions: Sessions, recorder: EventRecorder
) -> None:
    keep = sessions.create(title="keep")
    talk(sessions, keep, "stays")
    root = sessions.create(title="root")
    child = sessions.create(title="child", parent_id=root.id)
    for item in (root, child):
        talk(sessions, item, "goes")
        sessions.set_todos(item.id, [{"content": "x", "status": "pending", "priority": "low", "id": "1"}])
        sessions.store.write(("session_diff", item.id), [])
    sessions.store.write(("session_share", root.id), {"id": "s", "secret": "hush", "url": "https://example.invalid/s"})
    kept = len(sessions.store.list(("message", keep.id))) + 2 + 1
    recorder.types()
    sessions.purge(root.id)
    assert recorder.types() == ["session.deleted", "session.deleted"]
    assert len(sessions.store.list()) == kept
    root_folder = Path(sessions.store.place)
    assert sorted(folder.name for folder in (root_folder / "message").iterdir()) == [keep.id]
    assert len(list((root_folder / "part").iterdir())) == 2
    assert [(name, share.secret) for name, share in revocations.waiting()] == [(root.id, "hush")]
    with pytest.raises(NotFoundError):
        sessions.purge(root.id)


def test_messages_and_parts_are_stored_before_they_are_published(bus: Bus) -> None:
    sessions = Sessions(Memory(), PLACE, bus=bus)
    session = sessions.create(title="a")
    seen: list[int] = []
    bus.listen(lambda _: seen.append(len(sessions.store.list())))
    message = add(sessions, session, "user", "hello")
    assert seen == [2, 3]
    part = sessions.messages(session.id)[0].parts[0]
    recorder = EventRecorder(bus)
    sessions.update_part(part | {"text": "hello!"}, delta="!")
    assert recorder.envelopes[0].document["properties"]["delta"] == "!"
    sessions.remove_part(session.id, message, part["id"])
    sessions.remove_message(session.id, message)
    assert recorder.types() == ["message.part.updated", "message.part.removed", "message.removed"]
    assert sessions.messages(session.id) == []


def test_removing_a_message_takes_its_parts(sessions: Sessions) -> None:
    session = sessions.create(title="a")
    message = add(sessions, session, "user", "hello")
    sessions.remove_message(session.id, message)
    assert sessions.store.list(("part",)) == []


def test_todos_and_diffs_are_empty_until_there_are_some(sessions: Sessions, recorder: EventRecorder) -> None:
    session = sessions.create(title="a")
    assert sessions.todos(session.id) == sessions.diff(session.id) == []
    recorder.types()
    sessions.set_todos(session.id, [{"content": "x", "status": "pending", "priority": "high", "id": "1"}])
    assert sessions.todos(session.id)[0]["content"] == "x"
    assert recorder.types() == ["todo.updated"]


def test_default_titles_are_iso_with_milliseconds() -> None:
    assert default_title(1768073802911) == "New session - 2026-01-10T19:36:42.911Z"
    assert default_title(1768073802000, child=True) == "Child session - 2026-01-10T19:36:42.000Z"


def test_lists_that_cannot_be_read_are_empty_and_reported(sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    session = sessions.create()
    for key in (("todo", session.id), ("session_diff", session.id)):
        sessions.store.write(key, [])
        Path(sessions.store.locate(key)).write_bytes(b"[{")
    assert sessions.todos(session.id) == sessions.diff(session.id) == []
    assert len(caplog.records) == 2
    assert Path(sessions.store.locate(("todo", session.id))).read_bytes() == b"[{"
