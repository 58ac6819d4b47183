from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli import logfile
from opensesh.cli import main as app
from opensesh.cli.command_arguments import CommandParser
from opensesh.cli.main import COMMANDS
from opensesh.errors import NotFoundError
from opensesh.storage import paths

from ..history.sample_tree import Sample
from .running import Screen, Terminal, write_script

READERS = {
    "list": (),
    "show": ("last",),
    "search": ("word",),
    "projects": (),
    "export": ("-o", "out"),
    "stats": (),
    "doctor": (),
}
NEEDED = {
    "show": ("last",),
    "search": ("x",),
    "import": ("x",),
    "mcp": ("list",),
    "auth": ("list",),
    "session": ("fork", "last"),
    "completion": ("bash",),
    "run": ("x",),
}


def helps(terminal: Terminal, code: int, *, lines: int = 2) -> str:
    """What was said is short, no trace of the inside, and the exit code tells what kind of trouble it is."""
    text = terminal.error
    assert terminal.code == code, text
    assert text.startswith("opensesh: "), text
    assert "Traceback" not in text
    assert len(text.splitlines()) <= lines
    return text


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_is_not_there_is_named_with_a_way_on(terminal: Terminal, command: str) -> None:
    terminal.run(command, *NEEDED.get(command, ()), "--nonsense")
    text = helps(terminal, 2)
    assert "--nonsense" in text
    assert f"opensesh {command}" in text


@pytest.mark.parametrize("command", READERS)
def test_a_store_that_is_not_there_is_a_mistake_and_not_an_empty_history(terminal: Terminal, command: str) -> None:
    terminal.run(command, *READERS[command], "--store", "typo")
    assert "typo" in helps(terminal, 3)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("content", [b"junk", b"SQLite format 3\0junk", b""])
def test_a_store_that_cannot_be_read_is_named(terminal: Terminal, command: str, content: bytes) -> None:
    Path("odd.db").write_bytes(content)
    terminal.run(command, *READERS[command], "--store", "odd.db")
    assert "odd.db" in helps(terminal, 5)


