from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

import opensesh.tools
from opensesh.config import Agent, Skill
from opensesh.errors import InvalidArgumentsError, PermissionDeniedError, ToolFailedError
from opensesh.permissions import disabled
from opensesh.records import Rule
from opensesh.tools import Context, ToolOutput
from opensesh.tools.builtin_tools import builtin
from opensesh.tools.custom import tool
from opensesh.tools.recall import RecallTool
from opensesh.tools.task import TaskTool
from opensesh.tools.tool import invoke
from opensesh.tools.tool_registry import Features, Registry, description_values, to_spec

from .bench import Bench

EVERYTHING = Features(plan=True, batch=True, exa=True)


def names(registry: Registry, model: str, provider: str = "fake", **options: Any) -> list[str]:
    return [item.id for item in registry.offered(model, provider, **options)]


def test_the_order_is_opencodes() -> None:
    expected = """invalid question bash read glob grep edit write task webfetch todowrite websearch codesearch skill
    apply_patch batch plan_exit plan_enter"""
    assert list(Registry(EVERYTHING).tools) == expected.split()


def test_a_model_gets_the_editing_tools_it_was_trained_on() -> None:
    registry = Registry()
    for model in ("claude-opus-5", "gpt-4o", "gpt-oss-120b", "scripted"):
        assert {"edit", "write"} <= set(names(registry, model))
        assert "apply_patch" not in names(registry, model)
    for model in ("gpt-5", "gpt-5.2-codex"):
        assert not {"edit", "write"} & set(names(registry, model))
        assert "apply_patch" in names(registry, model)


def test_searching_the_web_must_be_switched_on() -> None:
    assert "websearch" not in names(Registry(), "m")
    assert "websearch" in names(Registry(), "m", "opencode")
    assert "codesearch" in names(Registry(Features(exa=True)), "m")


def test_features_add_and_remove_tools() -> None:
    plain = names(Registry(), "m")
    assert "question" in plain
    assert not {"batch", "plan_exit", "plan_enter", "invalid"} & set(plain)
    assert "question" not in names(Registry(Features(question=False)), "m")
    assert {"batch", "plan_exit", "plan_enter"} <= set(names(Registry(EVERYTHING), "m"))


def test_what_rules_forbid_is_not_offered() -> None:
    registry = Registry()
    rules = [Rule(permission="edit", pattern="*", action="deny"), Rule(permission="bash", pattern="*", action="deny")]
    offered = names(registry, "m", hidden=disabled(list(registry.tools), rules))
    assert not {"edit", "write", "apply_patch", "bash"} & set(offered)
    assert "read" in offered


def test_every_tool_has_a_description_beside_it_and_every_description_a_tool() -> None:
    tools = [*builtin(EVERYTHING), RecallTool()]
    for item in tools:
        assert len(item.description) > 40, item.id
    folder = Path(opensesh.tools.__file__).parent
    assert {path.stem for path in folder.glob("*.md")} == {item.id for item in tools}


def test_placeholders_in_descriptions_are_filled_in() -> None:
    values = description_values(
        "/srv/here",
        agents=(Agent(name="explore", description="Finds things"),),
        skills=(Skill("hello", "Says hello", "file:///s/SKILL.md", ""),),
        max_lines=7,
    )
    specs = {item.id: to_spec(item, values) for item in builtin(EVERYTHING)}
    assert "/srv/here" in specs["bash"].description
    assert "7 lines" in specs["bash"].description
    assert "- explore: Finds things" in specs["task"].description
    assert "<name>hello</name>" in specs["skill"].description
    assert specs["read"].parameters["required"] == ["filePath"]
    for spec in specs.values():
        assert "{{" not in spec.description, spec.name
    assert "(none)" in to_spec(TaskTool(), description_values()).description


@tool
async def weather(city: Annotated[str, Meta(description="Which city")], days: int = 1) -> str:
    """Say what the weather will be."""
    return f"{city}: rain for {days} days"


async def test_a_function_is_a_tool(bench: Bench) -> None:
    assert weather.id == "weather"
    assert weather.description == "Say what the weather will be."
    assert weather.schema["properties"]["city"] == {"description": "Which city", "type": "string"}
    assert weather.schema["required"] == ["city"]
    assert (await bench.run(weather, city="Ulm", days="3")).output == "Ulm: rain for 3 days"
    assert bench.patterns("weather") == ["*"]
    assert await weather("Ulm") == "Ulm: rain for 1 days"
    with pytest.raises(InvalidArgumentsError, match="The weather tool was called with invalid arguments"):
        await bench.run(weather)
    bench.refuse["weather"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(weather, city="Ulm")


async def test_a_plain_function_may_see_the_context_and_answer_anything(bench: Bench) -> None:
    @tool(name="where-am-i", description="Says where")
    def where(ctx: Context, loud: bool = False) -> dict[str, Any]:
        return {"directory": ctx.directory, "loud": loud}

    assert where.id == "where-am-i"
    assert list(where.schema["properties"]) == ["loud"]
    assert (await bench.run(where)).output == f'{{"directory":"{bench.directory}","loud":false}}'

    @tool
    def whole() -> ToolOutput:
        """Answers in full."""
        return ToolOutput("title", "output", {"truncated": False})

    assert (await bench.run(whole)).title == "title"

    @tool
    def odd() -> object:
        """Answers with what no one can show."""
        return object()

    with pytest.raises(ToolFailedError, match="cannot be encoded"):
        await bench.run(odd)

    @tool
    def silent() -> None:
        """Says nothing."""

    assert (await bench.run(silent)).output == "(no output)"


async def test_a_tool_of_ones_own_takes_the_place_of_another(bench: Bench) -> None:
    @tool
    def glob(pattern: str) -> str:
        """Finds nothing."""
        return f"no {pattern}"

    registry = Registry(custom=[weather, glob])
    assert list(registry.tools)[3:5] == ["read", "glob"]
    assert list(registry.tools)[-1] == "weather"
    assert (await invoke(registry.tools["glob"], {"pattern": "x"}, bench)).output == "no x"


def test_what_cannot_be_a_tool_is_refused_at_once() -> None:
    def undescribed() -> None: ...

    def spread(*names: str) -> None:
        """Takes any number."""

    def unwritable(thing: object) -> None:
        """Takes what JSON cannot hold."""

    with pytest.raises(ValueError, match="needs a docstring"):
        tool(undescribed)
    with pytest.raises(ValueError, match="by name"):
        tool(spread)
    with pytest.raises(ValueError, match="invalid tool name"):
        tool(name="a b")(spread)
    with pytest.raises(ValueError, match=r"no JSON schema: [^\n]* is not supported; use text, numbers"):
        tool(unwritable)


async def test_long_answers_are_shortened_unless_the_tool_has_seen_to_it(bench: Bench) -> None:
    text = "".join(f"{number}\n" for number in range(3000))

    @tool
    def long() -> str:
        """Goes on."""
        return text

    answer = await bench.run(long)
    assert answer.metadata["truncated"] is True
    assert Path(answer.metadata["outputPath"]).read_text() == text
    assert "...1001 lines truncated..." in answer.output

    @tool
    def careful() -> ToolOutput:
        """Goes on, knowingly."""
        return ToolOutput("", text, {"truncated": True})

    assert (await bench.run(careful)).output == text
