"""See it work, in a throw-away folder: store a session, fork it, list both, read one back."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from .. import ids
from ..bus import Bus
from ..project import Place, register
from ..records import (
    AssistantMessage,
    Completed,
    MessageTime,
    ModelRef,
    Path,
    Span,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
    UserMessage,
)
from ..sessions import Sessions
from ..storage.json_tree import JsonTree
from . import output

if TYPE_CHECKING:
    from argparse import Namespace

    from ..records import Session
    from .app import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")


def run(options: Namespace) -> int:
    """Tell the story, with real records."""
    folder = tempfile.mkdtemp(prefix="opensesh-demo-")
    os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")
    store = JsonTree(os.path.join(folder, "opencode", "storage"))
    bus = Bus()
    place = Place(folder, "global", "/", "/", None)
    sessions = Sessions(store, place, bus=bus)
    register(store, place)
    session = sessions.create(title="Why is the parser slow?")
    print(f"1. stored   {session.id}  {session.title}")
    _converse(sessions, session)
    fork = sessions.fork(session.id)
    print(f"2. forked   {fork.id}  {fork.title}")
    print("3. listed")
    for each in sorted(sessions.list(), key=lambda each: -each.updated):
        print(f"     {output.when(each.updated, utc=options.utc)}  {each.id}  {each.title}")
    print("4. read back, message by message")
    for message in sessions.messages(fork.id):
        kinds = ", ".join(part["type"] for part in message.parts)
        print(f"     {message.info['role']:<9} {kinds}")
    print(f"5. heard    {bus.last} events on the bus, the last one {bus_last_type(bus)}")
    print(f"6. on disk  {len(store.list())} files under {store.root}, laid out as OpenCode lays them out")
    if not options.keep:
        import shutil

        shutil.rmtree(folder)
        print("The folder is gone again; --keep leaves it.")
    return 0


def bus_last_type(bus: Bus) -> str:
    """What the newest event was."""
    envelope = bus.next_after(bus.last - 1)
    return envelope.event.type if envelope else "none"


def _converse(sessions: Sessions, session: Session) -> None:
    now = ids.now_ms()
    user = UserMessage(
        id=ids.ascending("msg"),
        session_id=session.id,
        time=MessageTime(created=now),
        agent="build",
        model=ModelRef(provider_id="scripted", model_id="demo"),
    )
    assistant = AssistantMessage(
        id=ids.ascending("msg"),
        session_id=session.id,
        time=MessageTime(created=now + 1, completed=now + 900),
        parent_id=user.id,
        model_id="demo",
        provider_id="scripted",
        mode="build",
        agent="build",
        path=Path(cwd=sessions.place.directory, root=sessions.place.worktree),
        cost=0.0021,
        tokens=Tokens(input=520, output=36),
        finish="stop",
    )
    call = Completed(
        input={"filePath": "parser.py"},
        output="1: import re",
        title="parser.py",
        time=Span(start=now + 100, end=now + 140),
    )
    question, start, tool, answer, finish = (ids.ascending("prt") for _ in range(5))
    parts = [
        TextPart(id=question, session_id=session.id, message_id=user.id, text="Why is the parser slow?"),
        StepStartPart(id=start, session_id=session.id, message_id=assistant.id),
        ToolPart(id=tool, session_id=session.id, message_id=assistant.id, call_id="call_1", tool="read", state=call),
        TextPart(id=answer, session_id=session.id, message_id=assistant.id, text="It compiles a regex in its loop."),
        StepFinishPart(
            id=finish,
            session_id=session.id,
            message_id=assistant.id,
            reason="stop",
            cost=assistant.cost,
            tokens=assistant.tokens,
        ),
    ]
    for message in (user, assistant):
        sessions.update_message(message.document)
    for part in parts:
        sessions.update_part(part.document)
