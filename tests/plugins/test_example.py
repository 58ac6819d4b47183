from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opensesh import plugins
from opensesh.plugins import Plugin, hooks

from ..engine.harness import open_harness
from .test_hooks import asked, said
from .test_loading import loaded

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin.py"
PAGE = (ROOT / "docs" / "plugins.md").read_text()


async def test_the_example_changes_parameters_adds_a_tool_and_rewrites_the_compaction_prompt(isolated: Path) -> None:
    home = isolated / ".config" / "opencode"
    home.mkdir(parents=True)
    options = {"temperature": 0.2, "changelog": "CHANGES.md"}
    (home / "opencode.json").write_text(json.dumps({"plugin": [[str(EXAMPLE), options]]}))
    script = """EXPECT tools note_change
CALL note_change {"line": "Commas are parsed."}
CALL note_change {"line": "one\\ntwo"}
---
EXPECT last Noted in CHANGES.md.
SAY Done.
---
SAY A summary."""
    async with open_harness(script, title=None) as harness:
        await harness.ask()
        assert Path("CHANGES.md").read_text() == "- Commas are parsed.\n"
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["completed", "error"]
        assert asked(harness).temperature == 0.2
        await harness.until(lambda: harness.model.title_calls)
        assert harness.model.title_calls[0].request.max_output_tokens == 100
        await (await harness.engine.compact(harness.session))
        assert "## What was decided, and why" in said(asked(harness))
        harness.model.assert_complete()


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_has_every_hook_with_what_it_gets_and_what_it_may_change() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert {name for name in rows if name in hooks.ALL} == set(hooks.ALL)
    for hook in hooks.ALL.values():
        method = getattr(Plugin, hook.method)
        kinds = [
            str(kind).removeprefix("hook_types.") for name, kind in method.__annotations__.items() if name != "return"
        ]
        for kind in kinds:
            assert f"`{kind}`" in rows[hook.name], f"{hook.name} and {kind}"
            assert hasattr(plugins, kind)


def test_the_python_on_the_page_is_a_plugin_each(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 3
    for number, block in enumerate(blocks):
        path = tmp_path / f"block{number}.py"
        path.write_text(block)
        assert loaded(str(path)).skipped == ()


@pytest.mark.timeout(240)
def test_promise_17_a_type_checker_knows_hooks_and_the_modules_of_the_package(tmp_path: Path) -> None:
    bad = "\n".join(_bad())
    (tmp_path / "good.py").write_text(EXAMPLE.read_text() + "\n\n" + "\n".join(_good()))
    (tmp_path / "bad.py").write_text(bad)
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "misspelt.py").write_text(MISSPELT)
    config = {"include": ["."], "strict": ["."], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    result = [
        (Path(load["file"]).name, load["range"]["start"]["line"], load["rule"])
        for load in json.loads(done.stdout)["generalDiagnostics"]
    ]
    expected = [number for number, line in enumerate(bad.splitlines()) if line.startswith(("@", "    def "))]
    assert [diagnostic for diagnostic in result if diagnostic[0] in ("good.py", "user.py")] == []
    assert sorted({line for name, line, _ in result if name == "bad.py"}) == expected, result
    assert {line for name, line, _ in result if name == "misspelt.py"} == {2, 3, 4}, result


USER = """\
import asyncio

import opensesh
from opensesh.history.library import Library

library: Library = opensesh.history.open()
titles: list[str] = [session.title for session in library.sessions(project="shop")]
store: opensesh.storage.Store = opensesh.storage.open_store()
location: opensesh.project.ProjectLocation = opensesh.project.resolve(".")
sessions = opensesh.sessions.Sessions(store, location)
session: opensesh.records.Session = sessions.create(title="T")
number: int = opensesh.context.estimate_tokens("text")


async def main() -> str | None:
    async with opensesh.open(directory=".") as engine:
        outcome = await engine.run(session.id, "Hello?", model="scripted/prompt")
        return outcome.text


asyncio.run(main())
"""

MISSPELT = """\
import opensesh

opensesh.hsitory.open()
opensesh.history.opne()
opensesh.history.open().sesions()
"""


def _good() -> list[str]:
    return [
        "from opensesh.plugins import BusEvent, ToolExecuteBeforeOutput, ToolExecuteBeforeInput, hooks",
        "",
        "@hooks.tool_execute_before",
        "async def check(call: ToolExecuteBeforeInput, output: ToolExecuteBeforeOutput) -> None:",
        "    output.args['by'] = call.tool",
        "",
        "@hooks.event",
        "def listen(heard: BusEvent) -> None:",
        "    print(heard.event.type)",
        "",
        "class Later(Plugin):",
        "    async def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:",
        "        params.top_k = 3",
    ]


def _bad() -> list[str]:
    return [
        "from __future__ import annotations",
        "from opensesh.plugins import ChatInput, ChatHeadersOutput, ChatParamsOutput, Plugin, hooks",
        "",
        "@hooks.chat_params",
        "def wrong(call: ChatInput, output: ChatHeadersOutput) -> None: ...",
        "",
        "class Wrong(Plugin):",
        "    def chat_headers(self, call: ChatInput, output: ChatParamsOutput) -> None: ...",
    ]
