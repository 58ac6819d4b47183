from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.storage.json_tree.store import JsonTree

from ..history.sample_tree import Sample
from .conftest import FIXTURES
from .running import Screen

CORPUS = str(FIXTURES / "opencode-1.1.65")


@pytest.mark.parametrize(("keys", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1), ("\x04", 1, 1)])
def test_only_a_yes_is_a_yes(sample: Sample, screen: Callable[..., Screen], keys: str, code: int, left: int) -> None:
    session = sample.talk("the orchard")
    asked = screen("session", "remove", session["id"])
    asked.until("[y/N]")
    assert "the orchard" in asked.text
    asked.type(keys)
    assert asked.end() == code
    assert "should not have happened" not in asked.text
    assert len(JsonTree(sample.root).list(("session",))) == left


@pytest.mark.parametrize("words", [("remove", "{}"), ("share", "{}"), ("trash", "--empty")], ids=lambda words: words[0])
def test_who_wants_quiet_is_asked_nothing(
    sample: Sample, screen: Callable[..., Screen], words: tuple[str, ...]
) -> None:
    gone, here = sample.talk("gone"), sample.talk("here")
    assert screen("session", "remove", gone["id"], "--yes").end() == 0
    asked = screen("session", *(word.format(here["id"]) for word in words), "--quiet")
    assert asked.end() == 2
    assert "--yes" in asked.text
    assert "[y/N]" not in asked.text


def test_a_folder_that_is_elsewhere_is_asked_for_and_may_be_left_as_it_is(screen: Callable[..., Screen]) -> None:
    asked = screen("import", CORPUS, "--dry-run")
    asked.until("[leave it]")
    asked.type("\x04")
    assert asked.end() == 0
    assert "would be added" in asked.text
    assert screen("import", CORPUS, "--dry-run", "--quiet").end() == 0


def test_a_question_stays_out_of_the_document(sample: Sample, screen: Callable[..., Screen], tmp_path: Path) -> None:
    session = sample.talk()
    out = tmp_path / "out.json"
    asked = screen("session", "remove", session["id"], "--json", output=out)
    asked.until("[y/N]")
    asked.type("y\n")
    assert asked.end() == 0
    assert json.loads(out.read_text())["sessions"] == [session["id"]]


def test_after_an_interruption_the_next_line_is_a_new_one(sample: Sample, screen: Callable[..., Screen]) -> None:
    asked = screen("session", "remove", sample.talk()["id"])
    asked.until("[y/N]")
    asked.interrupt()
    assert asked.end() == 130
    assert asked.text.endswith("[y/N] ^C\n")
