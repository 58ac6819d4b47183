"""The scenarios that are played to both implementations: scripted prompts and user actions.

``{at}`` in a prompt or a part is the folder with the scenario's files, in the copy of the project that the
implementation works in.
"""

from __future__ import annotations

import base64
from typing import Any, Literal, NamedTuple, TypeAlias

Json = dict[str, Any]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
SEEING = {"providerID": "fake", "modelID": "seeing"}
NARROW = {"providerID": "fake", "modelID": "narrow"}
"""A model with a small window."""
SIGNING = {"providerID": "other", "modelID": "signing"}
"""A model with signed reasoning, on Anthropic's wire."""


class Ask(NamedTuple):
    """Send a prompt and wait for the answer. ``parts`` are appended to the script; ``more`` are options of the API."""

    script: str
    parts: tuple[Json, ...] = ()
    more: Json = {}


class Stop(NamedTuple):
    """Send a prompt and abort it at the first text, reasoning, running tool, tool output, or retry.

    The script has one word: with several, the two sides would be aborted at different ones.
    """

    script: str
    once: Literal["text", "reasoning", "tool", "output", "retry"]


WAITING = "until [ -e '{at}/../.git/go' ]; do sleep 0.05; done"
"""A command that runs until the second prompt was sent; without one, until it is stored as a running tool call."""


class Interject(NamedTuple):
    """Send a prompt, and another one while a tool runs; then let the tool finish."""

    script: str
    also: str


class Refuse(NamedTuple):
    """Send a prompt to the careful agent, and reject its permission request, with or without a reason."""

    script: str
    reason: str | None = None


class Dismiss(NamedTuple):
    """Send a prompt, and dismiss the model's question."""

    script: str


class Answer(NamedTuple):
    """Send a prompt, and answer the model's question."""

    script: str
    answers: tuple[tuple[str, ...], ...]


class Fork(NamedTuple):
    """Continue in a fork of the session that ends before the message ``before``."""

    before: int | None = None


class Compact(NamedTuple):
    """Compact the session."""


class Revert(NamedTuple):
    """Revert to before the message ``message`` (counted from the start), or to before part ``part`` of it."""

    message: int
    part: int | None = None


class Unrevert(NamedTuple):
    """Undo the revert."""


class Shell(NamedTuple):
    """Run a shell command of the user."""

    command: str


class Command(NamedTuple):
    """Run a command of the configuration."""

    name: str
    arguments: str = ""


Act: TypeAlias = (
    Ask | Stop | Interject | Refuse | Dismiss | Answer | Fork | Compact | Revert | Unrevert | Shell | Command
)


class Scenario(NamedTuple):
    """One or more sessions, from their first prompt to their last."""

    name: str
    acts: tuple[Act, ...]
    files: dict[str, str | bytes] = {}
    titled: bool = True
    """Whether the session has a title from the start."""
    slow: bool = False
    needs: str | None = None
    """A program that OpenCode would otherwise download."""
    shows: str = ""
    """Text that must be in the records of both, so that the scenario proves something."""


COMMANDS: Json = {
    "say": {"template": "SAY $ARGUMENTS", "description": "Say it"},
    "first": {"template": "SAY first $1 then $2", "agent": "careful"},
    "plain": {"template": "SAY only"},
    "shelled": {"template": "SAY it is !`echo shelled`"},
    "sub": {"template": "SAY from $ARGUMENTS", "subtask": True, "model": "fake/seeing", "description": "elsewhere"},
}

AGENTS: Json = {
    "brief": {"mode": "primary", "steps": 2, "description": "Has two steps"},
    "careful": {
        "mode": "primary",
        "description": "May not remove files, and asks before it greps",
        "permission": {"bash": {"*": "allow", "rm *": "deny"}, "grep": "ask"},
    },
}


