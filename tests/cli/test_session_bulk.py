from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli import session_bulk
from opensesh.cli.app import Parser
from opensesh.errors import NotFound, UsageError
from opensesh.storage.json_tree import JsonTree
from opensesh.storage.leases import Leases

from ..history.sample_tree import DAY, Sample, contents


class Bulk:
    """The actions as ``opensesh session`` offers them."""

    def __init__(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capfdbinary
        self.error = ""
        self.code = 0

    def run(self, *words: str) -> str:
        parser = Parser(prog="opensesh session")
        session_bulk.declare(parser)
        for each in parser.actions.values():
            for flag in ("--json", "--utc"):
                each.add_argument(flag, action="store_true")
            each.add_argument("--store")
        self.code = session_bulk.run(parser.parse_args(words))
        sys.stdout.flush()
        out, error = self._capture.readouterr()
        self.error = error.decode()
        return out.decode()

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def bulk(capfdbinary: pytest.CaptureFixture[bytes]) -> Bulk:
    return Bulk(capfdbinary)


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    monkeypatch.setenv("OPENSESH_STORE", str(root))
    return Sample(root)


def test_sessions_are_removed_by_what_they_have_in_common_and_come_back(bulk: Bulk, sample: Sample) -> None:
    old = sample.talk("old")
    sample.clock += 30 * DAY
    new, empty = sample.talk("new"), sample.session("empty")
    before = contents(sample.root)
    assert bulk.json("remove", "--before", "2026-10-01", "--dry-run")["sessions"] == [old["id"]]
    assert bulk.json("remove", "--empty", "--dry-run")["sessions"] == [empty["id"]]
    assert bulk.json("remove", "--larger", "1K", "--dry-run")["sessions"] == [new["id"], old["id"]]
    assert set(bulk.json("remove", "--project", "shop", "--dry-run")["sessions"]) == {old["id"], new["id"], empty["id"]}
    assert contents(sample.root) == before
    done = bulk.json("remove", "--before", "2026-10-01", "--yes")
    assert done["sessions"] == [old["id"]]
    assert done["files"] == 1 + 4 + 8
    assert list(bulk.json("trash")["trash"][0]["sessions"].values()) == ["old"]
    assert "13 files brought back." in bulk.run("restore", "last")
    assert contents(sample.root) == before


def test_nothing_is_removed_without_a_word(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk()
    for words in (
        ("remove",),
        ("remove", "--before", "1m"),
        ("remove", session["id"]),
        ("remove", session["id"], "--empty"),
    ):
        with pytest.raises(UsageError):
            bulk.run(*words)
    with pytest.raises(NotFound):
        bulk.run("restore", "last")
    with pytest.raises(UsageError, match="500K, 20M or 1G"):
        bulk.run("remove", "--larger", "huge", "--yes")


def test_sessions_are_archived_and_taken_out_again(bulk: Bulk, sample: Sample) -> None:
    one, other = sample.talk("one"), sample.talk("other")
    done = bulk.json("archive", "--project", "shop", "--yes")
    assert set(done["sessions"]) == {one["id"], other["id"]}
    assert "taken out of the archive: one" in bulk.run("archive", one["id"], "--undo")
    tree = JsonTree(sample.root)
    assert "archived" not in tree.read(("session", "proj", one["id"]))["time"]
    assert set(bulk.json("remove", "--archived", "--dry-run")["sessions"]) == {other["id"]}


def test_a_running_session_is_left_alone_and_said_so(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk()
    with Leases(JsonTree(sample.root)).acquire(session["id"], "opensesh run"):
        bulk.run("remove", session["id"], "--yes")
    assert bulk.code == 4
    assert "was left alone: being run by opensesh run" in bulk.error


def test_a_shared_session_says_that_it_is_still_shared(bulk: Bulk, sample: Sample) -> None:
    session = sample.talk(share={"url": "https://example.com/s/1"})
    bulk.run("remove", session["id"], "--yes")
    assert "1 of them are still shared" in bulk.error


def test_the_trash_is_emptied_only_when_asked(bulk: Bulk, sample: Sample) -> None:
    bulk.run("remove", sample.talk()["id"], "--yes")
    assert "1 sessions" in bulk.run("trash")
    with pytest.raises(UsageError):
        bulk.run("trash", "--empty")
    assert bulk.json("trash", "--empty", "--yes", "--older", "30d")["trash"] == []
    assert len(bulk.json("trash", "--empty", "--yes")["trash"]) == 1
    assert bulk.json("trash")["trash"] == []