@pytest.mark.parametrize("command", [*READERS, "stats --by project", "stats --bytes", "stats --project shop"])
def test_a_database_that_cannot_be_read_affects_only_itself(
    terminal: Terminal, sample: Sample, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.talk("A word of it")
    odd = sample.root.with_name("opencode.db")
    odd.write_bytes(b"junk")
    monkeypatch.setenv("OPENSESH_STORE", str(odd.parent))
    for _ in ("new", "known"):
        shown = terminal.run(*command.split(), *READERS.get(command, ()))
        assert terminal.code == (5 if command == "doctor" else 0), terminal.error
        assert shown or command == "export"
        assert f"{odd}: not an SQLite database" in shown + terminal.error
        assert (shown + terminal.error).count("not an SQLite database") == 1


def test_an_error_on_writing_says_how_to_continue_without_such_a_database(terminal: Terminal, sample: Sample) -> None:
    session = sample.talk()["id"]
    sample.root.with_name("opencode.db").write_bytes(b"junk")
    path = str(sample.root.parent)
    terminal.run("session", "rename", session, "New", "--store", path)
    assert f"--store {sample.root}" in helps(terminal, 5)
    assert "renamed: New" in terminal.run("session", "rename", session, "New", "--store", str(sample.root))


@pytest.mark.parametrize("command", READERS)
def test_a_database_that_cannot_be_read_is_an_error_where_there_is_nothing_else(
    terminal: Terminal, tmp_path: Path, command: str
) -> None:
    tmp_path.joinpath("opencode.db").write_bytes(b"junk")
    terminal.run(command, *READERS[command], "--store", str(tmp_path))
    assert "opencode.db: not an SQLite database" in helps(terminal, 5)


@pytest.mark.parametrize(
    ("command", "folder"),
    # What is inside the data folder, the doctor looks at and mends.
    [(reader, "data") for reader in READERS] + [(reader, "data/storage") for reader in READERS if reader != "doctor"],
)
def test_a_store_that_may_not_be_read_is_not_taken_for_an_empty_one(
    terminal: Terminal, command: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("data/storage/session").mkdir(parents=True)
    forbidden = os.path.abspath(folder)

    def access(path: str, mode: int) -> bool:  # who runs the tests may read everything
        return path != forbidden

    monkeypatch.setattr(os, "access", access)
    terminal.run(command, *READERS[command], "--store", "data")
    assert f"{forbidden} cannot be read" in helps(terminal, 5)


@pytest.mark.parametrize("command", READERS)
def test_an_empty_store_gives_an_empty_answer_with_a_hint(terminal: Terminal, command: str) -> None:
    Path("storage").mkdir()
    out = terminal.run(command, *READERS[command], "--store", "storage")
    assert terminal.code == (3 if command == "show" else 0)
    assert out or terminal.error


def test_a_command_that_is_nearly_right_is_suggested(terminal: Terminal) -> None:
    terminal.run("exprt")
    assert "'opensesh export'" in helps(terminal, 2)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--limit", "-5"),
        ("list", "--limit", "many"),
        ("show", "last", "--last", "-3"),
        ("search", "x", "--offset", "-1"),
        ("stats", "--limit", "\N{SUPERSCRIPT TWO}"),
        ("list", "--since", "\N{SUPERSCRIPT TWO}d"),
        ("tools", "--dir", "nowhere"),
    ],
    ids=" ".join,
)
def test_what_is_not_a_number_time_or_folder_is_refused(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.run(*words)
    assert words[-1] in helps(terminal, 2)


def test_a_session_keeps_its_title_unless_there_is_a_word_for_another(terminal: Terminal) -> None:
    terminal.run("run", "-m", "scripted/prompt", "--title", "Kept", "hello")
    terminal.run("session", "rename", "last", " ")
    assert "title" in helps(terminal, 2)
    assert terminal.json("show", "last")["info"]["title"] == "Kept"


@pytest.mark.parametrize("command", ["config", "agents", "models", "tools", "plugins", "list --here", "run x"])
def test_a_folder_that_is_gone_is_reported_as_that(terminal: Terminal, command: str) -> None:
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()
    terminal.run(*command.split())
    assert "no longer exists" in helps(terminal, 3)


def test_a_summary_that_cannot_be_made_is_one_line(terminal: Terminal) -> None:
    write_script("SAY Hello.")
    terminal.run("run", "-m", "scripted/model.script", "--title", "Kept", "hello")
    Path("model.script").unlink()
    terminal.run("session", "compact", "last")
    assert "the script model.script cannot be read" in helps(terminal, 1)
    assert "cannot be read" in terminal.json("session", "compact", "last")["error"]["message"]
    assert terminal.error == ""


def test_a_warning_of_a_component_is_a_line_without_a_traceback(terminal: Terminal) -> None:
    terminal.run("run", "-m", "scripted/prompt", "--title", "Kept", "hello")
    (message, *_) = Path(paths.storage(), "message").rglob("*.json")
    message.write_text("{torn")
    terminal.run("show", "last", "--context")
    assert terminal.code == 0
    assert terminal.error.startswith(f"! {message}: ")
    assert len(terminal.error.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--json", "--json needs a command."),
        ("--nonsense", "unknown option '--nonsense'."),
        ("--versoin", "unknown option '--versoin'; did you mean --version?"),
    ],
)
def test_an_option_without_a_command_is_named(terminal: Terminal, option: str, problem: str) -> None:
    out = terminal.run(option)
    assert terminal.code == 2
    assert problem in (terminal.error or out)


def test_without_a_provider_the_error_says_how_to_get_one(terminal: Terminal) -> None:
    terminal.run("run", "hello")
    assert "KEY" in helps(terminal, 3)


def test_a_provider_that_cannot_be_reached_is_named_with_the_time_of_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    wire: dict[str, Any] = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1"}}
    wire["models"] = {"m": {}}
    Path("opencode.json").write_text(json.dumps({"provider": {"near": wire}}))
    screen = Screen("run", "-m", "near/m", "hello", "--title", "Near")
    screen.until("http://127.0.0.1:9/v1/chat/completions could not be reached")
    screen.until("attempt 2 at")
    screen.close()
    assert "Traceback" not in screen.text


