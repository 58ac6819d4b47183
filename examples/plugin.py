"""A plugin that changes the parameters of requests, adds a tool, and replaces the prompt of compactions.

Put it into ``~/.config/opencode/plugins/``, or name it in ``opencode.json``::

    {"plugin": [["./plugin.py", {"temperature": 0.2, "changelog": "CHANGES.md"}]]}

``opensesh plugins`` shows it. The tests of opensesh run this file.
"""

from __future__ import annotations

from pathlib import Path

import opensesh
from opensesh.errors import ToolFailedError
from opensesh.plugins import ChatInput, ChatParamsOutput, CompactingInput, CompactingOutput, Host, Plugin, ToolsOutput

SUMMARY = """\
Write a hand-over note for a colleague who continues this work tomorrow and has not read the conversation.
Use these headings, and leave none out:

## What was asked
## What was decided, and why
## What is done, file by file
## What is left, in order
"""


class TeamConventions(Plugin):
    """The conventions of a team for all its sessions."""

    def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
        """Lower the temperature; keep titles short."""
        params.temperature = float(self.host.options.get("temperature", 0.3))
        if call.purpose == "title":
            params.max_output_tokens = 100

    def tool(self, host: Host, output: ToolsOutput) -> None:
        """Let the model add lines to the changelog."""
        path = Path(host.directory, str(host.options.get("changelog", "CHANGELOG.md")))

        @opensesh.tool
        def note_change(line: str) -> str:
            """Add one line to the changelog. Call it once for each change that a user would notice."""
            if "\n" in line:
                raise ToolFailedError("A change is noted in one line; call this once for each change.")
            with path.open("a", encoding="utf-8") as file:
                file.write(f"- {line}\n")
            return f"Noted in {path.name}."

        output.tools.append(note_change)

    def experimental_session_compacting(self, call: CompactingInput, output: CompactingOutput) -> None:
        """Ask for a summary with fixed headings."""
        output.prompt = SUMMARY
