from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opensesh import __version__
from opensesh.cli.main import COMMANDS
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import leases_of

from ..history.sample_tree import Sample
from .running import Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def api() -> dict[str, Any]:
    return json.loads((FIXTURES / "opencode-1.1.65" / "api.json").read_text())


def test_list_equals_what_opencodes_server_answers(terminal: Terminal, store: Path, api: dict[str, Any]) -> None:
    answer = terminal.json("list", "--children", "--archived", "--limit", "0")
    assert answer["total"] == len(api["/session"])
    ours = {entry["id"]: entry for entry in answer["sessions"]}
    for theirs in api["/session"]:
        entry = ours[theirs["id"]]
        added = ("store", "messages", "cost", "inclusiveCost")
        assert set(added) <= set(entry)
        assert {key: entry[key] for key in entry if key not in added} == theirs
    updated = [entry["time"]["updated"] for entry in answer["sessions"]]
    assert updated == sorted(updated, reverse=True)


def test_show_equals_what_opencodes_server_answers(terminal: Terminal, store: Path, api: dict[str, Any]) -> None:
    asked = [path.split("/")[2] for path in api if path.endswith("/message")]
    assert len(asked) == 2
    for session in asked:
        answer = terminal.json("show", session)
        assert answer["messages"] == api[f"/session/{session}/message"]
        assert [[part["id"] for part in message["parts"]] for message in answer["messages"]] == [
            [part["id"] for part in message["parts"]] for message in api[f"/session/{session}/message"]
        ]
        assert answer["info"] in api["/session"]


def test_the_wrap_corpus_is_shown_in_true_order(terminal: Terminal) -> None:
    answer = terminal.json("show", "last", "--store", str(FIXTURES / "id-wrap"))
    prompts = [message["parts"][0]["text"] for message in answer["messages"] if message["info"]["role"] == "user"]
    assert prompts == [f"SAY answer number {number}" for number in range(8)]


def test_the_database_generation_is_listed_and_shown_as_its_server_answers(terminal: Terminal) -> None:
    location = str(FIXTURES / "opencode-1.18.33")
    api = json.loads((FIXTURES / "opencode-1.18.33" / "api.json").read_text())
    answer = terminal.json("list", "--children", "--archived", "--limit", "0", "--store", location)
    ours = {entry["id"]: entry for entry in answer["sessions"]}
    for theirs in api["/session"]:
        assert {key: ours[theirs["id"]][key] for key in theirs if key != "cost"} == {
            key: value for key, value in theirs.items() if key != "cost"
        }
        copied = "(fork #" in theirs["title"]  # OpenCode counts what a fork copied once more
        assert ours[theirs["id"]]["cost"] == pytest.approx(0 if copied else theirs["cost"])
    for path, expected in api.items():
        if path.endswith("/message"):
            assert terminal.json("show", path.split("/")[2], "--store", location)["messages"] == expected


def test_list_is_honest_about_how_many_it_shows(terminal: Terminal, store: Path) -> None:
    out = terminal.run("list", "--limit", "2")
    assert len(out.splitlines()) == 3
    assert "2 of 11 sessions; --limit 0 shows all; not shown: " in terminal.error
    assert len(terminal.json("list", "--limit", "0")["sessions"]) == 11
    assert terminal.json("list", "--children")["total"] == 12
    assert terminal.json("list", "--archived")["total"] == 12


def test_what_a_revert_hides_is_marked_where_it_begins(terminal: Terminal, store: Path) -> None:
    shown = terminal.run("show", "ses_e1f505ae8ffev56KO8VQGT1kHX")
    assert shown.count("[reverted] from here on\nSAY second turn answer\n") == shown.count("[reverted]") == 1
    assert "[reverted] from here on\nsecond turn answer\n" in terminal.run("show", "GT1kHX", "--last", "1")


