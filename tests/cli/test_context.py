from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli.main import run

from .running import write_script

FIXTURES = Path(__file__).parents[1] / "fixtures"


def words(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    sys.stdout.flush()
    out, error = capfd.readouterr()
    return out + error


def as_json(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run((*arguments, "--json")) == 0
    sys.stdout.flush()
    return json.loads(capfd.readouterr().out)


def test_the_next_request_and_a_past_one_are_shown_for_people_and_programs(capfd: pytest.CaptureFixture[str]) -> None:
    model = write_script(
        'CALL bash {"command":"echo hi","description":"greet"}\n---\nSAY done\nUSAGE input=900 output=9'
    )
    command = [sys.executable, "-m", "opensesh", "run", "-m", model, "Greet"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    shown = words(capfd, "show", "last", "--context")
    assert "step 3, the next" in shown
    assert "of 191,808 (" in shown
    assert "the provider counted 909 after the previous step" in shown
    full = words(capfd, "show", "last", "--context", "--step", "2", "--full")
    assert "the provider counted 900" in full
    assert "tools                todowrite" in full
    result = as_json(capfd, "show", "last", "--context", "--step", "2")
    assert result["tokens"]["counted"] == 900
    assert (
        sum(result["parts"].values())
        == result["tokens"]["estimated"]
        == sum(item["tokens"] for item in result["pieces"])
    )
    assert "there is no step 7" in words(capfd, "show", "last", "--context", "--step", "7", code=3)
    assert "--step needs --context" in words(capfd, "show", "last", "--step", "1", code=2)


@pytest.mark.parametrize("store", ["opencode-1.1.65", "opencode-1.18.33", "opencode-1.2", "id-wrap"])
def test_sessions_of_every_generation_are_shown_without_a_key_a_catalogue_or_the_folder(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(FIXTURES / store)
    listed = as_json(capfd, "list", "--children", "--limit", "0", "--store", path)["sessions"]
    for session in listed:
        for step in ([], ["--step", "1"]) if session["messages"] > 1 else ([],):
            result = as_json(capfd, "show", session["id"], "--context", *step, "--store", path)
            assert result["window"] is None
            assert result["tokens"]["estimated"] > 0
            assert any("is not known" in note for note in result["notes"])


def test_showing_a_session_loads_no_engine_unless_it_is_wanted() -> None:
    code = (
        "import sys; from opensesh.cli.main import run; run(sys.argv[1:]);"
        "print('engine' if 'opensesh.engine' in sys.modules else 'none', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "show", "last", "--store", str(FIXTURES / "opencode-1.1.65")]
    for extra, expected in ([], "none"), (["--context"], "engine"):
        done = subprocess.run([*command, *extra], capture_output=True, text=True, check=True, env=dict(os.environ))
        assert done.stderr.strip().endswith(expected)
