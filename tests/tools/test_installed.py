from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opensesh.tools.custom import load_installed_tools

from ..engine.harness import open_harness
from .bench import Bench

MODULE = """
from opensesh.tools.custom import FunctionTool, tool
from opensesh.tools.tool import ToolOutput

ran = []

def plain(word: str) -> str:
    '''Say a word.'''
    return word * 2

@tool
def decorated() -> str:
    '''Say nothing much.'''
    ran.append(1)
    return "decorated"

def no_parameters() -> str:
    '''Would do harm if it were called to see what it is.'''
    ran.append(2)
    return "harm"

class Complete:
    id = "complete"
    description = "A tool by itself."
    schema = {"type": "object", "properties": {}}

    async def run(self, arguments, ctx):
        return ToolOutput("", "complete")

several = [globals().get("plain"), decorated]

def made() -> list[FunctionTool]:
    return [FunctionTool(globals()["plain"], name="made_one"), FunctionTool(globals()["plain"], name="made_two")]

def undocumented(word: str) -> str:
    return word

number = 7
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "brought.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("raise SystemExit('no licence')")
    about = tmp_path / "brought-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield about / "entry_points.txt"
    for name in ("brought", "broken"):
        sys.modules.pop(name, None)


def entries(path: Path, **named: str) -> None:
    path.write_text("[opensesh.tools]\n" + "".join(f"{name} = {value}\n" for name, value in named.items()))


async def test_functions_tools_classes_lists_and_makers_bring_tools(package: Path, tmp_path: Path) -> None:
    entries(package, a="brought:plain", b="brought:decorated", c="brought:Complete", d="brought:made")
    result = load_installed_tools()
    assert result.unusable == ()
    assert [(item.tool.id, item.package) for item in result.tools] == [
        ("plain", "brought"),
        ("decorated", "brought"),
        ("complete", "brought"),
        ("made_one", "brought"),
        ("made_two", "brought"),
    ]
    bench = Bench(tmp_path)
    assert (await bench.run(result.tools[0].tool, word="ha")).output == "haha"
    assert (await bench.run(result.tools[2].tool)).output == "complete"
    assert bench.asked[0].permission == "plain"


def test_a_list_brings_several(package: Path) -> None:
    entries(package, all="brought:several")
    assert [item.tool.id for item in load_installed_tools().tools] == ["plain", "decorated"]


def test_no_function_is_run_to_find_out_what_it_is(package: Path) -> None:
    entries(package, a="brought:no_parameters")
    assert [item.tool.id for item in load_installed_tools().tools] == ["no_parameters"]
    assert sys.modules["brought"].ran == []


def test_what_cannot_be_used_is_named_and_costs_itself_alone(package: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries(
        package,
        a="brought:plain",
        b="brought:undocumented",
        c="brought:number",
        d="brought:nothing",
        e="broken:anything",
        f="nowhere:anything",
        g="brought:several",
    )
    result = load_installed_tools()
    assert [item.tool.id for item in result.tools] == ["plain"]
    why = {item.entry: item.error for item in result.unusable}
    assert why["b"] == "the tool 'undocumented' needs a docstring: the model reads it as the description"
    assert why["c"] == "brought:number is int, neither a tool nor a function that creates one"
    assert why["d"].startswith("AttributeError")
    assert why["e"] == "SystemExit: no licence"
    assert why["f"].startswith("ModuleNotFoundError")
    assert why["g"] == "the tool 'plain' is already provided by brought"
    assert "cannot use the tool b of the package brought" in caplog.text


async def test_a_session_is_offered_them_and_none_takes_the_place_of_a_built_in_one(package: Path) -> None:
    (package.parent.parent / "brought.py").write_text(MODULE.replace("def plain", "def read"))
    entries(package, a="brought:read", b="brought:decorated")
    async with open_harness("CALL decorated {}\n---\nSAY done") as it:
        await it.ask()
        assert it.parts("tool")[0]["state"]["output"] == "decorated"
        offered = it.model.calls[0].request.tools
        (read,) = [tool for tool in offered if tool.name == "read"]
        assert "filePath" in read.parameters["properties"]