def test_an_archived_session_is_marked_where_it_is_listed_and_read(terminal: Terminal, sample: Sample) -> None:
    sample.talk("At hand")
    away = sample.talk("Put away")
    terminal.run("session", "archive", away["id"])
    titles = [line.split("shop")[1].strip() for line in terminal.run("list", "--archived").splitlines()[1:]]
    assert titles == ["[archived] Put away", "At hand"]
    assert terminal.run("show", away["id"]).splitlines()[2].endswith(" messages, archived")


def test_promise_19_a_shared_session_is_marked_where_it_is_listed_and_an_imported_copy_is_not(
    terminal: Terminal, sample: Sample
) -> None:
    link = {"url": "https://example.com/s/1"}
    sample.talk("Kept to ourselves")
    shared = sample.talk("Told to all", answers=1, share=link)
    titles = [line.split("shop")[1].strip() for line in terminal.run("list").splitlines()[1:]]
    assert titles == ["Told to all", "Kept to ourselves"], "an imported copy of another's share"
    assert terminal.run("show", shared["id"]).splitlines()[3] == "a copy of https://example.com/s/1"
    sample.write(("session_share", shared["id"]), {"id": "1", "secret": "hush", **link})
    titles = [line.split("shop")[1].strip() for line in terminal.run("list").splitlines()[1:]]
    assert titles == ["[shared] Told to all", "Kept to ourselves"]
    assert [item.get("share") for item in terminal.json("list")["sessions"]] == [link, None]
    head = terminal.run("show", shared["id"]).splitlines()[:4]
    assert head[2].endswith(", 2 messages")
    assert head[3] == "shared at https://example.com/s/1"
    assert "shared" not in terminal.run("show", terminal.json("list")["sessions"][1]["id"])
    lonely = sample.session("One line")
    sample.prompt(lonely)
    assert ", 1 message\n" in terminal.run("show", lonely["id"])


def test_a_list_of_things_to_do_is_shown_with_the_state_of_each(terminal: Terminal, sample: Sample) -> None:
    session = sample.talk(answers=1)
    states = {"look": "completed", "fix": "in_progress", "tell": "pending", "ask": "cancelled"}
    arguments = {"todos": [{"content": what, "status": status, "id": "1"} for what, status in states.items()]}
    message = sample.messages(session)[-1]
    sample.tool(message, "todowrite", input=arguments)
    sample.tool(message, "tickets", input={"ids": [1], "open": True})
    shown = terminal.run("show", session["id"])
    assert "> todowrite 1 of 4 done\n  [x] look\n  [~] fix\n  [ ] tell\n  [-] ask\n" in shown
    assert "> tickets ids=[1], open=true\n" in shown


def test_list_filters_by_project_time_and_place(terminal: Terminal, store: Path) -> None:
    assert terminal.json("list", "--project", "easstore")["total"] == 11
    assert terminal.json("list", "--since", "2026-11-15T19:29:37+00:00")["total"] < 11
    assert terminal.json("list", "--until", "2020-01-01")["total"] == 0
    assert terminal.json("list", "--here")["total"] == 0
    assert terminal.json("list", "--project", "zzzzzz")["error"]["name"] == "NotFound"
    assert terminal.code == 3
    terminal.run("list", "--since", "yesterday-ish")
    assert (terminal.code, "is not a time" in terminal.error) == (2, True)


def test_a_time_may_be_a_month_or_a_day_by_its_name(terminal: Terminal, store: Path) -> None:
    everything = terminal.json("list", "--limit", "0")["total"]
    assert terminal.json("list", "--since", "2026-11", "--until", "2026-12")["total"] == everything
    assert terminal.json("list", "--until", "2026-11")["total"] == 0
    assert terminal.json("list", "--since", "today")["total"] <= terminal.json("list", "--since", "yesterday")["total"]
    terminal.run("list", "--since", "2026-13")
    assert (terminal.code, "is not a time" in terminal.error) == (2, True)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone is the system's")
