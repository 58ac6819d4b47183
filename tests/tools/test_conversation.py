from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh.config import Skill
from opensesh.errors import (
    PermissionDeniedError,
    PermissionRejectedError,
    QuestionRejectedError,
    SubtaskFailedError,
    ToolFailedError,
)
from opensesh.records import loads_object
from opensesh.tools.batch import BatchTool
from opensesh.tools.builtin_tools import InvalidTool
from opensesh.tools.plan_tools import PlanEnterTool, PlanExitTool
from opensesh.tools.question import QuestionTool
from opensesh.tools.read import ReadTool
from opensesh.tools.skill import SkillTool
from opensesh.tools.task import TaskTool
from opensesh.tools.todowrite import TodoWriteTool

from .bench import Bench

ONE_TASK = {"description": "sub thing", "prompt": "SAY it", "subagent_type": "general"}


def stored(corpus: Path, tool: str) -> dict[str, object]:
    parts = (loads_object(path.read_bytes()) for path in sorted(corpus.glob("storage/part/*/*.json")))
    return next(part["state"] for part in parts if part["type"] == "tool" and part["tool"] == tool)


async def test_a_task_answers_as_opencode_stores_it(bench: Bench, corpus: Path) -> None:
    state = stored(corpus, "task")
    bench.subtasks.says = "from the child"
    answer = await bench.run(TaskTool(), **ONE_TASK)
    lines = str(state["output"]).split("\n")
    assert answer.output.split("\n")[1:] == lines[1:]
    assert answer.output.startswith("task_id: ses_child ")
    assert answer.title == state["title"]
    assert answer.metadata["model"] == {"modelID": "scripted", "providerID": "fake"}
    assert answer.metadata["sessionId"] == "ses_child"
    assert bench.shown[0] == ("sub thing", {"sessionId": "ses_child", "model": answer.metadata["model"]})
    assert bench.patterns("task") == ["general"]


async def test_a_task_can_be_taken_up_again(bench: Bench) -> None:
    answer = await bench.run(TaskTool(), **ONE_TASK, task_id="ses_before")
    assert bench.subtasks.opened[0].task_id == "ses_before"
    assert answer.output.startswith("task_id: ses_before ")


async def test_a_task_that_fails_can_still_be_taken_up(bench: Bench) -> None:
    bench.subtasks.fails = SubtaskFailedError("The model did not answer", state="failed")
    with pytest.raises(ToolFailedError, match=r"The model did not answer\n\ntask_id: ses_child"):
        await bench.run(TaskTool(), **ONE_TASK)
    assert bench.shown[-1][1]["state"] == "failed"


