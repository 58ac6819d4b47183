"""A command that the user runs in a session: no model is asked, but the next one sees what it printed.

It is on record as OpenCode has it: a prompt that nobody typed, answered by a call of the shell without a model call
around it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from .. import ids
from .cancellation import run_uncancellable

if TYPE_CHECKING:
    from ..records import Document
    from ..storage.protocol import StoredMessage
    from ..tools.shell.execution import CommandRun
    from ..tools.truncation import OutputPreview
    from .answer_writer import AnswerWriter
    from .components import Runtime

BY_USER = "The following tool was executed by the user"
"""What stands in the place of a prompt."""
_STOPPED = "The user stopped the command"


def is_by_user(prompt: StoredMessage) -> bool:
    """Whether a prompt only stands for a command that the user ran; there is nothing to answer then."""
    return [part.get("text") for part in prompt.parts] == [BY_USER]


async def run_for_user(runtime: Runtime, writer: AnswerWriter, command: str) -> bool:
    """Run ``command`` and write it down with ``writer``; whether it ended by itself, rather than being cancelled."""
    from ..tools.shell.execution import CommandRun, user_shell

    start = ids.now_ms()
    call = writer.new_call("bash")

    async def put(status: str, output: str, more: Document, kept: Document) -> None:
        metadata = {"output": output, "description": ""} | kept
        state: Document = {"status": status, "input": {"command": command}, **more, "metadata": metadata}
        end = {"end": ids.now_ms()} if status == "completed" else {}
        await writer.put(call | {"state": state | {"time": {"start": start, **end}}})

    async def show(output: str) -> None:
        await put("running", output, {}, {})

    running = CommandRun(runtime.outputs(), on_output=show)
    try:
        added = await runtime.hooks.shell_env(runtime.place.directory, writer.info["sessionID"], call["callID"])
        environment = os.environ | added | {"TERM": "dumb"}
        arguments = user_shell(environment).interactive_arguments(command)
        preview = await running.run(arguments, runtime.place.directory, environment)
    except asyncio.CancelledError:
        running.notes.append(_STOPPED)
        await run_uncancellable(put("completed", *_ending(running, running.finish())))
        return False
    await put("completed", *_ending(running, preview))
    return True


def _ending(running: CommandRun, preview: OutputPreview) -> tuple[str, Document, Document]:
    noted = "\n".join(["", "", "<metadata>", *running.notes, "</metadata>"]) if running.notes else ""
    kept: Document = {"outputPath": preview.path} if preview.path else {}
    return running.recent + noted, {"output": preview.text + noted, "title": ""}, kept
