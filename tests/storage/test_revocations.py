from __future__ import annotations

import os
from pathlib import Path

import pytest

from opensesh.errors import InvalidKeyError
from opensesh.records import Share, view
from opensesh.storage import paths, revocations
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import Damage


def share(secret: str, server: str = "https://example.invalid") -> Share:
    return view({"id": "s", "secret": secret, "url": f"{server}/s/s", "later": [1]}, Share)


def folder() -> Path:
    return Path(paths.state()) / "unshare"


def test_nothing_waits_where_nothing_was_noted() -> None:
    assert list(revocations.waiting()) == []
    revocations.done("ses_x", share("one"))
    assert not folder().exists()


def test_a_note_stays_until_it_is_done() -> None:
    revocations.note("ses_b", share("two"))
    revocations.note("ses_a", share("one"))
    assert [(name, result.secret) for name, result in revocations.waiting()] == [("ses_a", "one"), ("ses_b", "two")]
    assert next(revocations.waiting())[1].document == share("one").document
    revocations.done("ses_a", share("one", "https://another.invalid"))
    for _ in range(2):
        revocations.done("ses_a", share("one"))
    assert [name for name, _ in revocations.waiting()] == ["ses_b"]


def test_a_damaged_note_is_reported_and_hides_no_other() -> None:
    revocations.note("ses_a", share("one"))
    revocations.note("ses_c", share("three"))
    for name, data in (
        ("ses_b.json", b'{"secret": "tw'),
        ("ses_d.json", b"[]"),
        ("ses_e.json", b""),
        (".ses_f.json.1.tmp", b"{"),
        ("._ses_a.json", b"from a Mac"),
        ("notes.txt", b"mine"),
    ):
        (folder() / name).write_bytes(data)
    (folder() / "ses_g.json").mkdir()
    reports: list[Damage] = []
    assert [name for name, _ in revocations.waiting(report=reports.append)] == ["ses_a", "ses_c"]
    assert [os.path.basename(report.path) for report in reports] == [f"ses_{item}.json" for item in "bdeg"]
    assert reports[-1].reason == "cannot be read: not a regular file"
    assert (folder() / "ses_b.json").read_bytes() == b'{"secret": "tw'


def test_every_share_of_a_session_has_a_note_of_its_own() -> None:
    assert revocations.of("ses_a") == []
    elsewhere = share("two", "https://another.invalid")
    for item in (share("one"), elsewhere, share("one"), share("guess")):
        revocations.note("ses_a", item)
    revocations.note("ses_ab", share("other"))
    assert sorted(item.secret for item in revocations.of("ses_a")) == ["guess", "one", "two"]
    assert revocations.is_waiting("ses_a", share("one"))
    revocations.done("ses_a", share("one"))
    assert not revocations.is_waiting("ses_a", share("one"))
    assert revocations.is_waiting("ses_a", elsewhere)
    assert sorted(result.secret for _, result in revocations.waiting()) == ["other", "two"]


def test_a_share_from_before_shares_had_names_is_noted_as_well() -> None:
    old = view({"secret": "s", "url": "https://opencode.ai/s/abc"}, Share)
    revocations.note("ses_a", old)
    assert [result.document for _, result in revocations.waiting()] == [old.document]
    assert revocations.is_waiting("ses_a", old)
    revocations.done("ses_a", old)
    assert revocations.of("ses_a") == []


def test_the_notes_of_one_session_are_found_if_they_can_be_read() -> None:
    revocations.note("ses_a", share("one"))
    (result,) = revocations.of("ses_a")
    assert result.document == share("one").document
    (folder() / "ses_a.json").write_bytes(b'{"secret": "on')
    assert revocations.of("ses_a") == [result]
    next(folder().glob("ses_a.*.json")).write_bytes(b"")
    assert revocations.of("ses_a") == []


def test_a_note_done_by_another_process_meanwhile_is_passed_over() -> None:
    for name in ("ses_a", "ses_b", "ses_c"):
        revocations.note(name, share(name))
    waiting = revocations.waiting()
    assert next(waiting)[0] == "ses_a"
    revocations.done("ses_b", share("ses_b"))
    assert [name for name, _ in waiting] == ["ses_c"]


def test_a_session_name_cannot_leave_the_folder() -> None:
    for name in ("../../x", "", "a/b"):
        with pytest.raises(InvalidKeyError):
            revocations.note(name, share("x"))
        with pytest.raises(InvalidKeyError):
            revocations.of(name)


def test_a_note_without_a_store_or_of_one_that_is_gone_is_a_matter_of_every_store(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    revocations.note("ses_a", share("one"))
    revocations.note("ses_b", share("two"), store=str(there), why="removed")
    assert [name for name, _ in revocations.waiting(JsonTree(here))] == ["ses_a"]
    (tmp_path / "link").symlink_to(there)
    result = dict(revocations.waiting(JsonTree(tmp_path / "link")))
    assert [(revocations.store_of(value), revocations.reason_of(value)) for value in result.values()] == [
        ("", ""),
        (str(there), "removed"),
    ]
    there.rmdir()
    assert [name for name, _ in revocations.waiting(JsonTree(here))] == ["ses_a", "ses_b"]
