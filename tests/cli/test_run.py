from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli.main import run
from opensesh.cli.prompt_run import RunUsage, format_cost
from opensesh.cli.responders import parse_answer, parse_choice
from opensesh.cli.terminal import escape_control
from opensesh.engine.opening import open_engine
from opensesh.engine.settings import Settings
from opensesh.events import MessageUpdated
from opensesh.testing.wire import WireServer

from .running import Screen, Terminal, write_script

HELLO = "SAY Hello there."
FIX = """CALL read {"filePath": "calc.py"}
---
SAY I will change it.
CALL edit {"filePath": "calc.py", "oldString": "a - b", "newString": "a + b"}
---
SAY Changed.
"""


@pytest.fixture
def calc() -> Path:
    Path("opencode.json").write_text('{"permission": {"edit": "ask", "bash": "ask"}}')
    path = Path("calc.py")
    path.write_text("def add(a, b):\n    return a - b\n")
    return path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def shown(terminal: Terminal, session: str = "last") -> Any:
    return terminal.json("show", session)


def test_the_answer_is_on_standard_output_and_everything_else_on_standard_error(terminal: Terminal) -> None:
    model = write_script(
        """THINK hm
SAY I will look.
CALL bash {"command": "echo hi; exit 3", "description": "greet"}
---
SAY
  Two lines,

  with a gap.
"""
    )
    assert terminal.run("run", "-m", model, "do", "it") == "I will look.\nTwo lines,\n\nwith a gap.\n"
    assert terminal.code == 0
    head, tool, cost, hint = terminal.error.splitlines()
    assert head == "build  scripted/model.script"
    assert tool.startswith("> bash echo hi; exit 3  exit 3  ")
    assert "tokens in" in cost
    assert cost.startswith("$0.")
    session = shown(terminal)["info"]
    assert hint == f"continue with: opensesh run --session {session['id']} ..."
    assert session["title"] == "Scripted title for session"


def test_words_options_and_standard_input_make_one_prompt(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from the pipe \xff\n")))
    assert terminal.run("run", "two", "-m", "scripted/prompt", "words") == "You said: two words\nfrom the pipe \ufffd\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"only this\n")))
    assert terminal.run("run", "-m", "scripted/prompt") == "You said: only this\n"
    assert terminal.run("run", "-m", "scripted/prompt", "--", "-x", "is odd") == "You said: -x is odd\n"


def test_a_pipe_beside_words_mentions_no_file_and_one_in_place_of_them_does(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attached(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"see @secret.txt\n")))
        terminal.run("run", "-m", "scripted/prompt", *words)
        return [part["filename"] for part in shown(terminal)["messages"][0]["parts"] if part["type"] == "file"]

    Path("secret.txt").write_text("sesame")
    Path("mine.txt").write_text("fine")
    assert attached("Explain this, by", "@mine.txt") == ["mine.txt"]
    assert attached() == ["secret.txt"]


def test_waiting_for_standard_input_is_reported() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "opensesh", "run", "-m", "scripted/prompt", "hello"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "standard input" in process.stderr.readline()
    assert process.communicate("you\n")[0] == "You said: hello\nyou\n"


def test_the_model_of_the_configuration_is_used(terminal: Terminal, isolated: Path) -> None:
    own = isolated / ".config" / "opencode" / "opencode.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"model": write_script(HELLO)}))
    assert terminal.run("run", "hello") == "Hello there.\n"
    assert shown(terminal)["messages"][1]["info"]["modelID"] == "model.script"


