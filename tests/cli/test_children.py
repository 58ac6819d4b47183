from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from opensesh import history

from .running import write_script

TASK = 'CALL task {"description":"look","prompt":"Look.","subagent_type":"general"}'
SCRIPT = f"""{TASK}
USAGE input=1000 output=0
---
SAY the child says hi
USAGE input=20000 output=0
---
SAY done
USAGE input=300000 output=0
---
TITLE Looking
USAGE input=4000000 output=0
"""


@pytest.fixture(autouse=True)
def ran() -> None:
    command = [sys.executable, "-m", "opensesh", "run", "-m", write_script(SCRIPT), "Ask @general to look"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def said(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "opensesh", *words], check=True, capture_output=True, text=True).stdout


def sessions(*words: str) -> list[dict[str, Any]]:
    return json.loads(said("list", "--json", *words))["sessions"]


def test_children_are_listed_if_wanted_and_costs_are_own_and_with_them() -> None:
    (root,) = sessions()
    assert root["title"] == "Looking"
    assert root["cost"] == pytest.approx(3 * 4.301)
    assert root["inclusiveCost"] == pytest.approx(3 * 4.321)
    child = next(session for session in sessions("--children") if session.get("parentID"))
    assert child["parentID"] == root["id"]
    assert child["cost"] == child["inclusiveCost"] == pytest.approx(3 * 0.02)


def test_the_text_of_a_child_is_inside_the_call_that_began_it() -> None:
    assert "  | the child says hi" in said("show", "last", "--children")
    assert "the child says hi" not in said("show", "last")


def test_stats_count_a_session_with_its_children_and_everything_once() -> None:
    result = json.loads(said("stats", "--by", "session", "--json"))
    (root,) = [row for row in result["rows"] if row["title"] == "Looking"]
    assert root["cost"] == pytest.approx(3 * 4.301)
    assert root["inclusive"]["cost"] == pytest.approx(3 * 4.321)
    assert result["total"]["cost"] == pytest.approx(3 * 4.321)


def test_python_gives_the_same_figures() -> None:
    (root,) = history.open().sessions()
    assert float(root.cost) == pytest.approx(3 * 4.301)
    assert float(root.inclusive_cost) == pytest.approx(3 * 4.321)
