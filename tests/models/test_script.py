from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.models.stream_events import Usage
from opensesh.testing.scripted import (
    FAILURE_KINDS,
    FINISH_REASONS,
    CallTool,
    Drip,
    Expect,
    Fail,
    FinishWith,
    Hang,
    InvalidScriptError,
    Meta,
    ReportUsage,
    Say,
    Script,
    ScriptStep,
    ScriptTurn,
    Split,
    Think,
    Title,
    Wait,
    parse_prompt,
    prompt_usage,
    script,
    turn,
)

if TYPE_CHECKING:
    from pathlib import Path

words = st.text(min_size=1)
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()), max_size=3
)
seconds = st.floats(0, 1e6)
counts = st.integers(0, 10**9)
calls = st.builds(CallTool, names, json_objects) | st.builds(
    CallTool, names, fragments=st.lists(st.text(), min_size=1, max_size=4).map(tuple)
)
usages = st.builds(
    ReportUsage,
    input=counts,
    output=counts,
    reasoning=counts,
    cache_read=counts,
    cache_write=counts,
    total=st.none() | counts,
)
contents: st.SearchStrategy[ScriptStep] = st.one_of(
    st.builds(Say, words),
    st.builds(Think, words),
    calls,
    st.builds(Meta, st.dictionaries(names, json_objects, min_size=1, max_size=2)),
    st.builds(Wait, seconds),
    st.builds(Drip, seconds),
    st.builds(Split, st.integers(1, 99) | st.just("word")),
    st.builds(Expect, st.sampled_from(["last", "system", "tools"]), words),
)
forms = st.sampled_from(["seconds", "date", "ms"])
refusals = st.builds(
    Fail, st.sampled_from(FAILURE_KINDS[:5]), st.none() | seconds, forms, st.none() | st.integers(400, 599), st.text()
)
failures = (
    refusals
    | st.builds(Fail, st.just("status"), st.none() | seconds, forms, st.integers(400, 599), st.text())
    | st.builds(Fail, st.sampled_from(["reset", "malformed", "torn"]), message=st.text())
)
endings = st.builds(FinishWith, st.sampled_from(FINISH_REASONS)) | failures | st.just(Hang())


def ended(middle: list[ScriptStep], usage: list[ReportUsage], end: ScriptStep) -> ScriptTurn:
    return ScriptTurn((*middle, *usage, end))


def titled(text: str) -> ScriptTurn:
    return ScriptTurn((Title(text),))


turns = st.builds(ended, st.lists(contents, max_size=6), st.lists(usages, max_size=1), endings) | st.builds(
    titled, words
)


@given(st.lists(turns, max_size=5))
def test_a_script_reads_back_as_it_was_printed(given_turns: list[ScriptTurn]) -> None:
    made = Script(tuple(given_turns))
    assert Script.parse(str(made)) == made


def test_text_and_builders_give_the_same_script() -> None:
    text = """\
# Look, then answer.
EXPECT last fix the bug
EXPECT tools read, bash
THINK I should look first.
META {"anthropic": {"signature": "abc"}}
SAY I will read the file.
CALL read {"filePath": "/srv/a.py"}
CALL bash id=call_7
  {"comm
  "and\\": \\"ls\\"}"
USAGE input=900 output=40

---
SPLIT 3
DRIP 0.01
SAY
  Two lines,

    and one that is set in.
WAIT 0.5
FINISH length
---
ERROR rate-limit after=2 form=date message="slow \\"down\\""
---
HANG
---
TITLE Fixing the bug
"""
    made = script(
        [
            Expect("last", "fix the bug"),
            Expect("tools", "read, bash"),
            Think("I should look first."),
            Meta({"anthropic": {"signature": "abc"}}),
            "I will read the file.",
            CallTool("read", {"filePath": "/srv/a.py"}),
            CallTool("bash", fragments=('{"comm', 'and": "ls"}'), id="call_7"),
            ReportUsage(input=900, output=40),
        ],
        turn(
            Split(3),
            Drip(0.01),
            "Two lines,\n\n  and one that is set in.",
            Wait(0.5),
            FinishWith("length"),
        ),
        Fail("rate-limit", 2, "date", message='slow "down"'),
        Hang(),
        Title("Fixing the bug"),
    )
    assert Script.parse(text) == made
    assert Script.parse(text.replace("\n", "\r\n")) == made


def test_no_text_is_a_script_without_turns() -> None:
    assert Script.parse("# nothing\n\n") == script()


def test_a_status_is_a_kind_of_failure() -> None:
    assert Script.parse("ERROR 418") == script(Fail("status", status=418))
    assert str(turn(Fail("status", status=418))) == "ERROR 418"


