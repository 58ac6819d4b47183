"""The differences between OpenCode 1.1.65 and opensesh that are meant to be, each with its reason.

``docs/design/2026-11-differences-from-opencode.md`` tells the same for people. Whatever the matrix finds and this table
does not hold is a bug; and so is an entry here that the matrix does not find.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from .comparison import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .comparison import Difference


class Place(NamedTuple):
    """Where a difference shows, and what is there on either side; ``...`` is anything, a pattern is part of a text."""

    where: str
    theirs: Any = ...
    ours: Any = ...

    def covers(self, difference: Difference) -> bool:
        """Whether this is that difference."""
        return (
            fnmatchcase(difference.where, self.where)
            and _fits(self.theirs, difference.theirs)
            and _fits(self.ours, difference.ours)
        )


class Expected(NamedTuple):
    """A difference that is meant to be."""

    kind: Literal["fix", "words", "more"]
    """``fix``: OpenCode's way loses or harms something. ``words``: the same in our own words. ``more``: we add it."""
    reason: str
    places: tuple[Place, ...]


def unexplained(found: Iterable[Difference], expected: Sequence[Expected]) -> tuple[list[Difference], list[Place]]:
    """What was found and not expected, and what was expected and not found."""
    differences = list(found)
    places = [place for each in expected for place in each.places]
    return (
        [each for each in differences if not any(place.covers(each) for place in places)],
        [place for place in places if not any(place.covers(each) for each in differences)],
    )


def _fits(wanted: Any, value: Any) -> bool:
    if wanted is ...:
        return True
    if isinstance(wanted, re.Pattern):
        return isinstance(value, str) and cast("re.Pattern[str]", wanted).search(value) is not None
    return wanted == value and type(wanted) is type(value)


def _told(part: str, message: str, ours: str, state: str = "output") -> tuple[Place, Place]:
    """Words that a tool part holds, and that the model is told in the next request."""
    words = re.compile(ours)
    return (
        Place(f"session.0.messages.*-assistant.parts.{part}.state.{state}", ..., words),
        Place(f"request.*.messages.{message}-tool.content", ..., words),
    )


def _said(part: int, ours: str) -> tuple[Place, Place]:
    """Words that a prompt holds, and that the model is told."""
    words = re.compile(ours)
    return (
        Place(f"session.0.messages.0-user.parts.{part}-text.text", ..., words),
        Place("request.0.messages.0-user.content.*-text.text", ..., words),
    )


_ABORTED = "session.0.messages.1-assistant.error.data.message"
_INVALID = (
    Place("*-tool-invalid.state.input.error"),
    Place("*-tool-invalid.state.output", ..., re.compile("could not be made")),
    Place("request.1.messages.1-assistant.tool_calls.0-function.function.arguments"),
    Place("request.1.messages.2-tool.content", ..., re.compile("could not be made")),
)