def test_without_git_history_can_still_be_read(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    terminal.run("list", "--here")
    assert terminal.code == 0


def test_where_nothing_may_be_written_the_error_names_the_folder(terminal: Terminal) -> None:
    Path("file").touch()
    terminal.run("run", "-m", "scripted/prompt", "hello", "--store", "file/storage")
    assert "file" in helps(terminal, 5)


def test_an_export_that_cannot_be_written_names_the_place(terminal: Terminal) -> None:
    terminal.run("run", "-m", "scripted/prompt", "hello")
    Path("file").touch()
    terminal.run("export", "last", "-o", "file/out.jsonl")
    assert "file/out.jsonl" in terminal.error
    assert "Traceback" not in terminal.error
    assert terminal.code == 1


@pytest.mark.parametrize(("columns", "heads"), [(36, "SESSION TITLE"), (42, "SESSION UPDATED TITLE")])
def test_a_narrow_terminal_leaves_columns_out_rather_than_breaking_lines(columns: int, heads: str) -> None:
    words = [
        sys.executable,
        "-m",
        "opensesh",
        "run",
        "-m",
        "scripted/prompt",
        "hi",
        "--title",
        "A title of some length",
    ]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    screen = Screen("list", columns=columns)
    screen.until("1 session.")
    screen.close()
    head, row = screen.text.splitlines()[:2]
    assert head.split() == heads.split()
    assert "A title" in row
    assert len(row) <= columns


def test_quiet_leaves_the_answer_alone(terminal: Terminal) -> None:
    assert terminal.run("run", "--quiet", "-m", "scripted/prompt", "hello") == "You said: hello\n"
    assert terminal.error == ""


def test_an_error_is_printed_even_with_quiet(terminal: Terminal) -> None:
    terminal.run("show", "last", "--quiet")
    helps(terminal, 3)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["ERROR 401"], 1, "refused the key"),
        (["--budget", "0.0001", "USAGE input=100000 output=1000"], 1, "does not pay the next request"),
        (['CALL bash {"command": "rm a.txt", "description": "Remove"}'], 1, "! permission refused"),
    ],
)
def test_why_a_run_failed_is_printed_even_with_quiet(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opencode.json").write_text('{"permission": {"bash": "ask"}}')
    terminal.run("run", "--quiet", "-m", "scripted/prompt", *arguments)
    assert terminal.code == code
    assert error in terminal.error
    assert "continue with" not in terminal.error


class Broken:
    __doc__ = "A command with a fault."

    def configure(self, parser: CommandParser) -> None:
        parser.add_argument("--what")

    def run(self, options: object) -> int:
        key = "sk-ant-api03-" + "a" * 95
        raise ZeroDivisionError(f"with {key}")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_command(name: str) -> Broken:
        return Broken()

    monkeypatch.setattr(app, "load_command", load_command)


@pytest.mark.usefixtures("broken")
def test_a_fault_of_ours_is_one_line_and_the_rest_is_in_the_log(terminal: Terminal) -> None:
    terminal.run("list")
    output = helps(terminal, 1)
    log = Path(logfile.log_path())
    assert str(log) in output
    text = log.read_text()
    assert "ZeroDivisionError" in text
    assert "test_errors.py" in text
    assert "sk-ant-api03" not in text, "secrets stay out of the log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.usefixtures("broken")
def test_a_fault_is_reported_where_no_log_can_be_written(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", os.path.abspath("file"))
    terminal.run("list")
    assert "--debug" in helps(terminal, 1)


@pytest.mark.usefixtures("broken")
def test_debug_shows_where_a_fault_came_from() -> None:
    with pytest.raises(ZeroDivisionError):
        app.run(["list", "--debug"])


@pytest.mark.usefixtures("broken")
def test_the_log_is_begun_anew_when_it_is_long(terminal: Terminal) -> None:
    log = Path(logfile.log_path())
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("x" * 1_100_000)
    terminal.run("list")
    assert log.stat().st_size < 100_000
    assert log.with_name("opensesh.log.1").stat().st_size == 1_100_000


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (lambda: PermissionError(13, "Permission denied", "/some/where"), "/some/where: Permission denied"),
        (lambda: OSError(28, "No space left on device"), "No space left on device"),
        (lambda: ModuleNotFoundError("No module named 'duckdb'", name="duckdb"), "duckdb"),
    ],
)
def test_what_the_system_says_is_passed_on(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], text: str
) -> None:
    class Failing(Broken):
        def run(self, options: object) -> int:
            raise error()

    def load_command(name: str) -> Failing:
        return Failing()

    monkeypatch.setattr(app, "load_command", load_command)
    terminal.run("list")
    assert text in helps(terminal, 1)
    assert not Path(logfile.log_path()).exists()