async def test_a_task_that_is_not_allowed_opens_no_session(bench: Bench) -> None:
    bench.refuse["task"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(TaskTool(), **ONE_TASK)
    assert bench.subtasks.opened == []


async def test_the_list_is_kept_and_shown(bench: Bench) -> None:
    todos = [
        {"content": "a", "status": "completed", "priority": "high", "id": "x"},
        {"content": "ü", "status": "in_progress"},
    ]
    answer = await bench.run(TodoWriteTool(), todos=todos)
    assert answer.title == "1 todos"
    second = {"content": "ü", "status": "in_progress", "priority": "medium", "id": "2"}
    assert answer.metadata["todos"] == [todos[0], second]
    assert '"content": "ü"' in answer.output
    assert answer.output.startswith('[\n  {\n    "content": "a",\n')
    assert bench.permissions() == ["todowrite"]
    assert (await bench.run(TodoWriteTool(), todos=[])).output == "[]"


async def test_a_skill_is_loaded_with_its_files(bench: Bench) -> None:
    folder = bench.path("skills/hello")
    for name in ["SKILL.md", *(f"f{number:02}.txt" for number in range(12)), "deep/x.py"]:
        bench.put(f"skills/hello/{name}", "")
    bench.skills.list = [
        Skill(name="hello", description="d", location=str(folder / "SKILL.md"), content="# Hello\nDo it.\n")
    ]
    answer = await bench.run(SkillTool(), name="hello")
    assert answer.output.startswith('<skill_content name="hello">\n# Skill: hello\n\n# Hello\nDo it.\n\nBase directory')
    assert folder.as_uri() in answer.output
    assert answer.output.count("<file>") == 10
    assert f"<file>{folder / 'deep/x.py'}</file>" in answer.output
    assert "SKILL.md" not in answer.output
    assert answer.title == "Loaded skill: hello"
    assert answer.metadata["dir"] == str(folder)
    assert bench.asked[0][:3] == ("skill", ["hello"], ["hello"])
    with pytest.raises(ToolFailedError, match="Available skills: hello"):
        await bench.run(SkillTool(), name="nope")


async def test_the_users_answers_are_passed_on(bench: Bench) -> None:
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    questions = [
        {"question": "Which?", "header": "pick", "options": options, "multiple": True},
        {"question": "How?", "header": "h", "options": options},
    ]
    bench.questions.answers = [["A", "B"]]
    answer = await bench.run(QuestionTool(), questions=questions)
    assert '"Which?"="A, B", "How?"="Unanswered"' in answer.output
    assert answer.title == "Asked 2 questions"
    assert answer.metadata["answers"] == [["A", "B"]]
    assert bench.questions.asked[0].multiple is True
    assert bench.asked == []
    bench.questions.answers = None
    with pytest.raises(QuestionRejectedError):
        await bench.run(QuestionTool(), questions=questions)


@pytest.mark.parametrize(("tool", "agent"), [(PlanExitTool(), "build"), (PlanEnterTool(), "plan")])
async def test_only_the_user_changes_the_mode(bench: Bench, tool: PlanExitTool | PlanEnterTool, agent: str) -> None:
    bench.questions.answers = [["Yes"]]
    answer = await bench.run(tool)
    assert answer.title == f"Switching to {agent} agent"
    assert bench.modes.switched[0][0] == agent
    assert bench.modes.plan in bench.modes.switched[0][1]
    assert bench.questions.asked[0].custom is False
    refusals: list[list[list[str]]] = [[["No"]], [[]], []]
    for refusal in refusals:
        bench.questions.answers = refusal
        with pytest.raises(QuestionRejectedError):
            await bench.run(tool)
    assert len(bench.modes.switched) == 1


async def test_a_batch_makes_its_calls_and_counts_them(bench: Bench) -> None:
    bench.put("a", "x")
    bench.calls.tools = {"read": ReadTool(), "batch": BatchTool()}
    calls: list[dict[str, Any]] = [
        {"tool": "read", "parameters": {"filePath": "a"}},
        {"tool": "read", "parameters": {"filePath": "gone"}},
        {"tool": "nah", "parameters": {}},
        {"tool": "batch", "parameters": {}},
    ]
    answer = await bench.run(BatchTool(), tool_calls=calls)
    assert answer.title == "Batch execution (1/4 successful)"
    assert answer.output.startswith("Executed 1/4 tools successfully. 3 failed.\n- read: File not found")
    assert "- nah: not run: a batch can call read" in answer.output
    assert answer.metadata["details"][:2] == [{"tool": "read", "success": True}, {"tool": "read", "success": False}]
    many = [{"tool": "read", "parameters": {"filePath": "a"}}] * 27
    assert (await bench.run(BatchTool(), tool_calls=many)).metadata["failed"] == 2


async def test_a_batch_stops_when_the_user_stops_one_of_its_calls(bench: Bench) -> None:
    bench.put("a", "x")
    bench.calls.tools = {"read": ReadTool()}
    bench.refuse["read"] = PermissionRejectedError("no")
    with pytest.raises(PermissionRejectedError):
        await bench.run(BatchTool(), tool_calls=[{"tool": "read", "parameters": {"filePath": "a"}}] * 2)


async def test_a_call_that_could_not_be_made_is_explained(bench: Bench) -> None:
    answer = await bench.run(InvalidTool(), tool="zork", error="there is no such tool")
    assert answer.title == "Invalid Tool"
    assert "zork" in answer.output
    assert "there is no such tool" in answer.output