EXPECTED: dict[str, Expected] = {
    # What a step costs, and what is kept of it.
    "reasoning tokens counted once": Expected(
        "fix",
        "OpenCode leaves reasoning tokens in the output and charges them again on top",
        (
            Place("session.0.messages.1-assistant.tokens.output", 50, 30),
            Place("session.0.messages.1-assistant.cost", 0.00315, 0.00285),
            Place("*-step-finish.tokens.output", 50, 30),
            Place("*-step-finish.cost", 0.00315, 0.00285),
        ),
    ),
    "cost of titles recorded": Expected(
        "more",
        "the model that names a session is paid like any other; what it used is noted with the prompt",
        (Place("session.0.messages.0-user.opensesh", MISSING, ...),),
    ),
    "parts in streaming order": Expected(
        "fix",
        "words after thoughts after words are one text in OpenCode, before the thoughts",
        (
            Place("session.0.messages.1-assistant.parts.1-text.text", "one three", "one"),
            Place("session.0.messages.1-assistant.parts.+3-text", MISSING, ...),
        ),
    ),
    "no empty parts": Expected(
        "fix",
        "nothing is stored for words that are only white space",
        (Place("session.0.messages.3-assistant.parts.1-text", ..., MISSING),),
    ),
    "aborted calls counted": Expected(
        "fix",
        "the model had answered and is paid for it; a stop while its tools run does not change that",
        (
            Place("session.0.messages.1-assistant.cost", 0, ...),
            Place("session.0.messages.1-assistant.tokens.*", ..., ...),
            Place("session.0.messages.1-assistant.parts.+3-step-finish", MISSING, ...),
            Place("session.0.messages.1-assistant.finish", MISSING, "tool-calls"),
        ),
    ),
    "interrupted text closed": Expected(
        "fix",
        "words that a stop or an error cut off are closed like all others, without white space at their end",
        (
            Place("session.0.messages.1-assistant.parts.1-*.text", re.compile(" $"), re.compile("[^ ]$")),
            Place("session.0.messages.1-assistant.parts.1-*.time.end", MISSING, "<moment>"),
        ),
    ),
    "interrupted text sent as stored": Expected(
        "fix",
        "the next request holds what is stored",
        (Place("request.1.messages.1-assistant.content", re.compile(" $"), re.compile("[^ ]$")),),
    ),
    "answers without tool calls complete": Expected(
        "fix",
        "OpenCode asks again after an answer that ended for no known reason, though there is nothing new to say",
        (
            Place("session.0.messages.1-assistant.finish", "unknown", "other"),
            Place("session.0.messages.1-assistant.parts.2-step-finish.reason", "unknown", "other"),
            Place("session.0.messages.2-assistant", ..., MISSING),
            Place("request.1", ..., MISSING),
        ),
    ),
    "finish after a rejection": Expected(
        "fix",
        "an answer that ended because the user said no is complete, and its record says so",
        (Place("session.0.messages.1-assistant.finish", ..., "stop"),),
    ),
    "retries recorded": Expected(
        "more",
        "a try that failed leaves a retry part, which OpenCode knows and does not write",
        (Place("session.0.messages.1-assistant.parts.+0-retry", MISSING, ...),),
    ),
    "failed attempts discarded": Expected(
        "fix",
        "what a try said that came to nothing is removed, so that the next one does not say it twice",
        (
            Place("session.0.messages.1-assistant.parts.0-step-start", ..., MISSING),
            Place("session.0.messages.1-assistant.parts.1-text", ..., MISSING),
        ),
    ),
    # Files, and going back.
    "file writes recorded": Expected(
        "more",
        "a call says which files it changed, what they held and what they hold: it can be taken back without git",
        (Place("session.*.state.metadata.opensesh", MISSING, ...),),
    ),
    "unrevert deletes again": Expected(
        "fix",
        "undoing a revert leaves OpenCode with files that the session had deleted",
        (
            Place("session.0.summary.*"),
            Place("session.0.messages.11-assistant.parts.*.snapshot"),
            Place("session.0.diff.*"),
        ),
    ),
    # Summing up.
    "no snapshots around summaries": Expected(
        "fix",
        "OpenCode takes two snapshots around a summary, in which no file can change",
        (Place("session.0.messages.*-assistant.parts.*.snapshot", re.compile("tree"), MISSING),),
    ),
    "prompts kept in summaries": Expected(
        "more",
        "what the user said is added to the summary, word for word",
        (
            Place("session.0.messages.*-assistant.parts.1-text.text", ..., re.compile("The user's own words")),
            Place("request.*.messages.1-assistant.content", ..., re.compile("The user's own words")),
        ),
    ),
    "recall tool": Expected(
        "more",
        "there is a tool to read what a summary stands for, and the model is told so",
        (
            Place("request.*.messages.0-user.content", "What did we do so far?", re.compile("recall")),
            Place("request.*.tools.+*", MISSING, "recall"),
        ),
    ),
    "continue after compaction": Expected(
        "words",
        "what the model is told after a summary that it did not ask for",
        (
            Place("session.0.messages.4-user.parts.0-text.text", re.compile("Continue"), re.compile("Go on")),
            Place("session.0.messages.5-assistant.parts.1-text.text"),
            Place("request.*.messages.2-user.content", re.compile("Continue"), re.compile("Go on")),
        ),
    ),
    "no synthetic prompt after a command's task": Expected(
        "fix",
        "after the task of a command OpenCode has the user say that the output is to be summed up; the next request "
        "ends with that output here, and the answer belongs to the user's own prompt",
        (
            Place("session.0.messages.2-user", ..., MISSING),
            Place("session.0.messages.3-assistant.*"),
            Place("session.1.messages.*"),
            Place("request.1.messages.3-user", ..., MISSING),
        ),
    ),
    # Errors.
    "abort message": Expected(
        "words", "an answer that was stopped says so", (Place(_ABORTED, ..., re.compile("stop")),)
    ),
    "header order": Expected(
        "fix",
        "the headers of an answer that failed are kept in their order; OpenCode's runtime sorts them",
        (Place("session.0.messages.1-assistant.error.data.responseHeaders order"),),
    ),
    "errors in a stream": Expected(
        "fix",
        "an error that comes in the middle of a stream is kept with its status, whether to try again, and where",
        (
            Place("session.0.messages.1-assistant.error.name", "UnknownError", "APIError"),
            Place("session.0.messages.1-assistant.error.data.message", '"scripted failure"', "scripted failure"),
            Place("session.0.messages.1-assistant.error.data.statusCode", MISSING, 400),
            Place("session.0.messages.1-assistant.error.data.isRetryable", MISSING, False),
            Place("session.0.messages.1-assistant.error.data.responseBody", MISSING, ...),
            Place("session.0.messages.1-assistant.error.data.metadata", MISSING, ...),
        ),
    ),
    "context overflow compacts": Expected(
        "fix",
        "OpenCode ends with the error; here the session is summed up, and goes on",
        (
            Place("session.0.messages.+*-user", MISSING, ...),
            Place("session.0.messages.+*-assistant", MISSING, ...),
            Place("request.+*", MISSING, ...),
        ),
    ),
    "lone surrogates replaced": Expected(
        "fix",
        "no provider takes half of a surrogate pair",
        (
            Place(
                "request.*.messages.0-user.content", "SAY half \ud83d of it", "SAY half \N{REPLACEMENT CHARACTER} of it"
            ),
        ),
    ),
    "tool results as text blocks": Expected(
        "words",
        "what a tool said goes to Anthropic as a block of text, as what the user says does",
        (Place("request.*.messages.*-user.content.0-tool_result.content", "hi\n", [{"type": "text", "text": "hi\n"}]),),
    ),
    # Tools.
    "how to read the rest of a file": Expected(
        "words", "read says how to read on", (*_told("*-tool-read", "3", r"\boffset 3\b"),)
    ),
    "how to read the rest of an attached file": Expected(
        "words", "read says how to read on", (*_said(2, r"\boffset 4\b"),)
    ),
    "field order of todos": Expected(
        "fix",
        "arguments are checked and filled in before a tool sees them, so a todo has its fields in one order",
        (
            Place("session.0.todo.0 order"),
            Place("*-tool-todowrite.state.metadata.todos.0 order"),
            *_told("1-tool-todowrite", "*", '"id": "1"'),
        ),
    ),
    "exit codes shown to the model": Expected(
        "more",
        "a model cannot see otherwise that a command failed",
        (*_told("1-tool-bash", "2", r"exit code 3\b"),),
    ),
    "empty output shown to the model": Expected(
        "more",
        "some providers refuse an empty result",
        (
            Place("*-tool-bash.state.output", "", "(no output)"),
            Place("request.1.messages.2-tool.content", "", "(no output)"),
        ),
    ),
    "timeout message": Expected(
        "words",
        "a command that was stopped says what to do",
        (
            *_told("1-tool-bash", "2", "timeout of 800 ms"),
            Place("*-tool-bash.state.metadata.output", ..., re.compile("timeout of 800 ms")),
        ),
    ),
    "tail of long outputs": Expected(
        "fix",
        "of a command's output that is too long the end is shown, where the errors are",
        (
            Place("*-tool-bash.state.output", re.compile("^1\n"), re.compile("\n3000\n$")),
            Place("request.1.messages.2-tool.content", re.compile("^1\n"), re.compile("\n3000\n$")),
        ),
    ),
    "read before write": Expected(
        "words",
        "why a file that was not read cannot be changed",
        (*_told("1-tool-edit", "6", "Read it first", "error"),),
    ),
    "unknown tool": Expected("words", "why a call could not be made", (*_INVALID,)),
    "invalid arguments": Expected(
        "words",
        "which argument is wrong, and which there are",
        (*_told("1-tool-read", "2", "`filePath` is required", "error"),),
    ),
    "unknown agent": Expected(
        "words", "which agents there are", (*_told("1-tool-task", "2", "'nobody'.*general", "error"),)
    ),
    "missing attachment": Expected("words", "why a file could not be attached", (*_said(2, "missing.txt failed"),)),
    "rejected by the user": Expected(
        "words", "that the user said no", (*_told("1-tool-grep", "2", "rejected by the user", "error"),)
    ),
    "rejected with instructions": Expected(
        "words", "that the user said no, and what else", (*_told("1-tool-grep", "2", "use glob$", "error"),)
    ),
    "denied by a rule": Expected(
        "words", "which rules forbid it", (*_told("1-tool-bash", "2", r"bash 'rm \*': deny", "error"),)
    ),
    "question answered": Expected(
        "words", "what the user answered", (*_told("1-tool-question", "2", r'colour\?"="Red"'),)
    ),
    "question dismissed": Expected(
        "words", "that the user did not answer", (*_told("1-tool-question", "2", "question dismissed", "error"),)
    ),
    "repeated calls rejected individually": Expected(
        "fix",
        "refusing the third call of a circle ends that call; in OpenCode the whole answer fails, and is not paid for",
        (
            Place("session.0.messages.1-assistant.error", ..., MISSING),
            Place("session.0.messages.1-assistant.cost", 0, 0.00294),
            Place("session.0.messages.1-assistant.tokens.*"),
            Place("session.0.messages.1-assistant.parts.*-tool-bash.state.*"),
            Place("session.0.messages.1-assistant.parts.+4-step-finish", MISSING, ...),
        ),
    ),
    # Other agents.
    "how to continue a task": Expected(
        "words",
        "what the id of a task is good for",
        (*_told("*-tool-task", "2", "<task_result>\nfrom the child\n</task_result>$"),),
    ),
    "field order of rules": Expected(
        "fix",
        "a rule has its fields in the order of the schema; OpenCode writes them in two",
        (Place("session.1.permission.* order"),),
    ),
    "restrictions of subagents": Expected(
        "fix",
        "OpenCode says twice what a child may not do: in its rules, and in its prompt, which then replaces the rules",
        (Place("session.1.messages.0-user.tools", ..., MISSING),),
    ),
    "mentioned agent": Expected("words", "what to do with an agent that was named", (*_said(2, "'general'"),)),
    # Prompts.
    "unsupported files": Expected(
        "words",
        "why a file was left out",
        (Place("request.0.messages.0-user.content.*-text.text", ..., re.compile(r"^\[p\.png was left out")),),
    ),
    "text of data URLs": Expected(
        "fix",
        "the content of a data URL begins after its comma; OpenCode decodes the whole URL",
        (
            Place("session.0.messages.0-user.parts.2-text.text", re.compile("one\ntwo\n$"), "one\ntwo\n"),
            Place("request.0.messages.0-user.content.2-text.text", re.compile("one\ntwo\n$"), "one\ntwo\n"),
        ),
    ),
    "steering prompts marked": Expected(
        "fix",
        "that a prompt came while the model was at work is stored with it, so that it is sent the same way ever after",
        (
            Place("session.0.messages.2-user.parts.0-text.metadata", MISSING, {"opensesh": {"steering": True}}),
            Place("request.1.messages.3-user.content", ..., re.compile("\nSAY I take that into account.\n")),
        ),
    ),
    "reminders stored": Expected(
        "fix",
        "what reminds of the plan is stored with the prompt, so that it is sent the same way ever after",
        (
            Place("session.0.messages.*-user.parts.+1-text", MISSING, ...),
            Place("request.*.messages.*-user.content.1-text.text", ..., re.compile("<system-reminder>")),
            Place("request.1.messages.0-user.content", "SAY planning", ...),
        ),
    ),
    "tools disabled per prompt": Expected(
        "fix",
        "OpenCode makes rules of the session of it, in place of those it had, and for all later prompts",
        (Place("session.0.permission", ..., MISSING),),
    ),
    "format stored as given": Expected(
        "fix",
        "OpenCode adds how often to try again, and never does",
        (Place("session.0.messages.0-user.format.retryCount", 2, MISSING),),
    ),
    "finish of structured answers": Expected(
        "fix",
        "an answer in the structure that was asked for is complete, and its record says so",
        (Place("session.0.messages.1-assistant.finish", "tool-calls", "stop"),),
    ),
    "structured answer accepted": Expected(
        "words",
        "what the model is told",
        (
            Place("*-tool-StructuredOutput.state.output"),
            Place("*-tool-StructuredOutput.state.metadata.truncated", MISSING, False),
        ),
    ),
    "structured answer missing": Expected("words", "what was wrong", (Place(_ABORTED, ..., re.compile("structure")),)),
    "last step without tools": Expected(
        "fix",
        "OpenCode tells the model that tools are switched off, and takes calls all the same; and it puts that into the "
        "model's own mouth, which newer models refuse",
        (
            Place("session.0.messages.2-assistant.parts.1-text.text"),
            Place("request.1.messages.3-assistant", ..., MISSING),
            Place("request.1.messages.+3-user", MISSING, ...),
            Place("request.1.settings.tool_choice", "auto", "none"),
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
    "thought that is charged": ("reasoning tokens counted once",),
    "thought that is signed": ("tool results as text blocks",),
    "words after thought after words": ("parts in streaming order",),
    "looking around": ("how to read the rest of a file",),
    "a list of things to do": ("field order of todos",),
    "a shell that fails": ("exit codes shown to the model",),
    "a shell without a word": ("empty output shown to the model",),
    "a shell that takes too long": ("timeout message",),
    "a long output": ("tail of long outputs",),
    "a tool that fails": ("read before write",),
    "a tool that does not exist": ("unknown tool",),
    "arguments that do not fit": ("invalid arguments",),
    "arguments that are no JSON": ("unknown tool",),
    "an answer in white space": ("no empty parts",),
    "half a character": ("lone surrogates replaced",),
    "a refused request": ("header order",),
    "a key that is not taken": ("header order",),
    "a request that is too long": ("context overflow compacts",),
    "another try": ("retries recorded",),
    "an answer that ends for another reason": ("answers without tool calls complete",),
    "an error in the middle of words": ("errors in a stream", "interrupted text closed"),
    "stopped in the middle of words": (
        "abort message",
        "interrupted text closed",
        "interrupted text sent as stored",
    ),
    "stopped in the middle of thought": ("abort message", "interrupted text closed"),
    "stopped in a tool": ("abort message", "aborted calls counted"),
    "stopped before another try": ("abort message", "retries recorded"),
    "something said meanwhile": ("empty output shown to the model", "steering prompts marked"),
    "another agent's work": ("how to continue a task", "field order of rules", "restrictions of subagents"),
    "an agent that does not exist": ("unknown agent",),
    "lines of a file": ("how to read the rest of an attached file",),
    "a file that is not there": ("missing attachment",),
    "a picture": ("unsupported files",),
    "a file out of nowhere": ("text of data URLs", "unsupported files"),
    "an agent by name": ("mentioned agent",),
    "a task from the user": ("how to continue a task", "field order of rules", "restrictions of subagents"),
    "a plan, then the work": ("reminders stored",),
    "a tool switched off": ("tools disabled per prompt",),
    "a structured answer": ("format stored as given", "finish of structured answers", "structured answer accepted"),
    "a structured answer that is none": ("format stored as given", "structured answer missing"),
    "no more steps": ("last step without tools",),
    "a command that is forbidden": ("denied by a rule",),
    "refused by the user": ("rejected by the user", "finish after a rejection"),
    "refused with a reason": ("rejected with instructions",),
    "a question answered": ("question answered",),
    "a question dismissed": ("question dismissed", "finish after a rejection"),
    "the same call three times at once": ("repeated calls rejected individually", "finish after a rejection"),
    "reading, writing, editing": ("file writes recorded",),
    "summed up on request": _SUMMED_UP,
    "summed up twice": _SUMMED_UP,
    "summed up with calls": _SUMMED_UP,
    "a window that is full": (*_SUMMED_UP, "continue after compaction"),
    "gone back": ("file writes recorded",),
    "gone back to the beginning": ("file writes recorded",),
    "gone back in an answer": ("file writes recorded",),
    "gone back and on": ("file writes recorded",),
    "gone back and forth": ("file writes recorded", "unrevert deletes again"),
    "gone back step by step": ("file writes recorded",),
    "gone back and summed up": ("file writes recorded", *_SUMMED_UP),
    "summed up and gone back": ("file writes recorded", *_SUMMED_UP),
    "the user's command after going back": ("file writes recorded",),
    "a command for a session of its own": (
        "no synthetic prompt after a command's task",
        "how to continue a task",
        "field order of rules",
        "restrictions of subagents",
    ),
    "a connection that breaks": ("retries recorded", "failed attempts discarded"),
    "an overloaded provider": ("retries recorded",),
}
"""Which of them show in which scenario. The others have none."""