def test_a_day_begins_in_the_zone_of_its_times(
    terminal: Terminal, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = 1_762_257_600_000  # 2025-11-04 12:00 UTC, the 5th in Auckland
    sample.session(time={"created": noon, "updated": noon})
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Pacific/Auckland")
        time.tzset()
        asked = (("2025-11-05",), ("2025-11-05", "--utc"), ("2025-11-05T00:00+00:00",))
        result = [terminal.json("list", "--since", *words)["total"] for words in asked]
    time.tzset()
    assert result == [1, 0, 0]


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--since", ""),
        ("list", "--store", ""),
        ("search", "parser", "--in", ""),
        ("session", "remove", "--project", "eastore", "--before", "", "--yes"),
        ("session", "remove", "--before=", "--yes"),
    ],
)
def test_an_option_without_its_value_is_not_an_option_left_out(
    terminal: Terminal, store: Path, words: list[str]
) -> None:
    before = terminal.json("list")["total"]
    assert terminal.run(*words) == ""
    assert (terminal.code, "is empty" in terminal.error) == (2, True)
    assert terminal.json("list")["total"] == before


def test_an_empty_store_is_not_an_error_nor_is_a_missing_default_store(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.json("list", "--store", str(tmp_path)) == {"total": 0, "sessions": []}
    assert terminal.run("list") == ""
    assert (terminal.code, "There are no sessions in " in terminal.error) == (0, True)
    assert "--store" in terminal.error
    reported = terminal.error.replace("/storage.", ".")
    terminal.run("search", "anything")
    assert (terminal.code, terminal.error) == (0, reported)
    terminal.run("list", "--since", "1d")
    assert terminal.error == "No sessions match.\n"
    terminal.run("stats")
    assert terminal.error == "No model calls.\n"
    terminal.run("session", "archive", "--empty")
    assert (terminal.code, terminal.error) == (0, "No sessions match.\n")
    terminal.run("show", "last", "--store", str(tmp_path))
    assert terminal.code == 3


def test_projects_are_found_roughly(terminal: Terminal, store: Path) -> None:
    assert terminal.json("projects", "eastor")["projects"][0]["worktree"] == "/srv/dev/eastore"
    assert terminal.json("projects")["projects"][0]["sessions"] == 13
    assert "eastore" in terminal.run("projects")
    assert f"New sessions go to {store}: there is no database of OpenCode.\n" in terminal.error
    assert terminal.json("projects")["newSessions"] == {
        "place": str(store),
        "reason": "there is no database of OpenCode",
    }
    terminal.run("projects", "qqqqqqq")
    assert terminal.code == 3


def test_a_session_is_named_by_id_beginning_end_slug_or_last(terminal: Terminal, store: Path) -> None:
    whole = "ses_e1f503e11ffeoFX2kmqVZc0QVn"
    slug = terminal.json("show", whole)["info"]["slug"]
    for word in (whole, whole[:16], whole[4:16], whole[-6:], slug):
        assert terminal.json("show", word)["info"]["id"] == whole
    assert terminal.json("show", "last")["info"]["time"]["updated"] == max(
        entry["time"]["updated"] for entry in terminal.json("list")["sessions"]
    )
    terminal.run("show", "ses_e1f5")
    head, *candidates, more = terminal.error.splitlines()
    assert (terminal.code, head) == (2, "opensesh: 'ses_e1f5' fits 13 sessions; give more of the id:")
    assert (len(candidates), more) == (5, "  and 8 more")
    listed = terminal.json("list", "--children", "--archived", "--limit", "0")["sessions"]
    titles = {session["id"]: session["title"] for session in listed}
    assert all(titles[line.split()[0]] == line.split(maxsplit=1)[1] for line in candidates)


def test_a_mistyped_slug_gets_a_suggestion(terminal: Terminal, store: Path) -> None:
    slug = terminal.json("show", "last")["info"]["slug"]
    terminal.run("show", slug[::-1][1:][::-1])
    assert (terminal.code, f"did you mean {slug!r}?" in terminal.error) == (3, True)


def test_a_message_or_part_names_its_turn(terminal: Terminal, store: Path) -> None:
    session = "ses_e1f503e11ffeoFX2kmqVZc0QVn"
    history = terminal.json("show", session)["messages"]
    prompts = [number for number, message in enumerate(history) if message["info"]["role"] == "user"]
    start, end = prompts[1], prompts[2]
    for number in range(start, end):
        for name in (history[number]["info"]["id"], *(part["id"] for part in history[number]["parts"])):
            assert terminal.json("show", name)["messages"] == history[start:end]
    shown = terminal.run("show", history[start]["info"]["id"])
    assert f" of {len(history)} messages" in shown
    terminal.run("show", "prt_missing")
    assert (terminal.code, "no message or part has the id 'prt_missing'" in terminal.error) == (3, True)
    terminal.run("show", history[0]["info"]["id"], "--follow")
    assert terminal.code == 2


def test_the_newest_messages_are_shown_as_a_part_of_all(terminal: Terminal, store: Path) -> None:
    session = "ses_e1f503e11ffeoFX2kmqVZc0QVn"
    total = len(terminal.json("show", session)["messages"])
    assert f", 2 of {total} messages\n" in terminal.run("show", session, "--last", "2")
    assert " of " not in terminal.run("show", session).splitlines()[2]


def test_show_reads_like_a_conversation(terminal: Terminal, store: Path) -> None:
    brief = terminal.run("show", "ses_e1f505ae8ffev56KO8VQGT1kHX")
    assert "> bash echo hi; ls" in brief
    assert "All finished. é✓" in brief
    assert "\n  let me see the tree first" not in brief
    assert "  ! " in brief
    full = terminal.run("show", "ses_e1f505ae8ffev56KO8VQGT1kHX", "--full")
    assert "\n  let me see the tree first" in full
    assert "hi" in full.splitlines()[full.splitlines().index("> bash echo hi; ls") + 1]
    assert len(terminal.json("show", "ses_e1f505ae8ffev56KO8VQGT1kHX", "--last", "2")["messages"]) == 2


def test_fork_rename_archive_and_remove(terminal: Terminal, store: Path) -> None:
    fork = terminal.json("session", "fork", "last")
    assert fork["title"] == "Scripted title for session (fork #1)"
    assert terminal.json("session", "rename", fork["id"], "A", "better", "title")["title"] == "A better title"
    terminal.run("session", "archive", fork["id"])
    assert fork["id"] not in terminal.run("list", "--limit", "0")
    terminal.run("session", "archive", fork["id"], "--undo")
    assert fork["id"] in terminal.run("list", "--limit", "0")
    terminal.run("session", "remove", fork["id"])
    assert (terminal.code, "--yes" in terminal.error) == (2, True)
    assert terminal.json("--store", str(store), "session", "remove", fork["id"], "--yes")["sessions"] == [fork["id"]]
    assert terminal.json("show", fork["id"])["error"]["name"] == "NotFound"


def test_a_running_session_is_not_removed(terminal: Terminal, store: Path) -> None:
    session = terminal.json("show", "last")["info"]["id"]
    with leases_of(JsonTree(store)).acquire(session, "opensesh run"):
        terminal.run("session", "remove", session, "--yes")
    assert terminal.code == 4
    assert f"opensesh run (pid {os.getpid()}" in terminal.error


def test_a_database_of_an_unknown_opencode_is_not_written(terminal: Terminal, tmp_path: Path) -> None:
    path = shutil.copy(FIXTURES / "opencode-1.18.33" / "opencode.db", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE session ADD COLUMN later TEXT")
    session = terminal.json("show", "last", "--store", str(path))["info"]["id"]
    terminal.run("session", "rename", session, "x", "--store", str(path))
    assert terminal.code == 5
    assert "only read: its table session has an unknown later TEXT" in terminal.error


def test_a_session_in_a_database_is_renamed(terminal: Terminal, tmp_path: Path) -> None:
    path = str(shutil.copy(FIXTURES / "opencode-1.18.33" / "opencode.db", tmp_path))
    session = terminal.json("show", "last", "--store", path)["info"]["id"]
    terminal.run("session", "rename", session, "x", "--store", path)
    assert terminal.code == 0
    assert terminal.json("list", "--store", path)["sessions"][0]["title"] == "x"


def test_damage_is_reported_and_affects_only_its_record(terminal: Terminal, store: Path) -> None:
    victim = next((store / "session").glob("*/*.json"))
    victim.write_bytes(victim.read_bytes()[:40])
    assert terminal.json("list", "--children", "--archived")["total"] == 12
    assert "1 damaged record skipped" in terminal.error
    assert str(victim) in terminal.error
    assert terminal.code == 0


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["ls"], "opensesh list"),
        (["revert", "last"], "opensesh session revert"),
        (["delete"], "opensesh session remove"),
        (["session", "list"], "opensesh list"),
        (["session", "delete", "last"], "opensesh session remove"),
        (["session", "frok"], "opensesh session fork"),
        (["--quiet", "session", "frok"], "opensesh session fork"),
        (["resume"], "opensesh run --continue"),
        (["-c", "hi"], "opensesh run --continue"),
        (["-p", "hi"], "opensesh run"),
    ],
)
def test_a_word_that_belongs_elsewhere_is_shown_where(terminal: Terminal, words: list[str], command: str) -> None:
    terminal.run(*words)
    assert (terminal.code, f"; did you mean '{command}'?" in terminal.error) == (2, True)


