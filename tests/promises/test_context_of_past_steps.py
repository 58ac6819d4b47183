from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_promise_16_a_step_that_opencode_ran_shows_no_prompt_and_no_tools_of_ours(
    sample: Sample, terminal: Terminal
) -> None:
    session = sample.talk(answers=2)
    path = sample.path("session", "proj", session["id"])
    path.write_text(path.read_text().replace(f'"version": "{session["version"]}"', '"version": "1.1.65"'))
    step = terminal.json("show", session["id"], "--context", "--step", "2")
    assert not {"system prompt", "tools", "instructions"} & step["parts"].keys()
    assert step["sources"]["prompts"] == "stored"
    assert any("OpenCode 1.1.65 created this session" in note for note in step["notes"])
    counted = step["tokens"]["counted"]
    assert step["sources"]["not stored"] == "difference"
    assert step["parts"]["not stored"] == max(counted - step["tokens"]["estimated"] + step["parts"]["not stored"], 0)
    text = terminal.run("show", session["id"], "--context", "--step", "2")
    assert "SOURCE" in text
    assert "are not stored" in text


def test_promise_16_a_step_that_opensesh_ran_says_what_is_shown_as_of_today(terminal: Terminal) -> None:
    terminal.run("run", "--quiet", "-m", "scripted/prompt", "SAY one")
    step = terminal.json("show", "last", "--context", "--step", "1")
    assert step["sources"]["system prompt"] == step["sources"]["tools"] == "today"
    assert step["sources"]["prompts"] == "stored"
    assert any("as they would be today" in note for note in step["notes"])
    following = terminal.run("show", "last", "--context")
    assert "SOURCE" not in following


@pytest.mark.parametrize("fixture", ["opencode-1.1.65", "opencode-1.2", "opencode-1.18.33"])
def test_promise_16_the_first_step_of_every_real_session_is_distinguished(
    fixture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    monkeypatch.setenv("OPENSESH_STORE", str(shutil.copytree(FIXTURES / fixture, tmp_path / "copy")))
    sessions = terminal.json("list", "--limit", "0", "--children")["sessions"]
    checked = 0
    for session in sessions:
        if not session["messages"]:
            continue
        step = terminal.json("show", session["id"], "--context", "--step", "1")
        checked += 1
        assert not {"system prompt", "tools", "instructions"} & step["parts"].keys()
        assert any("created this session" in note for note in step["notes"])
    assert checked