def config(base_url: str) -> Json:
    """The configuration: several models, one of another provider, and two agents."""
    model = {
        "name": "Scripted",
        "reasoning": True,
        "tool_call": True,
        "limit": {"context": 200_000, "output": 8192},
        "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
    }
    seeing = model | {"attachment": True, "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}}
    narrow = model | {"limit": {"context": 20_000, "output": 8192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Fake",
        "options": {"baseURL": base_url, "apiKey": "x"},
        "models": {"scripted": model, "seeing": seeing, "narrow": narrow},
    }
    other = provider | {"npm": "@ai-sdk/anthropic", "name": "Other", "models": {"signing": model}}
    return {"provider": {"fake": provider, "other": other}, "agent": AGENTS, "command": COMMANDS}


AFTER_A_WHILE = "SAY Now.\nWAIT 0.8\n"
"""OpenCode takes its snapshot when an answer begins, and does not await it before the first tool call."""


def _overwrite(name: str, text: str) -> str:
    return f'{AFTER_A_WHILE}CALL write {{"filePath": "{{at}}/{name}", "content": "{text}"}}\n---\nSAY Done.'


_CHANGES = (
    Ask('CALL read {"filePath": "{at}/a.txt"}\n---\n' + _overwrite("a.txt", "two\\n")),
    Ask(_overwrite("new.txt", "new\\n")),
    Ask(AFTER_A_WHILE + 'CALL bash {"command": "rm -v {at}/gone.txt", "description": "remove"}\n---\nSAY Gone.'),
)
_CHANGED: dict[str, str | bytes] = {"a.txt": "one\n", "gone.txt": "gone\n", "other.txt": "other\n"}
_LONG = "".join(
    f'CALL bash {{"command": "head -c 29000 /dev/zero | tr \'\\\\0\' {letter}", "description": "fill"}}\n---\n'
    for letter in "abcdefghij"
)
"""Outputs that are just short enough not to be truncated, and together long enough to be pruned."""


def file(name: str, mime: str = "text/plain", query: str = "") -> Json:
    """Return an attachment of a file of the scenario."""
    return {"type": "file", "mime": mime, "filename": name, "url": f"file://{{at}}/{name}{query}"}


def data(name: str, mime: str, content: bytes) -> Json:
    """Return an attachment with inline content."""
    url = f"data:{mime};base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "mime": mime, "filename": name, "url": url}


SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "number"}},
    "required": ["city"],
}
STRUCTURED: Json = {"format": {"type": "json_schema", "schema": SCHEMA}}

QUESTION = (
    'CALL question {"questions": [{"question": "Which colour?", "header": "Colour", '
    '"options": [{"label": "Red", "description": "like a rose"}, {"label": "Blue", "description": "like the sky"}]}]}\n'
    "---\nSAY Thanks."
)