def test_a_provider_of_ones_own_is_asked_over_the_wire(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    with WireServer("SAY Over the wire.") as server:
        options = {"baseURL": server.base_url, "apiKey": "sk-secret"}
        Path("opencode.json").write_text(
            json.dumps({"model": "mine/big", "provider": {"mine": {"options": options, "models": {"big": {}}}}})
        )
        assert terminal.run("run", "hello") == "Over the wire.\n"
    assert terminal.code == 0
    assert "cost unknown  2,000 tokens in" in terminal.error  # the answer, and the title


def test_a_refused_key_comes_with_the_command_that_stores_another(terminal: Terminal) -> None:
    terminal.run("run", "-m", write_script('ERROR auth message="Incorrect API key provided"'), "hello")
    assert terminal.code == 1
    assert "! Incorrect API key provided\n  The provider refused the key; 'opensesh auth login" in terminal.error


def test_an_interruption_while_only_the_title_is_missing_keeps_the_answer(screen: Callable[..., Screen]) -> None:
    seen = screen("run", "-m", write_script("SAY Answered.\n---\nTITLE Never\nHANG"), "go")
    seen.until("Answered.")
    deadline = time.monotonic() + 60
    while not any(b'"completed"' in path.read_bytes() for path in Path.home().rglob("msg_*.json")):
        assert time.monotonic() < deadline, "the answer is never stored"
        time.sleep(0.02)
    time.sleep(0.3)
    seen.type("\x03")
    assert seen.end() == 0
    assert "continue with: " in seen.text


def test_json_is_one_event_a_line_and_the_result_at_the_end(terminal: Terminal) -> None:
    text = "SAY Odd\u2028line \u0085ends.\nUSAGE input=1000 output=100"
    model = write_script(f"{text}\n---\nTITLE A title\nUSAGE input=100 output=10")
    events = lines(terminal.run("run", "--format", "json", "-m", model, "hello"))
    *received, result = events
    sequence = [event["sequence"] for event in received]
    assert sequence == sorted(set(sequence))
    assert {"session.created", "message.updated", "message.part.updated", "session.idle"} <= {
        e["type"] for e in received
    }
    titles = [e["properties"]["info"]["title"] for e in received if e["type"] == "session.updated"]
    assert titles[-1] == "A title"
    session = shown(terminal)["info"]["id"]
    assert result == {
        "type": "result",
        "sessionID": session,
        "outcome": "answered",
        "text": "Odd\u2028line \u0085ends.",
        "cost": 0.00495,
        "tokens": {"input": 1100, "output": 110, "reasoning": 0, "cache": {"read": 0, "write": 0}},
    }
    model = write_script(HELLO)
    assert terminal.json("run", "-m", model, "hello")["text"] == "Hello there."


def test_a_failure_is_a_result_too(terminal: Terminal) -> None:
    model = write_script('SAY Half of\nERROR auth message="no such key"')
    *_, result = lines(terminal.run("run", "--format", "json", "-m", model, "hello"))
    assert (terminal.code, result["outcome"], result["error"]["name"]) == (1, "failed", "ProviderAuthError")
    assert terminal.run("run", "-m", write_script('ERROR auth message="no such key"'), "hello") == ""
    assert (terminal.code, terminal.error.count("! no such key")) == (1, 1)
    (result,) = lines(terminal.run("run", "--format", "json", "--session", "nope", "hello"))
    assert (terminal.code, result["outcome"], result["error"]["name"]) == (3, "failed", "NotFound")
    assert "no session is called 'nope'" in terminal.error
    assert terminal.json("run", "--session", "nope", "hello")["error"]["name"] == "NotFound"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["run"], 2, "no prompt: "),
        (["run", "--session", "x", "--continue", "hello"], 2, "cannot be combined"),
        (["run", "--session", "x", "--title", "y", "hello"], 2, "--title is for new sessions"),
        (["run", "--continue", "hello"], 3, "without --continue"),
        (["run", "--session", "ses_nope", "hello"], 3, "no session is called"),
        (["run", "--dir", "nowhere", "hello"], 2, "the directory nowhere does not exist"),
        (["run", "--file", "nowhere", "-m", "scripted/prompt", "hello"], 2, "no file"),
        (["run", "--agent", "nobody", "hello"], 3, "there is no agent 'nobody'"),
        (["run", "--agent", "explore", "hello"], 2, "subagent"),
        (["run", "-m", "anthropic/claude-nope", "hello"], 3, "has no model"),
        (["run", "-m", "anthropic/claude-sonnet-4-5", "hello"], 1, "set ANTHROPIC_API_KEY"),
        (["run", "-m", "anthropic/claude-sonnet-4-5", "--variant", "x", "hello"], 2, "variant 'x'; it has: high, max"),
        (["run", "-m", "openai/gpt-4o", "--variant", "high", "hello"], 2, "'high'; it has: none"),
        (["run", "-m", "scripted/nowhere", "hello"], 2, "No such file"),
        (["run", "--format", "xml", "hello"], 2, "invalid choice"),
        (["run", "hello"], 3, "there is no model to use: none was named"),
    ],
)
def test_what_cannot_work_is_reported_in_one_line_and_leaves_no_session(
    terminal: Terminal, words: list[str], code: int, text: str
) -> None:
    terminal.run(*words)
    assert (terminal.code, text in terminal.error, terminal.error.count("\n")) == (code, True, 1), terminal.error
    assert terminal.json("list")["total"] == 0