def test_what_goes_wrong_is_one_line_and_a_number(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("lst")
    assert (terminal.code, terminal.error) == (
        2,
        "opensesh: unknown command 'lst'; did you mean 'opensesh list'? Try 'opensesh --help'.\n",
    )
    terminal.run("why does it fail?")
    assert "; to send a prompt: opensesh run 'why does it fail?'." in terminal.error
    terminal.run("xyzzy")
    assert terminal.error == "opensesh: unknown command 'xyzzy'. Try 'opensesh --help'.\n"
    terminal.run("list", "--limit", "many")
    assert (terminal.code, terminal.error.count("\n")) == (2, 1)
    assert terminal.json("list", "--nope")["error"]["name"] == "UsageError"
    terminal.run("list", "--store", "postgresql://x/y")
    assert (terminal.code, "postgresql" in terminal.error) == (5, True)
    broken = tmp_path / "opencode.db"
    broken.write_bytes(b"not a database at all, but long enough to be looked at by sqlite" * 20)
    terminal.run("list", "--store", str(broken))
    assert (terminal.code, str(broken) in terminal.error) == (5, True)


def test_help_is_there_for_every_command(terminal: Terminal) -> None:
    overview = terminal.run("--help")
    for command in COMMANDS:
        assert f"  {command} " in overview
        assert terminal.run(command, "--help").startswith(f"usage: opensesh {command}")
        assert terminal.run("help", command) == terminal.run(command, "--help")
    assert terminal.run() == overview
    assert terminal.run("--version") == f"opensesh {__version__}\n"
    assert max(map(len, overview.splitlines())) <= 110


def test_completion_offers_commands_actions_flags_and_sessions(terminal: Terminal, store: Path) -> None:
    def offered(*words: str) -> list[str]:
        return [line.split("\t")[0] for line in terminal.run("__complete", "--", *words).splitlines()]

    assert offered("l") == ["list"]
    assert offered("session", "re") == ["rename", "revert", "remove", "restore"]
    assert "--limit" in offered("list", "--")
    assert "last" in offered("show", "")
    assert offered("session", "fork", "ses_e1f503b9b") == ["ses_e1f503b9bffe3fk9XpM2JtHmpJ"]
    assert offered("completion", "z") == ["zsh"]
    assert offered("stats", "--by", "m") == offered("stats", "--by", "=", "m") == ["month", "model"]
    assert offered("stats", "--by=m") == ["--by=month", "--by=model"]
    assert offered("stats", "--by", "=") == offered("stats", "--by", "")
    assert offered("export", "--format", "ht") == ["html"]
    assert offered("export", "--format", "html", "last")[0] == "last"
    assert offered("run", "--session", "ses_e1f503b9b") == ["ses_e1f503b9bffe3fk9XpM2JtHmpJ"]
    assert offered("list", "--project", "east") == ["eastore"]
    assert offered("run", "-m", "scripted/") == ["scripted/prompt"]
    assert offered("run", "--agent", "pl") == ["plan"]
    assert offered("run", "--title", "") == []
    for shell in ("bash", "zsh", "fish"):
        assert "__complete" in terminal.run("completion", shell)


def test_completion_offers_the_sessions_of_the_store_that_is_named(
    terminal: Terminal, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered(*words: str) -> list[str]:
        return [line.split("\t")[0] for line in terminal.run("__complete", "--", *words).splitlines()]

    (tmp_path / "other" / "storage").mkdir(parents=True)
    elsewhere = str(tmp_path / "other" / "storage")
    session = Sample(Path(elsewhere)).talk()["id"]
    ours = offered("show", "ses_")
    assert session not in ours
    assert offered("show", "--store", elsewhere, "ses_") == [session]
    assert offered("--store", elsewhere, "show", "ses_") == [session]
    assert offered("--utc", f"--store={elsewhere}", "session", "fork", "ses_") == [session]
    assert offered("show", "--store", "=", elsewhere, "ses_") == [session]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert offered("show", "--store", "~/other/storage", "ses_") == [session]
    assert offered("show", "--store", "") == []
    assert offered("--store", elsewhere, "l") == ["list"]


def test_the_bash_completion_works_in_bash(store: Path, terminal: Terminal) -> None:
    bash = shutil.which("bash")
    assert bash
    script = f"""opensesh() {{ {sys.executable} -m opensesh "$@"; }}
    {terminal.run("completion", "bash")}
    COMP_WORDS=(opensesh session re); COMP_CWORD=2; _opensesh; echo "${{COMPREPLY[@]}}" """
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "rename revert remove restore"


def test_a_closed_pipe_is_not_an_error(store: Path) -> None:
    command = f"{sys.executable} -m opensesh list --limit 0 --json | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_a_closed_pipe_of_errors_does_not_change_the_exit_code(store: Path) -> None:
    for words, code in ((["list"], 0), (["list", "--unknown"], 2)):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "opensesh", *words], stdout=subprocess.DEVNULL, stderr=write, check=False
        )
        os.close(write)
        assert done.returncode == code


def test_start_up_imports_only_what_it_needs() -> None:
    def modules(*words: str) -> set[str]:
        code = (
            "import sys, io; sys.stdout = io.TextIOWrapper(io.BytesIO()); sys.stderr = io.StringIO();"
            f"sys.argv = ['opensesh', *{list(words)!r}]\n"
            "from opensesh.__main__ import main\n"
            "try: main()\nexcept SystemExit: pass\n"
            "sys.__stdout__.write('\\n'.join(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    heavy = {"asyncio", "rich", "httpx2", "sqlite3", "dataclasses", "pathlib", "subprocess", "logging", "starlette"}
    if sys.version_info >= (3, 14):
        heavy -= {"dataclasses"}  # argparse itself needs it there, for the colours of the help
    assert not modules("--version") & (heavy | {"msgspec", "json"})
    assert not modules("--help") & (heavy | {"msgspec"})
    assert not modules("list") & heavy
    assert not modules("show", "last") & heavy
