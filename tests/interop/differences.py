"""The intended differences between OpenCode 1.1.65 and opensesh, each with its reason.

``docs/design/2026-11-differences-from-opencode.md`` is the same list for readers. A difference that the matrix finds
and this table does not contain is a bug, and so is an entry that the matrix does not find.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from .comparison import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .comparison import Difference


class Position(NamedTuple):
    """A position and its value on either side; ``...`` matches anything, a pattern matches part of a text."""

    where: str
    theirs: Any = ...
    ours: Any = ...

    def covers(self, difference: Difference) -> bool:
        """Whether this entry describes ``difference``."""
        return (
            fnmatchcase(difference.where, self.where)
            and _matches(self.theirs, difference.theirs)
            and _matches(self.ours, difference.ours)
        )


class Expected(NamedTuple):
    """An intended difference."""

    kind: Literal["fix", "words", "more"]
    """``fix``: OpenCode loses or damages something. ``words``: different wording. ``more``: an addition."""
    reason: str
    positions: tuple[Position, ...]


def unexplained(actual: Iterable[Difference], expected: Sequence[Expected]) -> tuple[list[Difference], list[Position]]:
    """Return the differences that are not expected, and the expectations that did not occur."""
    differences = list(actual)
    positions = [position for entry in expected for position in entry.positions]
    return (
        [difference for difference in differences if not any(position.covers(difference) for position in positions)],
        [position for position in positions if not any(position.covers(difference) for difference in differences)],
    )


def _matches(expected: Any, value: Any) -> bool:
    if expected is ...:
        return True
    if isinstance(expected, re.Pattern):
        return isinstance(value, str) and cast("re.Pattern[str]", expected).search(value) is not None
    return expected == value and type(expected) is type(value)


def _tool_text(part: str, message: str, ours: str, state: str = "output") -> tuple[Position, Position]:
    """A text in a tool part, and in the next request."""
    words = re.compile(ours)
    return (
        Position(f"session.0.messages.*-assistant.parts.{part}.state.{state}", ..., words),
        Position(f"request.*.messages.{message}-tool.content", ..., words),
    )


def _prompt_text(part: int, ours: str) -> tuple[Position, Position]:
    """A text in a prompt, and in the request."""
    words = re.compile(ours)
    return (
        Position(f"session.0.messages.0-user.parts.{part}-text.text", ..., words),
        Position("request.0.messages.0-user.content.*-text.text", ..., words),
    )


_ABORTED = "session.0.messages.1-assistant.error.data.message"
_INVALID = (
    Position("*-tool-invalid.state.input.error"),
    Position("*-tool-invalid.state.output", ..., re.compile("could not be made")),
    Position("request.1.messages.1-assistant.tool_calls.0-function.function.arguments"),
    Position("request.1.messages.2-tool.content", ..., re.compile("could not be made")),
)

EXPECTED: dict[str, Expected] = {
    # What a step costs, and what is kept of it.
    "reasoning tokens counted once": Expected(
        "fix",
        "OpenCode leaves reasoning tokens in the output and charges them again on top",
        (
            Position("session.0.messages.1-assistant.tokens.output", 50, 30),
            Position("session.0.messages.1-assistant.cost", 0.00315, 0.00285),
            Position("*-step-finish.tokens.output", 50, 30),
            Position("*-step-finish.cost", 0.00315, 0.00285),
        ),
    ),
    "cost of titles recorded": Expected(
        "more",
        "the model that names a session is paid like any other; what it used is noted with the prompt",
        (Position("session.0.messages.0-user.opensesh", MISSING, ...),),
    ),
    "cost of broken calls recorded": Expected(
        "more",
        "a call whose usage is never reported costs money too: it is estimated, beside OpenCode's own fields",
        (Position("session.0.messages.*-assistant.opensesh", MISSING, ...),),
    ),
    "parts in streaming order": Expected(
        "fix",
        "words after thoughts after words are one text in OpenCode, before the thoughts",
        (
            Position("session.0.messages.1-assistant.parts.1-text.text", "one three", "one"),
            Position("session.0.messages.1-assistant.parts.+3-text", MISSING, ...),
        ),
    ),
    "no empty parts": Expected(
        "fix",
        "nothing is stored for words that are only white space",
        (Position("session.0.messages.3-assistant.parts.1-text", ..., MISSING),),
    ),
    "aborted calls counted": Expected(
        "fix",
        "the model had answered and is paid for it; a stop while its tools run does not change that",
        (
            Position("session.0.messages.1-assistant.cost", 0, ...),
            Position("session.0.messages.1-assistant.tokens.*", ..., ...),
            Position("session.0.messages.1-assistant.parts.+3-step-finish", MISSING, ...),
            Position("session.0.messages.1-assistant.finish", MISSING, "tool-calls"),
        ),
    ),
    "interrupted text closed": Expected(
        "fix",
        "words that a stop or an error cut off are closed like all others, without white space at their end",
        (
            Position("session.0.messages.1-assistant.parts.1-*.text", re.compile(" $"), re.compile("[^ ]$")),
            Position("session.0.messages.1-assistant.parts.1-*.time.end", MISSING, "<moment>"),
        ),
    ),
    "interrupted text sent as stored": Expected(
        "fix",
        "the next request holds what is stored",
        (Position("request.1.messages.1-assistant.content", re.compile(" $"), re.compile("[^ ]$")),),
    ),
    "answers without tool calls complete": Expected(
        "fix",
        "OpenCode asks again after an answer that ended for no known reason, though there is nothing new to say",
        (
            Position("session.0.messages.1-assistant.finish", "unknown", "other"),
            Position("session.0.messages.1-assistant.parts.2-step-finish.reason", "unknown", "other"),
            Position("session.0.messages.2-assistant", ..., MISSING),
            Position("request.1", ..., MISSING),
        ),
    ),
    "finish after a rejection": Expected(
        "fix",
        "an answer that ended because the user said no is complete, and its record says so",
        (Position("session.0.messages.1-assistant.finish", ..., "stop"),),
    ),
    "retries recorded": Expected(
        "more",
        "a try that failed leaves a retry part, which OpenCode knows and does not write",
        (Position("session.0.messages.1-assistant.parts.+0-retry", MISSING, ...),),
    ),
    "failed attempts discarded": Expected(
        "fix",
        "what a try said that came to nothing is removed, so that the next one does not say it twice",
        (
            Position("session.0.messages.1-assistant.parts.0-step-start", ..., MISSING),
            Position("session.0.messages.1-assistant.parts.1-text", ..., MISSING),
        ),
    ),
    # Files, and going back.
    "file writes recorded": Expected(
        "more",
        "a call says which files it changed, what they held and what they hold: it can be taken back without git",
        (Position("session.*.state.metadata.opensesh", MISSING, ...),),
    ),
    "unrevert deletes again": Expected(
        "fix",
        "undoing a revert leaves OpenCode with files that the session had deleted",
        (
            Position("session.0.summary.*"),
            Position("session.0.messages.11-assistant.parts.*.snapshot"),
            Position("session.0.diff.*"),
        ),
    ),
    # Summing up.
    "no snapshots around summaries": Expected(
        "fix",
        "OpenCode takes two snapshots around a summary, in which no file can change",
        (Position("session.0.messages.*-assistant.parts.*.snapshot", re.compile("tree"), MISSING),),
    ),
    "prompts kept in summaries": Expected(
        "more",
        "what the user said is added to the summary, word for word",
        (
            Position("session.0.messages.*-assistant.parts.1-text.text", ..., re.compile("The user's own words")),
            Position("request.*.messages.1-assistant.content", ..., re.compile("The user's own words")),
        ),
    ),
    "recall tool": Expected(
        "more",
        "there is a tool to read what a summary stands for, and the model is told so",
        (
            Position("request.*.messages.0-user.content", "What did we do so far?", re.compile("recall")),
            Position("request.*.tools.+*", MISSING, "recall"),
        ),
    ),
    "continue after compaction": Expected(
        "words",
        "what the model is told after a summary that it did not ask for",
        (
            Position("session.0.messages.4-user.parts.0-text.text", re.compile("Continue"), re.compile("Go on")),
            Position("session.0.messages.5-assistant.parts.1-text.text"),
            Position("request.*.messages.2-user.content", re.compile("Continue"), re.compile("Go on")),
        ),
    ),
    "no synthetic prompt after a command's task": Expected(
        "fix",
        "after the task of a command OpenCode has the user say that the output is to be summed up; the next request "
        "ends with that output here, and the answer belongs to the user's own prompt",
        (
            Position("session.0.messages.2-user", ..., MISSING),
            Position("session.0.messages.3-assistant.*"),
            Position("session.1.messages.*"),
            Position("request.1.messages.3-user", ..., MISSING),
        ),
    ),
    # Errors.
    "abort message": Expected(
        "words", "an answer that was stopped says so", (Position(_ABORTED, ..., re.compile("stop")),)
    ),
    "header order": Expected(
        "fix",
        "the headers of an answer that failed are kept in their order; OpenCode's runtime sorts them",
        (Position("session.0.messages.1-assistant.error.data.responseHeaders order"),),
    ),
    "errors in a stream": Expected(
        "fix",
        "an error that comes in the middle of a stream is kept with its status, whether to try again, and where",
        (
            Position("session.0.messages.1-assistant.error.name", "UnknownError", "APIError"),
            Position("session.0.messages.1-assistant.error.data.message", '"scripted failure"', "scripted failure"),
            Position("session.0.messages.1-assistant.error.data.statusCode", MISSING, 400),
            Position("session.0.messages.1-assistant.error.data.isRetryable", MISSING, False),
            Position("session.0.messages.1-assistant.error.data.responseBody", MISSING, ...),
            Position("session.0.messages.1-assistant.error.data.metadata", MISSING, ...),
        ),
    ),
    "context overflow compacts": Expected(
        "fix",
        "OpenCode ends with the error; here the session is summed up, and goes on",
        (
            Position("session.0.messages.+*-user", MISSING, ...),
            Position("session.0.messages.+*-assistant", MISSING, ...),
            Position("request.+*", MISSING, ...),
        ),
    ),
    "lone surrogates replaced": Expected(
        "fix",
        "no provider takes half of a surrogate pair",
        (
            Position(
                "request.*.messages.0-user.content", "SAY half \ud83d of it", "SAY half \N{REPLACEMENT CHARACTER} of it"
            ),
        ),
    ),
    "tool results as text blocks": Expected(
        "words",
        "what a tool said goes to Anthropic as a block of text, as what the user says does",
        (
            Position(
                "request.*.messages.*-user.content.0-tool_result.content", "hi\n", [{"type": "text", "text": "hi\n"}]
            ),
        ),
    ),
    # Tools.
    "how to read the rest of a file": Expected(
        "words", "read says how to read on", (*_tool_text("*-tool-read", "3", r"\boffset 3\b"),)
    ),
    "how to read the rest of an attached file": Expected(
        "words", "read says how to read on", (*_prompt_text(2, r"\boffset 4\b"),)
    ),
    "field order of todos": Expected(
        "fix",
        "arguments are checked and filled in before a tool sees them, so a todo has its fields in one order",
        (
            Position("session.0.todo.0 order"),
            Position("*-tool-todowrite.state.metadata.todos.0 order"),
            *_tool_text("1-tool-todowrite", "*", '"id": "1"'),
        ),
    ),
    "exit codes shown to the model": Expected(
        "more",
        "a model cannot see otherwise that a command failed",
        (*_tool_text("1-tool-bash", "2", r"exit code 3\b"),),
    ),
    "empty output shown to the model": Expected(
        "more",
        "some providers refuse an empty result",
        (
            Position("*-tool-bash.state.output", "", "(no output)"),
            Position("request.1.messages.2-tool.content", "", "(no output)"),
        ),
    ),
    "timeout message": Expected(
        "words",
        "a command that was stopped says what to do",
        (
            *_tool_text("1-tool-bash", "2", "timeout of 800 ms"),
            Position("*-tool-bash.state.metadata.output", ..., re.compile("timeout of 800 ms")),
        ),
    ),
    "tail of long outputs": Expected(
        "fix",
        "of a command's output that is too long the end is shown, where the errors are",
        (
            Position("*-tool-bash.state.output", re.compile("^1\n"), re.compile("\n3000\n$")),
            Position("request.1.messages.2-tool.content", re.compile("^1\n"), re.compile("\n3000\n$")),
        ),
    ),
    "read before write": Expected(
        "words",
        "why a file that was not read cannot be changed",
        (*_tool_text("1-tool-edit", "6", "Read it first", "error"),),
    ),
    "unknown tool": Expected("words", "why a call could not be made", (*_INVALID,)),
    "invalid arguments": Expected(
        "words",
        "which argument is wrong, and which there are",
        (*_tool_text("1-tool-read", "2", "`filePath` is required", "error"),),
    ),
    "unknown agent": Expected(
        "words", "which agents there are", (*_tool_text("1-tool-task", "2", "'nobody'.*general", "error"),)
    ),
    "missing attachment": Expected(
        "words", "why a file could not be attached", (*_prompt_text(2, "missing.txt failed"),)
    ),
    "rejected by the user": Expected(
        "words", "that the user said no", (*_tool_text("1-tool-grep", "2", "the user (refused|rejected)", "error"),)
    ),
    "rejected with instructions": Expected(
        "words", "that the user said no, and what else", (*_tool_text("1-tool-grep", "2", "use glob$", "error"),)
    ),
    "denied by a rule": Expected(
        "words", "which rules forbid it", (*_tool_text("1-tool-bash", "2", r"bash 'rm \*': deny", "error"),)
    ),
    "question answered": Expected(
        "words", "what the user answered", (*_tool_text("1-tool-question", "2", r'colour\?"="Red"'),)
    ),
    "question dismissed": Expected(
        "words", "that the user did not answer", (*_tool_text("1-tool-question", "2", "dismissed", "error"),)
    ),
    "repeated calls rejected individually": Expected(
        "fix",
        "refusing the third call of a circle ends that call; in OpenCode the whole answer fails, and is not paid for",
        (
            Position("session.0.messages.1-assistant.error", ..., MISSING),
            Position("session.0.messages.1-assistant.cost", 0, 0.00294),
            Position("session.0.messages.1-assistant.tokens.*"),
            Position("session.0.messages.1-assistant.parts.*-tool-bash.state.*"),
            Position("session.0.messages.1-assistant.parts.+4-step-finish", MISSING, ...),
        ),
    ),
    # Other agents.
    "how to continue a task": Expected(
        "words",
        "what the id of a task is good for",
        (*_tool_text("*-tool-task", "2", "<task_result>\nfrom the child\n</task_result>$"),),
    ),
    "field order of rules": Expected(
        "fix",
        "a rule has its fields in the order of the schema; OpenCode writes them in two",
        (Position("session.1.permission.* order"),),
    ),
    "restrictions of subagents": Expected(
        "fix",
        "OpenCode stores the restrictions of a child twice: in its rules, and in its prompt, which replaces the rules",
        (Position("session.1.messages.0-user.tools", ..., MISSING),),
    ),
    "mentioned agent": Expected("words", "what to do with an agent that was named", (*_prompt_text(2, "'general'"),)),
    # Prompts.
    "unsupported files": Expected(
        "words",
        "why a file was left out",
        (Position("request.0.messages.0-user.content.*-text.text", ..., re.compile(r"^\[p\.png was left out")),),
    ),
    "text of data URLs": Expected(
        "fix",
        "the content of a data URL begins after its comma; OpenCode decodes the whole URL",
        (
            Position("session.0.messages.0-user.parts.2-text.text", re.compile("one\ntwo\n$"), "one\ntwo\n"),
            Position("request.0.messages.0-user.content.2-text.text", re.compile("one\ntwo\n$"), "one\ntwo\n"),
        ),
    ),
    "steering prompts marked": Expected(
        "fix",
        "that a prompt came while the model was at work is stored with it, so that it is sent the same way ever after",
        (
            Position("session.0.messages.2-user.parts.0-text.metadata", MISSING, {"opensesh": {"steering": True}}),
            Position("request.1.messages.3-user.content", ..., re.compile("\nSAY I take that into account.\n")),
        ),
    ),
    "reminders stored": Expected(
        "fix",
        "what reminds of the plan is stored with the prompt, so that it is sent the same way ever after",
        (
            Position("session.0.messages.*-user.parts.+1-text", MISSING, ...),
            Position("request.*.messages.*-user.content.1-text.text", ..., re.compile("<system-reminder>")),
            Position("request.1.messages.0-user.content", "SAY planning", ...),
        ),
    ),
    "tools disabled per prompt": Expected(
        "fix",
        "OpenCode makes rules of the session of it, in place of those it had, and for all later prompts",
        (Position("session.0.permission", ..., MISSING),),
    ),
    "format stored as given": Expected(
        "fix",
        "OpenCode adds how often to try again, and never does",
        (Position("session.0.messages.0-user.format.retryCount", 2, MISSING),),
    ),
    "finish of structured answers": Expected(
        "fix",
        "an answer in the structure that was asked for is complete, and its record says so",
        (Position("session.0.messages.1-assistant.finish", "tool-calls", "stop"),),
    ),
    "structured answer accepted": Expected(
        "words",
        "what the model is told",
        (Position("*-tool-StructuredOutput.state.output"),),
    ),
    "structured answer missing": Expected(
        "fix",
        "a model that answers without the structure is asked for it once more; a server behaves as OpenCode's",
        (
            Position("session.0.messages.1-assistant.error", ..., MISSING),
            Position("session.0.messages.1-assistant.finish", "stop", "unknown"),
            Position("session.0.messages.+2-assistant", MISSING, ...),
            Position("request.+1", MISSING, ...),
        ),
    ),
    "last step without tools": Expected(
        "fix",
        "OpenCode tells the model that tools are switched off, and takes calls all the same; and it puts that into the "
        "model's own mouth, which newer models refuse",
        (
            Position("session.0.messages.2-assistant.parts.1-text.text"),
            Position("request.1.messages.3-assistant", ..., MISSING),
            Position("request.1.messages.+3-user", MISSING, ...),
            Position("request.1.settings.tool_choice", "auto", "none"),
        ),
    ),
}

_SUMMED_UP = (
    "no snapshots around summaries",
    "prompts kept in summaries",
    "recall tool",
)

USED_BY: dict[str, tuple[str, ...]] = {
    "a title": ("cost of titles recorded",),
    "reasoning that is charged": ("reasoning tokens counted once",),
    "signed reasoning": ("tool results as text blocks",),
    "text after reasoning after text": ("parts in streaming order",),
    "listing and globbing": ("how to read the rest of a file",),
    "a todo list": ("field order of todos",),
    "a failing command": ("exit codes shown to the model",),
    "a command without output": ("empty output shown to the model",),
    "a command that times out": ("timeout message",),
    "a long output": ("tail of long outputs",),
    "a tool that fails": ("read before write",),
    "a tool that does not exist": ("unknown tool",),
    "invalid arguments of a tool": ("invalid arguments",),
    "arguments that are not JSON": ("unknown tool",),
    "an answer of white space": ("no empty parts",),
    "a lone surrogate": ("lone surrogates replaced",),
    "a rejected request": ("header order",),
    "a rejected key": ("header order",),
    "a request that is too long": ("context overflow compacts",),
    "a retry": ("retries recorded",),
    "an unknown finish reason": ("answers without tool calls complete",),
    "an error during text": ("errors in a stream", "interrupted text closed", "cost of broken calls recorded"),
    "aborted during text": (
        "cost of broken calls recorded",
        "abort message",
        "interrupted text closed",
        "interrupted text sent as stored",
    ),
    "aborted during reasoning": ("cost of broken calls recorded", "abort message", "interrupted text closed"),
    "aborted during a tool call": ("abort message", "aborted calls counted"),
    "aborted before a retry": ("abort message", "retries recorded"),
    "a prompt during a run": ("empty output shown to the model", "steering prompts marked"),
    "a subagent": ("how to continue a task", "field order of rules", "restrictions of subagents"),
    "an agent that does not exist": ("unknown agent",),
    "lines of a file": ("how to read the rest of an attached file",),
    "a missing file": ("missing attachment",),
    "an image": ("unsupported files",),
    "a file from a data URL": ("text of data URLs", "unsupported files"),
    "a mentioned agent": ("mentioned agent",),
    "a task from the user": ("how to continue a task", "field order of rules", "restrictions of subagents"),
    "a plan, then the work": ("reminders stored",),
    "a disabled tool": ("tools disabled per prompt",),
    "a structured answer": ("format stored as given", "finish of structured answers", "structured answer accepted"),
    "a missing structured answer": ("format stored as given", "structured answer missing"),
    "the last step": ("last step without tools",),
    "a denied command": ("denied by a rule",),
    "rejected by a user": ("rejected by the user", "finish after a rejection"),
    "rejected with a reason": ("rejected with instructions",),
    "a question answered": ("question answered",),
    "a question dismissed": ("question dismissed", "finish after a rejection"),
    "three identical calls": ("repeated calls rejected individually", "finish after a rejection"),
    "reading, writing, editing": ("file writes recorded",),
    "compacted on request": _SUMMED_UP,
    "compacted twice": _SUMMED_UP,
    "compacted with tool calls": _SUMMED_UP,
    "a full context window": (*_SUMMED_UP, "continue after compaction"),
    "reverted": ("file writes recorded",),
    "reverted to the beginning": ("file writes recorded",),
    "reverted within an answer": ("file writes recorded",),
    "reverted and continued": ("file writes recorded",),
    "reverted and unreverted": ("file writes recorded", "unrevert deletes again"),
    "reverted step by step": ("file writes recorded",),
    "reverted and compacted": ("file writes recorded", *_SUMMED_UP),
    "compacted and reverted": ("file writes recorded", *_SUMMED_UP),
    "a user's shell command after a revert": ("file writes recorded",),
    "a command with a subtask": (
        "no synthetic prompt after a command's task",
        "how to continue a task",
        "field order of rules",
        "restrictions of subagents",
    ),
    "a connection that breaks": ("retries recorded", "failed attempts discarded", "cost of broken calls recorded"),
    "an overloaded provider": ("retries recorded",),
}
"""Which of them show in which scenario. The others have none."""