def shell(line: str, command: str = "list", **environ: str) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-c", f"{sys.executable} -m opensesh {command} {line}"]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | environ
    return subprocess.run(words, capture_output=True, text=True, env=settings, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("command", ["list", "list --help", "--help", "stats --csv", "agents", "agents --json"])
def test_a_reader_who_leaves_before_the_first_word_is_not_an_error(command: str) -> None:
    done = shell("| true; exit ${PIPESTATUS[0]}", command)
    assert (done.returncode, "rror" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("command", ["agents", "agents --json", "--help", "models anthropic"])
def test_a_full_disk_behind_standard_output_is_one_line(command: str) -> None:
    done = shell("> /dev/full", command)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "opensesh: No space left on device")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_run_whose_answer_cannot_be_written_is_stopped_and_says_why(terminal: Terminal, form: str) -> None:
    done = shell("> /dev/full", f"run -m scripted/prompt --title Told hello --format {form}")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "opensesh: No space left on device")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize(
    ("command", "code"), [("list", 0), ("run -m scripted/prompt hello", 0), ("session remove last", 3)]
)
def test_streams_that_were_closed_are_not_missed(command: str, code: int, closed: str) -> None:
    assert shell(closed, command).returncode == code


def test_an_error_inside_of_a_group_of_tasks_is_reported_as_itself(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Broken):
        def run(self, options: object) -> int:
            raise ExceptionGroup("tasks", [ExceptionGroup("inner", [NotFoundError("there is no such thing")])])

    def load_command(name: str) -> Failing:
        return Failing()

    monkeypatch.setattr(app, "load_command", load_command)
    terminal.run("list")
    assert "there is no such thing" in helps(terminal, 3)


IMPATIENT = """
import os, signal, sys

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Impatient())
"""


def interrupted(while_loading: str, program: str, *words: str) -> tuple[int, str, str]:
    code = IMPATIENT.format(name=while_loading) + program
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["opensesh.cli.command_arguments", "datetime", "opensesh.cli.list_command"])
def test_an_interruption_while_a_command_is_loaded_is_one(module: str) -> None:
    assert interrupted(module, "from opensesh.__main__ import main; main()", "list") == (130, "", "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_has_no_letters_for_is_replaced_and_no_error(sample: Sample, encoding: str) -> None:
    sample.session(title="a long way … 漢字 \udcff")
    done = subprocess.run(
        [sys.executable, "-m", "opensesh", "list"],
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"1 session.\n")
    assert f"a long way {'…' if encoding == 'utf-8' else '?'} ".encode() in done.stdout


@pytest.mark.parametrize("levels", [700, 60_000])
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "last"),
        ("show", "last", "--json"),
        ("show", "last", "--context"),
        ("search", "Because"),
        ("stats", "--by", "tool"),
        ("session", "fork", "last"),
        *(("export", "last", "--format", form) for form in ("jsonl", "json", "markdown", "html", "prompts")),
        ("export", "last", "--format", "html", "--redact"),
    ],
    ids=" ".join,
)
def test_a_record_that_is_nested_too_deeply_affects_only_itself(
    terminal: Terminal, sample: Sample, words: tuple[str, ...], levels: int
) -> None:
    session = sample.talk()
    part = sample.tool(sample.messages(session)[1], input={"deep": None})
    path = sample.path("part", part["messageID"], part["id"])
    path.write_text(path.read_text().replace("null", "[" * levels + "]" * levels, 1))
    terminal.run(*words)
    assert terminal.code == 0, terminal.error
    assert "should not have happened" not in terminal.error