def test_quoted_text_is_unchanged_unless_it_is_json() -> None:
    text = Script.parse('SAY "yes" and "no"\nSAY " yes "').turns[0].steps
    assert text == (Say('"yes" and "no"'), Say(" yes "))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("SAY a\nSING b", 2, "it does not begin with one of SAY, THINK"),
        ("SAY a\n  b", 2, "it does not begin with one of"),
        ("# c\nSAY", 2, "SAY: the text is missing"),
        ("SAY a\n---\n---\nSAY b", 3, "a turn needs steps"),
        ("SAY a\n---\n", 2, "a turn needs steps"),
        ("CALL", 1, "the form is CALL tool {json}"),
        ("CALL read {", 1, "CALL: not JSON"),
        ("CALL read [1]", 1, "the form is CALL tool {json}"),
        ("META 1", 1, "META: not a JSON object"),
        ('META {"a": 1}', 1, "metadata has the form"),
        ("SAY a\nUSAGE input=x", 2, "invalid literal"),
        ("USAGE inputs=3", 1, "inputs is not one of input, output"),
        ("USAGE much", 1, "'much' is not of the form name=value"),
        ("USAGE", 1, "the form is USAGE"),
        ("USAGE input=-1", 1, "tokens cannot be negative"),
        ("FINISH soon", 1, "'soon' is not one of stop, length"),
        ("ERROR bad", 1, "'bad' is neither an HTTP status nor one of"),
        ("ERROR 200", 1, "200 is not an error status"),
        ("ERROR rate-limit after=-1", 1, "the wait must not be negative"),
        ("ERROR rate-limit form=weeks", 1, "form=weeks is not one of"),
        ("ERROR reset after=1", 1, "neither a status nor a wait"),
        ("WAIT long", 1, "could not convert"),
        ("WAIT -1", 1, "-1.0 is not a number of seconds"),
        ("WAIT nan", 1, "nan is not a number of seconds"),
        ("SPLIT 0", 1, "at least one character"),
        ("HANG 3", 1, "HANG takes no arguments"),
        ("EXPECT nothing", 1, "'nothing' is not one of last, system, tools"),
        ("EXPECT last", 1, "the text is missing"),
        ("SAY a\nHANG\nSAY b", 3, "HANG ends the turn"),
        ("SAY a\nERROR auth\n\nSAY b", 4, "ERROR ends the turn"),
        ("FINISH stop\nSAY b", 2, "FINISH ended the answer"),
        ("USAGE 1\nUSAGE 2", 2, "only one in a turn"),
        ("SAY a\nTITLE b", 2, "it has to begin its turn"),
        ("TITLE b\nCALL read {}", 2, "a title cannot call tools"),
        ("CALL a id=1 {}\nCALL b id=1 {}", 2, "the id 1 is used"),
    ],
)
def test_a_bad_line_is_named(text: str, line: int, reason: str) -> None:
    with pytest.raises(InvalidScriptError) as caught:
        Script.parse(text)
    assert caught.value.line == line
    assert reason in str(caught.value)


def test_a_bad_step_is_named_by_its_turn_and_place() -> None:
    with pytest.raises(InvalidScriptError, match=r"^turn 2, step 3: SAY: HANG ends the turn"):
        script("one", ["two", Hang(), "three"])
    with pytest.raises(InvalidScriptError, match=r"^turn 1, step 1: CALL: '' is not a tool name"):
        script(CallTool(""))
    with pytest.raises(InvalidScriptError, match=r"^step 1: CALL: not JSON"):
        turn(CallTool("read", {"path": object()}))
    with pytest.raises(InvalidScriptError, match="either an input or fragments"):
        turn(CallTool("read", {}, ("{}",)))
    with pytest.raises(InvalidScriptError, match="contains a space"):
        turn(CallTool("read", {}, id="a b"))
    with pytest.raises(InvalidScriptError, match="a turn needs steps"):
        turn()


def test_a_file_is_named_with_the_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "demo.script"
    path.write_text("SAY a\nSING b\n")
    with pytest.raises(InvalidScriptError, match=r"^line 2: .*demo\.script"):
        Script.read(path)
    path.write_text("SAY a\n")
    assert Script.read(path) == script("a")


def test_a_prompt_holds_the_script_of_a_session_word_by_word() -> None:
    prompt = 'Please:\nTHINK let me\nSAY I read.\nCALL read {"filePath":"a"}\n---\nSAY Done.\n<reminder>'
    assert parse_prompt(prompt) == [
        [turn(Split("word"), Think("let me "), "I read. ", CallTool("read", {"filePath": "a"}))],
        [turn(Split("word"), "Done. ")],
    ]


def test_a_failure_in_a_prompt_ends_one_attempt() -> None:
    failed = Fail("status", 0.5, "ms", 429, "scripted failure")
    assert parse_prompt("FAIL 429\nSLOW 8\nSAY ok") == [
        [turn(Split("word"), failed), turn(Split("word"), Wait(8), "ok ")]
    ]
    assert parse_prompt("SAY a\nERROR reset") == [[turn(Split("word"), "a ", Fail("reset"))]]


def test_a_plain_prompt_contains_no_script() -> None:
    assert parse_prompt("Say hello.\n\n---\n\nSAYING more, ERROR: no") == []


def test_a_prompt_may_name_the_size_it_pretends_to_have() -> None:
    assert prompt_usage(199_000) == Usage(input=198_700, output=50, cache_read=300, total=199_050)
    assert prompt_usage(100) == Usage(input=0, output=50, cache_read=100, total=150)
    assert Script.parse("USAGE 199000") == script(ReportUsage(input=198_700, output=50, cache_read=300, total=199_050))
    assert ReportUsage.of(prompt_usage(7)).usage == prompt_usage(7)