_FAILS = "echo out; sleep 0.3; echo err >&2; exit 3"  # OpenCode reads two pipes, in the order in which they fill

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("a plain answer", (Ask("SAY Hello there."), Ask("SAY Hello again."))),
    Scenario("a title", (Ask("SAY Hello there."),), titled=False),
    Scenario("reasoning before text", (Ask("THINK let me see\nSAY seen\nUSAGE input=700 output=30 cache_read=300"),)),
    Scenario("reasoning that is charged", (Ask("THINK let me see\nSAY seen\nUSAGE input=700 output=30 reasoning=20"),)),
    Scenario(
        "signed reasoning",
        (
            Ask(
                'THINK let me see\nMETA {"anthropic": {"signature": "one"}}\nSAY I look.\n'
                'CALL bash {"command": "echo hi", "description": "look"}\n'
                "USAGE input=100 output=20 cache_read=30 cache_write=40\n---\n"
                'THINK so\nMETA {"anthropic": {"signature": "two"}}\nSAY Seen.',
                (),
                {"model": SIGNING},
            ),
            Ask("SAY more", (), {"model": SIGNING}),
        ),
        shows='"total": 190',
    ),
    Scenario("text after reasoning after text", (Ask("SAY one\nTHINK two\nSAY three"),)),
    Scenario(
        "reading, writing, editing",
        (
            Ask(
                "SAY I look.\n"
                'CALL read {"filePath": "{at}/a.txt"}\n'
                f"---\n{AFTER_A_WHILE}"
                'CALL write {"filePath": "{at}/new.txt", "content": "one\\ntwo\\n"}\n'
                'CALL edit {"filePath": "{at}/a.txt", "oldString": "hello", "newString": "hello ünïcødé ✓ 漢字 👋"}\n'
                f"---\n{AFTER_A_WHILE}"
                'CALL write {"filePath": "{at}/a.txt", "content": "all new\\n"}\n'
                "---\nSAY Done."
            ),
        ),
        files={"a.txt": "hello\nworld\n"},
    ),
    Scenario(
        "listing and globbing",
        (
            Ask(
                'CALL read {"filePath": "{at}"}\n'
                'CALL read {"filePath": "{at}/b.py", "offset": 2, "limit": 1}\n'
                "---\nSAY Seen."
            ),
        ),
        files={"b.py": "def f():\n    return 1\n\n\nf()\n", "sub/c.txt": "nothing\n"},
    ),
    Scenario(
        "searching",
        (
            Ask(
                'CALL glob {"pattern": "*.py", "path": "{at}"}\n'
                'CALL grep {"pattern": "return", "path": "{at}"}\n'
                'CALL glob {"pattern": "*.rs", "path": "{at}"}\n'
                'CALL grep {"pattern": "nowhere", "path": "{at}"}\n'
                "---\nSAY Found."
            ),
        ),
        files={"b.py": "def f():\n    return 1\n", "sub/c.txt": "nothing\n"},
        needs="rg",
    ),
    Scenario(
        "a todo list",
        (
            Ask(
                'CALL todowrite {"todos": [{"id": "1", "content": "look", "status": "pending", "priority": "high"}]}\n'
                "---\n"
                'CALL todowrite {"todos": [{"id": "1", "content": "look", "status": "completed", "priority": "low"}]}\n'
                "---\nSAY Noted."
            ),
        ),
    ),
    Scenario(
        "a failing command",
        (Ask(f'CALL bash {{"command": "{_FAILS}", "description": "fail"}}\n---\nSAY It failed.'),),
    ),
    Scenario(
        "a command without output", (Ask('CALL bash {"command": "true", "description": "be quiet"}\n---\nSAY ok'),)
    ),
    Scenario(
        "a command that times out",
        (Ask('CALL bash {"command": "echo a; sleep 5", "description": "wait", "timeout": 800}\n---\nSAY ok'),),
    ),
    Scenario(
        "a long output",
        (Ask('CALL bash {"command": "seq 1 3000", "description": "count"}\n---\nSAY Long.'),),
    ),
    Scenario(
        "a tool that fails",
        (
            Ask('CALL read {"filePath": "{at}/missing.txt"}\n---\nSAY Not there.'),
            Ask('CALL edit {"filePath": "{at}/a.txt", "oldString": "x", "newString": "y"}\n---\nSAY Not read.'),
        ),
        files={"a.txt": "hello\n"},
    ),
    Scenario("a tool that does not exist", (Ask('CALL frobnicate {"a": 1}\n---\nSAY There is none.'),)),
    Scenario(
        "a tool name in capitals", (Ask('CALL Bash {"command": "echo hi", "description": "greet"}\n---\nSAY ok'),)
    ),
    Scenario("invalid arguments of a tool", (Ask('CALL read {"path": 1}\n---\nSAY Sorry.'),)),
    Scenario("arguments that are not JSON", (Ask('CALL read\n  {"filePath": \n  oops\n---\nSAY Sorry.'),)),
    Scenario(
        "two calls at once",
        (
            Ask(
                "SAY Both.\n"
                'CALL bash {"command": "sleep 0.3; echo slow", "description": "slow"}\n'
                'CALL bash {"command": "echo quick", "description": "quick"}\n'
                "---\nSAY Done."
            ),
        ),
    ),
    Scenario("an empty answer", (Ask("FINISH stop"), Ask("SAY Now."))),
    Scenario("an answer cut off", (Ask("SAY It goes\nFINISH length"), Ask("SAY on."))),
    Scenario("a filtered answer", (Ask("SAY It\nFINISH content-filter"), Ask("SAY Well."))),
    Scenario("an unknown finish reason", (Ask("SAY So\nFINISH other\n---\nSAY Well."),)),
    Scenario("an answer of white space", (Ask('SAY "  indented  "'), Ask('SAY " "'))),
    Scenario(
        "unicode",
        (Ask('SAY ünïcødé ✓ 漢字 👩‍👩‍👧\nCALL bash {"command": "echo 漢字 👋", "description": "é"}\n---\nSAY ok'),),
    ),
    Scenario("a lone surrogate", (Ask("SAY half \ud83d of it"), Ask("SAY more"))),
    Scenario("a rejected request", (Ask("ERROR 400"), Ask("SAY Better now."))),
    Scenario("a rejected key", (Ask("ERROR auth"),)),
    Scenario("a request that is too long", (Ask("ERROR overflow"),)),
    Scenario("a retry", (Ask("ERROR rate-limit after=0.1 form=ms\nSAY at last"),)),
    Scenario("an error during text", (Ask("SAY half an\nERROR 400"), Ask("SAY whole"))),
    Scenario("aborted during text", (Stop("SAY Half.\nHANG", "text"), Ask("SAY more"))),
    Scenario("aborted during reasoning", (Stop("THINK Hm.\nHANG", "reasoning"), Ask("SAY more"))),
    Scenario(
        "aborted during a tool call",
        (
            Stop(
                'SAY Wait.\nCALL bash {"command": "sleep 0.3; echo a; sleep 30", "description": "sleep"}\n---\nSAY x',
                "output",
            ),
            Ask("SAY more"),
        ),
    ),
    Scenario("aborted before a retry", (Stop("ERROR rate-limit after=20", "retry"), Ask("SAY more"))),
    Scenario(
        "a prompt during a run",
        (
            Interject(
                f'SAY Working.\nCALL bash {{"command": "{WAITING}", "description": "work"}}\n---\nSAY Never said.',
                "SAY I take that into account.",
            ),
        ),
    ),
    Scenario(
        "a fork that continues",
        (
            Ask('SAY one\nCALL bash {"command": "echo 1", "description": "count"}\n---\nSAY two'),
            Ask("SAY three"),
            Fork(),
            Ask("SAY four"),
        ),
    ),
    Scenario("a fork of the beginning", (Ask("SAY one"), Ask("SAY two"), Fork(before=2), Ask("SAY three"))),
    Scenario(
        "a subagent",
        (
            Ask(
                'CALL task {"description": "sub thing", "prompt": "SAY from the child", "subagent_type": "general"}\n'
                "---\nSAY parent done"
            ),
        ),
    ),
    Scenario(
        "an agent that does not exist",
        (Ask('CALL task {"description": "d", "prompt": "SAY x", "subagent_type": "nobody"}\n---\nSAY ok'),),
    ),
    Scenario(
        "a file",
        (Ask("SAY Read.", (file("sub/a.txt"),)),),
        files={"sub/a.txt": "one\ntwo\n", "AGENTS.md": "Hum.\n", "sub/AGENTS.md": "Whistle."},
        shows="Whistle.",
    ),
    Scenario(
        "lines of a file",
        (Ask("SAY Read.", (file("a.txt", query="?start=2&end=3"),)),),
        files={"a.txt": "1\n2\n3\n4\n"},
    ),
    Scenario("a missing file", (Ask("SAY Read.", (file("missing.txt"),)),)),
    Scenario("a folder", (Ask("SAY Read.", (file("sub", "application/x-directory"),)),), files={"sub/a.txt": "one\n"}),
    Scenario("an image", (Ask("SAY Seen.", (file("p.png", "image/png"),)),), files={"p.png": PIXEL}),
    Scenario(
        "an image for a vision model",
        (
            Ask("SAY Seen.", (file("p.png", "image/png"),), {"model": SEEING}),
            Ask('CALL read {"filePath": "{at}/p.png"}\n---\nSAY Seen.', (), {"model": SEEING}),
        ),
        files={"p.png": PIXEL},
    ),
    Scenario(
        "a file from a data URL",
        (Ask("SAY Read.", (data("a.txt", "text/plain", b"one\ntwo\n"), data("p.png", "image/png", PIXEL))),),
    ),
    Scenario("a mentioned agent", (Ask("SAY Asked.", ({"type": "agent", "name": "general"},)),)),
    Scenario(
        "a task from the user",
        (
            Ask(
                "",
                ({"type": "subtask", "prompt": "SAY from the child", "description": "sub", "agent": "general"},),
            ),
        ),
    ),
    Scenario(
        "a plan, then the work",
        (Ask("SAY planning", (), {"agent": "plan"}), Ask("SAY building", (), {"agent": "build"})),
    ),
    Scenario("a model variant", (Ask("SAY ok", (), {"variant": "high"}),)),
    Scenario("a system prompt", (Ask("SAY Aye.", (), {"system": "Talk like a sailor."}),)),
    Scenario("a disabled tool", (Ask("SAY ok", (), {"tools": {"bash": False}}), Ask("SAY still"))),
    Scenario(
        "a structured answer",
        (Ask('CALL StructuredOutput {"city": "Oslo", "size": 3}', (), STRUCTURED),),
    ),
    Scenario("a missing structured answer", (Ask("SAY Oslo", (), STRUCTURED),)),
    Scenario(
        "the last step",
        (
            Ask(
                'CALL bash {"command": "echo 1", "description": "one"}\n---\nSAY That is all.',
                (),
                {"agent": "brief"},
            ),
        ),
    ),
    Scenario(
        "a denied command",
        (
            Ask(
                'CALL bash {"command": "rm x", "description": "remove"}\n---\nSAY Not allowed.',
                (),
                {"agent": "careful"},
            ),
        ),
    ),
    Scenario("rejected by a user", (Refuse('CALL grep {"pattern": "x"}\n---\nSAY never'), Ask("SAY more"))),
    Scenario("rejected with a reason", (Refuse('CALL grep {"pattern": "x"}\n---\nSAY I see.', "use glob"),)),
    Scenario("a question answered", (Answer(QUESTION, (("Red",),)),)),
    Scenario("a question dismissed", (Dismiss(QUESTION), Ask("SAY more"))),
    Scenario(
        "three identical calls",
        (
            Refuse(
                'CALL bash {"command": "echo a", "description": "d"}\n'
                'CALL bash {"command": "echo a", "description": "d"}\n'
                'CALL bash {"command": "echo a", "description": "d"}\n'
                "---\nSAY never"
            ),
        ),
    ),
    Scenario("compacted on request", (Ask("SAY one"), Ask("SAY two"), Compact(), Ask("SAY three"))),
    Scenario("compacted twice", (Ask("SAY one"), Compact(), Ask("SAY two"), Compact(), Ask("SAY three"))),
    Scenario(
        "compacted with tool calls",
        (
            Ask('THINK hm\nSAY I look.\nCALL bash {"command": "echo hi", "description": "look"}\n---\nSAY Seen.'),
            Compact(),
            Ask('CALL bash {"command": "echo ho", "description": "look"}\n---\nSAY Seen again.'),
        ),
    ),
    Scenario(
        "a full context window",
        (
            Ask(
                'CALL bash {"command": "echo hi", "description": "look"}\nUSAGE input=12000 output=50\n---\nSAY Seen.',
                (),
                {"model": NARROW},
            ),
        ),
    ),
    Scenario(
        "pruned outputs",
        (Ask(f"{_LONG}SAY counted"), Ask("SAY one"), Ask("SAY two")),
        shows='"compacted": "<moment>"',
    ),
    Scenario("reverted", (*_CHANGES, Revert(5)), files=_CHANGED, shows='"revert": {"messageID": "<msg'),
    Scenario("reverted to the beginning", (*_CHANGES, Revert(0)), files=_CHANGED),
    Scenario("reverted within an answer", (*_CHANGES, Revert(2, 2)), files=_CHANGED),
    Scenario("reverted and continued", (*_CHANGES, Revert(5), Ask(_overwrite("late.txt", "late\\n"))), files=_CHANGED),
    Scenario("reverted and unreverted", (*_CHANGES, Revert(0), Unrevert(), Ask("SAY Still here.")), files=_CHANGED),
    Scenario("reverted step by step", (*_CHANGES, Revert(8), Revert(5), Revert(0)), files=_CHANGED),
    Scenario("reverted and compacted", (*_CHANGES, Revert(5), Compact(), Ask("SAY On.")), files=_CHANGED),
    Scenario("compacted and reverted", (*_CHANGES[:1], Compact(), *_CHANGES[1:2], Revert(0)), files=_CHANGED),
    Scenario("a user's shell command", (Ask("SAY one"), Shell(_FAILS), Ask("SAY two"))),
    Scenario("a user's shell command first", (Shell("echo hi"), Ask("SAY one"))),
    Scenario(
        "a user's shell command after a revert",
        (*_CHANGES[:2], Revert(4), Shell("echo hi"), Ask("SAY On.")),
        files=_CHANGED,
    ),
    Scenario("a command with arguments", (Command("say", "this and 'that'"), Ask("SAY more"))),
    Scenario("a command with placeholders", (Command("first", "one 'two three' four"),)),
    Scenario("a command without placeholders", (Command("plain", "and more"),)),
    Scenario("a command that runs a shell", (Command("shelled"),)),
    Scenario("a command with a subtask", (Command("sub", "the child\n# See @README.md"),)),
    Scenario("a connection that breaks", (Ask("SAY half\nERROR reset\nSAY whole"),), slow=True),
    Scenario("an overloaded provider", (Ask("ERROR overloaded\nSAY at last"),), slow=True),
)