def test_a_session_is_gone_on_with_where_it_worked(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    terminal.run("run", "-m", "scripted/prompt", "--dir", str(tmp_path / "there"), "--title", "Mine", "first")
    session = shown(terminal)["info"]
    assert (session["title"], session["directory"]) == ("Mine", str(tmp_path / "there"))
    script = 'CALL bash {"command": "pwd", "description": "where"}\n---\nSAY second'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(script.encode())))
    assert terminal.run("run", "--session", session["id"][:20]) == "second\n"
    messages = shown(terminal, session["id"])["messages"]
    assert [message["info"]["role"] for message in messages] == ["user", "assistant", "user", "assistant", "assistant"]
    tool = next(part for part in messages[3]["parts"] if part["type"] == "tool")
    assert tool["state"]["output"].strip() == str(tmp_path / "there")
    assert shown(terminal)["info"]["id"] == session["id"]
    (tmp_path / "there").rmdir()
    terminal.run("run", "--session", session["id"], "third")
    assert (terminal.code, "does not exist" in terminal.error) == (2, True)


def test_continue_takes_the_last_session_of_this_directory(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("run", "-m", "scripted/prompt", "here")
    here = shown(terminal)["info"]["id"]
    (tmp_path / "there").mkdir()
    terminal.run("run", "-m", "scripted/prompt", "--dir", str(tmp_path / "there"), "there")
    assert terminal.run("run", "--continue", "again") == "You said: again\n"
    assert len(shown(terminal, here)["messages"]) == 4


def test_files_title_agent_and_variant_are_stored_with_the_prompt(terminal: Terminal) -> None:
    Path("notes.txt").write_text("remember the milk\n")
    words = ("--file", "notes.txt", "--title", "", "--agent", "plan", "--variant", "high")
    terminal.run("run", "-m", "scripted/prompt", *words, "What  do\nthe notes say?")
    assert terminal.code == 0
    stored = shown(terminal)
    assert stored["info"]["title"] == "What do the notes say?"
    user = stored["messages"][0]
    assert (user["info"]["agent"], user["info"]["variant"]) == ("plan", "high")
    assert any("remember the milk" in part.get("text", "") for part in user["parts"])
    assert [part["filename"] for part in user["parts"] if part["type"] == "file"] == ["notes.txt"]


def test_a_session_that_runs_elsewhere_is_busy(terminal: Terminal) -> None:
    model = write_script("SAY Waiting.\nHANG")
    command = [sys.executable, "-m", "opensesh", "run", "--format", "json", "-m", model, "hello"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        line = next(line for line in other.stdout if '"busy"' in line)
        session = json.loads(line)["properties"]["sessionID"]
        terminal.run("run", "--session", session, "me too")
        assert (terminal.code, f"opensesh run (pid {other.pid}" in terminal.error) == (4, True)
        other.send_signal(signal.SIGTERM)
        result = lines(other.stdout.read())[-1]
    assert (other.returncode, result["outcome"], result["error"]["name"]) == (130, "aborted", "MessageAbortedError")


def test_where_no_user_can_be_asked_the_request_is_refused(terminal: Terminal, calc: Path) -> None:
    terminal.run("run", "-m", write_script(FIX), "fix it")
    assert terminal.code == 1
    assert "! permission refused, because no user can be asked: edit calc.py\n" in terminal.error
    assert "--yes" in terminal.error
    assert "stopped, because a permission was refused" in terminal.error
    assert "the user refused" not in terminal.error
    reported = [line for line in terminal.error.splitlines() if "edit was not allowed for " in line]
    assert len(reported) == 1
    assert ": no user could be asked; --yes approves everything" in reported[0]
    assert "a - b" in calc.read_text()


def test_a_list_of_things_to_do_is_printed_with_the_state_of_each(terminal: Terminal, calc: Path) -> None:
    todos = [{"content": "look", "status": "completed"}, {"content": "fix", "status": "in_progress"}]
    script = f"CALL todowrite {json.dumps({'todos': todos})}\n---\nSAY Noted."
    terminal.run("run", "-m", write_script(script), "plan it")
    reported = terminal.error[terminal.error.index("> todowrite 1 of 2 done  ") :].splitlines()
    assert reported[1:3] == ["  [x] look", "  [~] fix"]


def test_yes_allows_what_would_be_asked_for(terminal: Terminal, calc: Path) -> None:
    assert terminal.run("run", "--yes", "-m", write_script(FIX), "fix it") == "I will change it.\nChanged.\n"
    assert terminal.code == 0
    assert "> edit calc.py  +1 -1  " in terminal.error
    assert "a + b" in calc.read_text()


def test_yes_does_not_approve_endless_loops(terminal: Terminal) -> None:
    model = write_script("\n---\n".join(['CALL bash {"command": "true", "description": "again"}'] * 12))
    terminal.run("run", "--yes", "-m", model, "loop")
    assert (terminal.code, "doom_loop" in terminal.error) == (1, True)


def test_yes_does_not_lift_what_a_rule_forbids(terminal: Terminal, calc: Path) -> None:
    Path("opencode.json").write_text('{"permission": {"edit": {"*": "allow", "*calc.py": "deny"}}}')
    terminal.run("run", "--yes", "-m", write_script(FIX), "fix it")
    assert terminal.code == 0
    assert "a - b" in calc.read_text()


def test_the_model_is_not_offered_questions_that_no_user_would_answer(terminal: Terminal) -> None:
    ask = 'CALL question {"questions": [{"question": "Which?", "header": "W", "options": []}]}'
    assert terminal.run("run", "-m", write_script(f"{ask}\n---\nSAY On my own, then."), "go") == "On my own, then.\n"
    assert (terminal.code, "> question  " in terminal.error) == (0, True)


def test_the_terminal_shows_the_difference_and_takes_yes(screen: Callable[..., Screen], calc: Path) -> None:
    seen = screen("run", "-m", write_script(FIX), "fix", "it")
    seen.until("y once, a always (edit *), n no, or type what to do instead\n  > ")
    assert "  -    return a - b\n  +    return a + b\n" in seen.text
    assert "\x1b[31m  -    return a - b" in seen.raw
    seen.type("x\n")
    seen.until("> x\n  > ")
    assert "a - b" in calc.read_text()
    seen.type("y\n")
    assert seen.end() == 0
    assert "\nChanged.\n" in seen.text
    assert "a + b" in calc.read_text()


def test_words_are_what_to_do_instead(screen: Callable[..., Screen], calc: Path) -> None:
    model = write_script(FIX.replace("SAY Changed.", "EXPECT last rename it\nSAY As you wish."))
    seen = screen("run", "-m", model, "fix it")
    seen.until("instead\n  > ")
    seen.type("rename it first\n")
    assert seen.end() == 0
    assert "As you wish." in seen.text
    assert "a - b" in calc.read_text()


@pytest.mark.slow
def test_a_request_that_waits_long_for_the_terminal_logs_no_warning(screen: Callable[..., Screen], calc: Path) -> None:
    seen = screen("run", "-m", write_script(FIX), "fix it")
    seen.until("instead\n  > ")
    time.sleep(Settings().unanswered_warning_seconds or 0)
    time.sleep(1)
    seen.type("y\n")
    assert seen.end() == 0
    assert "is waiting" not in seen.text


@pytest.mark.parametrize("keys", ["n\n", "\x04"])
def test_no_and_the_end_of_input_stop_the_turn(screen: Callable[..., Screen], calc: Path, keys: str) -> None:
    seen = screen("run", "-m", write_script(FIX), "fix it")
    seen.until("instead\n  > ")
    seen.type(keys)
    assert seen.end() == 1
    assert "stopped, because a permission was refused" in seen.text
    assert "a - b" in calc.read_text()


def test_always_is_not_asked_again(screen: Callable[..., Screen], calc: Path) -> None:
    back = 'CALL edit {"filePath": "calc.py", "oldString": "a + b", "newString": "a * b"}'
    seen = screen("run", "-m", write_script(FIX.replace("SAY Changed.", f"{back}\n---\nSAY Twice.")), "fix it")
    seen.until("instead\n  > ")
    seen.type("a\n")
    assert seen.end() == 0
    assert "a * b" in calc.read_text()
    assert seen.text.count("what to do instead") == 1


def test_a_long_difference_is_shown_in_full_on_demand(screen: Callable[..., Screen], calc: Path) -> None:
    content = "".join(f"line {number}\n" for number in range(200))
    call = json.dumps({"filePath": "long.txt", "content": content})
    seen = screen("run", "-m", write_script(f"CALL write {call}\n---\nSAY Written."), "go")
    seen.until("more; v shows all")
    seen.until("instead\n  > ")
    assert "+line 199" not in seen.text
    seen.type("v\n")
    seen.until("+line 199\n  > ")
    seen.type("y\n")
    assert (seen.end(), Path("long.txt").read_text()) == (0, content)


def test_what_was_typed_before_the_question_is_not_an_answer(screen: Callable[..., Screen], calc: Path) -> None:
    seen = screen("run", "-m", write_script(FIX.replace("SAY I will", "WAIT 1\nSAY I will")), "fix it")
    seen.until("> read calc.py")
    seen.type("y\n")
    seen.until("instead\n  > ")
    time.sleep(0.3)
    assert "a - b" in calc.read_text()
    seen.type("n\n")
    assert seen.end() == 1


def test_the_whole_command_is_shown_before_it_is_allowed(screen: Callable[..., Screen], calc: Path) -> None:
    call = json.dumps({"command": "echo one\necho two", "description": "harmless"})
    seen = screen("run", "-m", write_script(f"CALL bash {call}\n---\nSAY Done."), "go")
    seen.until("? bash\n  echo one\n  echo two\n")
    seen.until("instead\n  > ")
    seen.type("y\n")
    assert seen.end() == 0


def test_questions_are_put_at_the_terminal(screen: Callable[..., Screen]) -> None:
    options = [{"label": "Red", "description": "like blood"}, {"label": "Blue", "description": ""}]
    questions = [
        {"question": "Which colour?", "header": "Colour", "options": options},
        {"question": "Which sizes?", "header": "Sizes", "options": options, "multiple": True},
    ]
    last = '{"question": "Which name?", "header": "Name", "options": []}'
    call = f'CALL question {{"questions": {json.dumps(questions)[:-1]}, {last}]}}'
    model = write_script(f'{call}\n---\nEXPECT last "Which colour?"="Blue"\nEXPECT last "Red, Blue"\nSAY Thank you.')
    seen = screen("run", "-m", model, "ask me")
    seen.until("? Which colour?\n  1  Red: like blood\n  2  Blue\n  a number, or your own words: ")
    seen.type("7\n")
    seen.until("own words: 7\n  a number, or your own words: ")
    seen.type("2\n")
    seen.until("numbers, or your own words: ")
    seen.type("1, 2\n")
    seen.until("your answer: ")
    seen.type("Ada\n")
    assert seen.end() == 0
    assert "Thank you." in seen.text


def test_an_interruption_aborts_the_turn_and_keeps_its_text(screen: Callable[..., Screen], terminal: Terminal) -> None:
    seen = screen(
        "run", "-m", write_script('SAY One moment.\nCALL bash {"command": "sleep 30"}\n---\nSAY Never.'), "go"
    )
    seen.until("… bash sleep 30")
    seen.type("\x03")
    assert seen.end() == 130
    assert "\naborted\n" in seen.text
    answer = shown(terminal)["messages"][-1]
    assert answer["info"]["error"]["name"] == "MessageAbortedError"
    assert [part["state"]["status"] for part in answer["parts"] if part["type"] == "tool"] == ["error"]


def test_an_interruption_while_being_asked_aborts_the_turn(screen: Callable[..., Screen], calc: Path) -> None:
    seen = screen("run", "-m", write_script(FIX), "fix it")
    seen.until("instead\n  > ")
    seen.type("\x03")
    assert seen.end() == 130
    assert "Traceback" not in seen.text


def test_the_second_interruption_leaves_at_once(screen: Callable[..., Screen], terminal: Terminal) -> None:
    stubborn = json.dumps({"command": "trap '' TERM INT; touch ready; sleep 60"})
    seen = screen("run", "-m", write_script(f"CALL bash {stubborn}\n---\nSAY Never."), "go")
    seen.until("… bash trap")
    while not Path("ready").exists():
        time.sleep(0.02)
    begun = time.monotonic()
    seen.type("\x03")
    seen.until("aborting")
    seen.type("\x03")
    assert seen.end() == 130
    assert time.monotonic() - begun < 30  # half of what the command sleeps
    assert terminal.run("run", "--session", "last", "-m", "scripted/prompt", "again") == "You said: again\n"
    states = [p["state"] for m in shown(terminal)["messages"] for p in m["parts"] if p["type"] == "tool"]
    assert [state["status"] for state in states] == ["error"]


def test_control_characters_reach_a_pipe_but_no_terminal(screen: Callable[..., Screen], terminal: Terminal) -> None:
    call = json.dumps({"command": "echo '\x1b]0;owned\x07'", "description": "x"})
    text = "red \x1b[31mtext \x9b31m \x07bell \u202eback\rover"
    model = write_script(f"SAY {json.dumps(text)}\nCALL bash {call}\n---\nSAY Done.")
    assert terminal.run("run", "-m", model, "go") == f"{text}\nDone.\n"
    seen = screen("run", "-m", model, "go")
    assert seen.end() == 0
    for bad in ("red \x1b[31m", "\x9b", "\x07", "\u202e", "\x1b]0", "back\rover"):
        assert bad not in seen.raw
    assert "red ␛[31mtext \\u009b31m ␇bell \\u202ebackover" in seen.text


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_colour_is_left_out_where_it_is_not_wanted(screen: Callable[..., Screen], name: str) -> None:
    model = write_script('THINK hm\nSAY One.\nCALL bash {"command": "exit 1"}\n---\nSAY Done.')
    seen = screen("run", "-m", model, "go", **{name: "dumb"})
    assert seen.end() == 0
    assert "\x1b[" not in seen.raw.replace("\r\x1b[K", "" if name == "NO_COLOR" else "\r\x1b[K")
    assert "Done." in seen.text


def test_a_narrow_terminal_gets_one_line_a_tool(screen: Callable[..., Screen]) -> None:
    command = json.dumps({"command": f"echo {'long ' * 40}"})
    seen = screen("run", "-m", write_script(f"CALL bash {command}\n---\nSAY Done."), "go", columns=30)
    assert seen.end() == 0
    (tool,) = [line for line in seen.text.splitlines() if line.startswith("> bash")]
    assert len(tool) < 30
    (command,) = [line for line in seen.text.splitlines() if line.startswith("continue with: ")]
    assert re.fullmatch(r"continue with: opensesh run --session ses_\w+ \.\.\.", command), "it can be copied"


def test_a_try_that_broke_off_is_not_part_of_the_answer(screen: Callable[..., Screen], terminal: Terminal) -> None:
    model = write_script("SPLIT word\nSAY This is half an\nERROR reset\n---\nSAY This is all of it.")
    assert terminal.run("run", "-m", model, "go") == "This is all of it.\n"
    assert "! The connection was reset\n  attempt 2 at " in terminal.error
    seen = screen("run", "-m", model, "go")
    assert seen.end() == 0
    assert "This is half an\n" in seen.text
    assert "(incomplete; discarded)" in seen.text


def test_a_summary_for_the_model_is_not_an_answer(terminal: Terminal) -> None:
    summary = "SAY Goal: look. Done: looked, and nothing was found. Next: say so."
    look = 'CALL bash {"command": "echo looking"}\nUSAGE input=199000 output=10'
    model = write_script(f"{look}\n---\n{summary}\n---\nSAY No matches.")
    assert terminal.run("run", "-m", model, "look") == "No matches.\n"
    assert "the conversation was compacted" in terminal.error


def test_subagents_are_seen_at_work(terminal: Terminal) -> None:
    task = json.dumps({"description": "look around", "prompt": "Look.", "subagent_type": "explore"})
    look = 'CALL bash {"command": "echo inside", "description": "x"}'
    model = write_script(f"CALL task {task}\n---\n{look}\n---\nSAY All quiet.\n---\nSAY No matches.")
    assert terminal.run("run", "-m", model, "go") == "No matches.\n"
    begun, inside, ended = [line for line in terminal.error.splitlines() if ">" in line]
    assert begun == "> task look around (@explore)"
    assert inside.startswith("  > bash echo inside  ")
    assert ended.startswith("> task look around (@explore)  ")


def test_a_subagents_request_is_answered_too(terminal: Terminal, calc: Path) -> None:
    task = json.dumps({"description": "fix it", "prompt": "Fix.", "subagent_type": "general"})
    model = write_script(f"CALL task {task}\n---\n{FIX}---\nSAY It was fixed.")
    assert terminal.run("run", "--yes", "-m", model, "go") == "It was fixed.\n"
    assert "a + b" in calc.read_text()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_goes_away_ends_the_run_quietly(terminal: Terminal, form: str) -> None:
    model = write_script('SAY One.\nCALL bash {"command": "true"}\n---\nSAY Two.\n---\nSAY Three.')
    command = f"{sys.executable} -m opensesh run --format {form} -m {model} go 2>errors | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in Path("errors").read_text()
    assert all(message["info"].get("finish") != "stop" for message in shown(terminal)["messages"])


async def test_cost_is_unknown_where_a_price_is() -> None:
    Path("opencode.json").write_text(
        '{"provider": {"mine": {"models": {"priced": {"cost": {"input": 1, "output": 2}}, "odd": {}}}}}'
    )
    async with open_engine(".") as engine:
        pass  # the usage of a run is printed after its engine was closed
    usage = RunUsage()
    tokens = {"input": 10, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    answer = {"id": "msg_1", "role": "assistant", "providerID": "mine", "modelID": "priced", "tokens": tokens}
    now = {"time": {"created": int(time.time() * 1000) + 1}}
    usage.record(MessageUpdated(info={**answer, **now, "cost": 0.1}))
    usage.record(MessageUpdated(info={**answer, **now, "id": "msg_2", "cost": 0.2}))
    assert (usage.cost(engine), usage.tokens["input"]) == (0.3, 20)
    usage.record(MessageUpdated(info={**answer, "id": "msg_0", "cost": 5, "time": {"created": 1}}))
    assert usage.cost(engine) == 0.3
    for model in ("odd", "gone"):
        usage.record(MessageUpdated(info={**answer, **now, "id": "msg_3", "modelID": model, "cost": 0}))
        assert usage.cost(engine) is None
    assert (format_cost(None), format_cost(0.00001), format_cost(0.3)) == (
        "cost unknown",
        "less than $0.0001",
        "$0.3000",
    )


def test_answers_are_parsed_as_the_user_expects() -> None:
    assert [parse_answer(word) for word in ("y", "YES", "a", "No", None)] == [
        ("once", None),
        ("once", None),
        ("always", None),
        ("reject", None),
        ("reject", None),
    ]
    assert parse_answer("Use tabs") == ("reject", "Use tabs")
    assert [parse_answer(word) for word in ("", "x", "ye", "v", "view")] == [None] * 5
    labels = ["Red", "Blue"]
    assert parse_choice("1", labels, multiple=False) == ["Red"]
    assert parse_choice("1 2", labels, multiple=False) == []
    assert parse_choice("2,1", labels, multiple=True) == ["Blue", "Red"]
    assert parse_choice("blue", labels, multiple=False) == ["Blue"]
    assert parse_choice(" green ", labels, multiple=False) == ["green"]
    assert parse_choice("3", [], multiple=False) == ["3"]


def test_text_is_tamed_and_otherwise_left_alone() -> None:
    assert escape_control("plain é 👩‍👩‍👧 \t\n") == "plain é 👩‍👩‍👧 \t\n"
    assert escape_control("\x00\x1b\x7f\x85") == "␀␛␡\\u0085"


def test_running_from_a_thread_of_the_tests_leaves_no_handlers(terminal: Terminal) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run(["run", "-m", write_script(HELLO), "hello"]) == 0
    assert signal.getsignal(signal.SIGTERM) == before
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)


def test_a_command_of_the_configuration_is_given_by_name(terminal: Terminal) -> None:
    Path("opencode.json").write_text('{"command": {"greet": {"template": "Greet $1 politely."}}}')
    reported = terminal.run("run", "-m", "scripted/prompt", "--command", "greet", "Ada")
    assert reported == "You said: Greet Ada politely.\n"
    assert terminal.code == 0


def test_a_prompt_that_begins_with_a_command_is_sent_and_the_command_is_named(terminal: Terminal) -> None:
    assert terminal.run("run", "-m", "scripted/prompt", "/review\nit") == "You said: /review\nit\n"
    assert "! /review is sent as text; 'opensesh run --command review' runs the command" in terminal.error
    terminal.run("run", "-m", "scripted/prompt", "/etc/hosts is wrong")
    assert "is sent as text" not in terminal.error


def test_a_command_that_is_not_there_leaves_no_session_behind(terminal: Terminal) -> None:
    terminal.run("run", "-m", "scripted/prompt", "--command", "gret")
    assert terminal.code == 3
    assert "init, review" in terminal.error
    assert terminal.json("list")["total"] == 0


def test_a_budget_that_is_used_up_from_the_start_is_reported_once(terminal: Terminal) -> None:
    terminal.run("run", "-m", "scripted/prompt", "--budget", "0", "SAY hi")
    assert terminal.error.count("is used up") == 1


def test_a_budget_ends_the_run_and_is_named(terminal: Terminal) -> None:
    model = write_script('CALL read {"filePath": "model.script"}\nUSAGE input=1000000 output=1\n---\nSAY never')
    assert "never" not in terminal.run("run", "-m", model, "--title", "T", "--budget", "2.50", "Go.")
    assert terminal.code == 1
    assert "the budget of this run, $2.50, is used up: $3.000015 are spent" in " ".join(terminal.error.split())
    terminal.run("run", "-m", model, "--budget", "lots", "Go.")
    assert terminal.code == 2


def test_everything_is_not_what_a_planning_session_may_do_unseen(terminal: Terminal) -> None:
    model = write_script('CALL bash {"command":"touch new.txt","description":"x"}\n---\nSAY no')
    terminal.run("run", "--yes", "--agent", "plan", "-m", model, "go")
    assert not Path("new.txt").exists()
    assert "in plan mode" in terminal.error


def test_a_reverted_session_is_marked_until_the_next_prompt_makes_it_final(terminal: Terminal) -> None:
    model = write_script(HELLO)
    terminal.run("run", "-m", model, "one")
    session = shown(terminal)["info"]["id"]
    terminal.run("run", "-m", model, "-s", session, "two")
    assert "reverted" not in terminal.run("show", session)
    terminal.run("session", "revert", session, "--yes")
    head = terminal.run("show", session).splitlines()[3]
    assert head.startswith("reverted to before message 3: 2 messages hidden from the model; ")
    assert f"'opensesh session unrevert {session}'" in head
    terminal.run("run", "-m", model, "-s", session, "three")
    (line,) = [item for item in terminal.error.splitlines() if "is final" in item]
    text, _, rest = line.partition(" to ")
    assert text == f"! the revert of {session} is final: moved 2 messages"
    path, how = rest.split(" ", 1)
    assert how == f"('opensesh session fork {session} --reverted' creates a session with them)"
    assert [load["info"]["role"] for load in json.loads(Path(path).read_text())["messages"]] == ["user", "assistant"]
    assert "reverted" not in terminal.run("show", session)
    terminal.run("run", "-m", model, "-s", session, "four")
    assert "is final" not in terminal.error


def test_what_a_final_revert_took_can_be_forked(terminal: Terminal) -> None:
    model = write_script(HELLO)
    terminal.run("run", "-m", model, "one")
    session = shown(terminal)["info"]["id"]
    terminal.run("run", "-m", model, "-s", session, "two")
    terminal.run("session", "fork", session, "--reverted")
    assert f"no revert of {session} is final" in terminal.error
    terminal.run("session", "revert", session, "--yes")
    terminal.run("session", "fork", session, "--reverted")
    assert f"'opensesh session unrevert {session}'" in terminal.error
    terminal.run("run", "-m", model, "-s", session, "three")
    fork = terminal.json("session", "fork", session, "--reverted")["id"]
    assert [prompts(terminal, item) for item in (session, fork)] == [["one", "three"], ["one", "two"]]


def prompts(terminal: Terminal, session: str) -> list[str]:
    return [
        word
        for word in ("one", "two", "three")
        if f"]\n{word}\n" in terminal.run("export", session, "--format", "prompts")
    ]
