from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opensesh.history.import_export.exporting import Export
from opensesh.history.stats.session_usage import SessionInfo

from ..history.sample_tree import Sample
from .running import Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"
BUSY = "ses_e1f505ae8ffev56KO8VQGT1kHX"
PARENT = "ses_e1f50577fffejV6VGQt622W6kl"


def test_everything_is_exported_unless_something_is_named(terminal: Terminal, store: Path) -> None:
    assert len(terminal.run("export").splitlines()) == 13
    assert len(terminal.run("export", "--no-children").splitlines()) == 12
    assert len(terminal.run("export", PARENT).splitlines()) == 1
    assert len(terminal.run("export", PARENT, BUSY, "--children").splitlines()) == 3
    assert len(terminal.run("export", "--project", "eastore").splitlines()) == 13
    assert terminal.run("export", "--until", "2020-01-01") == ""
    assert terminal.error == "No sessions match.\n"


def test_what_was_left_out_and_why_is_printed_beside_the_output(
    terminal: Terminal, store: Path, tmp_path: Path
) -> None:
    brief = "omitted: tool calls (--tools summary), files (--format json)"
    terminal.run("list")
    assert terminal.error == (
        "11 sessions; not shown: 1 subagent session (--children), 1 archived session (--archived).\n"
    )
    assert terminal.run("export").count("\n") == 13
    assert terminal.error == f"13 sessions; including 1 subagent session, 1 archived session; {brief}.\n"
    terminal.run("export", "--tools", "skip")
    assert "left out" not in terminal.error
    terminal.run("export", "--no-children", "--format", "json")
    assert terminal.error == "12 sessions; including 1 archived session; omitted: 1 subagent session (--children).\n"
    terminal.run("export", PARENT, "--tools", "summary")
    assert terminal.error == "1 session; omitted: 1 subagent session (--children).\n"
    terminal.run("export", PARENT, "--children", "--format", "markdown")
    assert terminal.error == "1 session; 1 subagent session inside of them.\n"
    terminal.run("export", "--format", "html", "--split", str(tmp_path / "h"))
    inside = "including 1 archived session; 1 subagent session inside of them"
    assert terminal.error == f"12 sessions to {tmp_path / 'h'}; {inside}.\n"
    for more in (("--quiet",), (BUSY, "--format", "json")):
        terminal.run("export", *more)
        assert terminal.error == ""


def test_sessions_without_a_prompt_are_not_reported_as_already_imported(
    terminal: Terminal, sample: Sample, tmp_path: Path
) -> None:
    sample.session("nothing was asked")
    sample.talk()
    terminal.run("export", "--format", "prompts", "-o", str(tmp_path / "prompts.txt"))
    reported = f"1 session to {tmp_path / 'prompts.txt'}; omitted: 1 session without a prompt.\n"
    assert terminal.error == reported


def test_json_is_one_document_for_one_session(terminal: Terminal, store: Path) -> None:
    document = terminal.json("export", BUSY)
    assert document == json.loads(terminal.run("export", BUSY, "--format", "json"))
    assert document["info"]["id"] == BUSY
    todos = [{"content": "a", "id": "1", "priority": "high", "status": "pending"}]
    assert document.pop("opensesh") == {"todo": todos, "session_diff": []}
    assert document == terminal.json("show", BUSY)
    assert len(terminal.json("export")) == 13


def test_what_does_not_go_together_is_refused(terminal: Terminal, store: Path, tmp_path: Path) -> None:
    for words in (
        ("-o", "a", "--split", "b"),
        ("--format", "parquet"),
        ("--format", "html"),
        (BUSY, "--project", "eastore"),
        ("--format", "docx"),
        ("--format", "parquet", "--split", str(tmp_path / "x")),
    ):
        terminal.run("export", *words)
        assert (terminal.code, terminal.error.count("\n")) == (2, 1), words
    terminal.run("export", "nobody")
    assert terminal.code == 3
    terminal.run("export", "-o", str(tmp_path / "no" / "folder" / "x"))
    assert terminal.code == 1
    assert f"the folder {tmp_path / 'no' / 'folder'} does not exist; create it first" in terminal.error


@pytest.mark.parametrize("form", ["jsonl", "parquet", "markdown"])
def test_a_file_that_cannot_be_written_is_reported_at_once(
    terminal: Terminal, store: Path, tmp_path: Path, form: str
) -> None:
    if form == "parquet":
        pytest.importorskip("duckdb")
    (tmp_path / "file").touch()
    terminal.run("export", "--format", form, "-o", str(tmp_path / "file" / "out"))
    assert (terminal.code, terminal.error.count("\n")) == (1, 1)
    assert f"{tmp_path / 'file'} is a file" in terminal.error
    terminal.run("export", "--format", form, "-o", str(tmp_path))
    assert terminal.code == 2
    assert f"--split {tmp_path}" in terminal.error
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "data") == ["file"]


def test_a_pipe_is_written_to_and_stays_a_pipe(terminal: Terminal, store: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    terminal.run("export", PARENT, "-o", str(pipe))
    assert terminal.code == 0
    assert json.loads(os.read(reader, 65536))["session_id"] == PARENT
    os.close(reader)
    assert pipe.is_fifo()
    terminal.run("export", PARENT, "--format", "parquet", "-o", str(pipe))
    assert terminal.code == 2
    assert pipe.is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named_with_advice(terminal: Terminal, store: Path, tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    terminal.run("export", "-o", str(tmp_path / "shut" / "out.jsonl"))
    assert terminal.code == 1
    assert "name another place" in terminal.error


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
def test_a_full_disk_is_reported_with_what_to_do(terminal: Terminal, store: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.part").symlink_to("/dev/full")
    terminal.run("export", "-o", str(tmp_path / "out.jsonl"))
    assert terminal.code == 1
    assert "continues where it stopped" in terminal.error


def test_files_and_folders_are_reported(terminal: Terminal, store: Path, tmp_path: Path) -> None:
    assert terminal.run("export", "-o", str(tmp_path / "all.jsonl")) == ""
    assert terminal.error.startswith(f"13 sessions to {tmp_path / 'all.jsonl'}; ")
    terminal.run("export", "--format", "html", "--split", str(tmp_path / "pages"))
    assert "12 sessions to" in terminal.error
    terminal.run("export", "--format", "html", "-o", str(tmp_path / "pages"))
    assert "0 sessions to" in terminal.error
    assert "12 were there already" in terminal.error
    terminal.run("export", "--format", "opencode", "--split", str(tmp_path / "files"))
    assert "import.sh imports each one in its own folder" in terminal.error


def test_what_was_redacted_is_counted_by_kind(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Sample(tmp_path)
    monkeypatch.setenv("OPENSESH_STORE", str(tmp_path))
    session = sample.session()
    sample.prompt(session, "my key is " + "ghp_" + "a1B2c3D4e5F6" * 3 + " in /home/ann/x")
    assert "[redacted:github-token]" in terminal.run("export", "--redact")
    assert terminal.error.splitlines()[1:] == ["Redacted: 1 github-token."]
    assert "~/x" in terminal.run("export", "--redact-paths")
    assert "1 home-folder" in terminal.error
    terminal.run("export", session["id"], "--format", "html", "--redact")
    assert "1 github-token" in terminal.error


def test_damage_is_reported_and_the_rest_exported(terminal: Terminal, store: Path) -> None:
    victim = next((store / "part").glob("*/*.json"))
    victim.write_bytes(b"{")
    assert len(terminal.run("export").splitlines()) == 13
    assert "1 damaged record skipped" in terminal.error


def test_a_slow_reader_gets_every_byte(store: Path, tmp_path: Path) -> None:
    sample = Sample(store)
    session = sample.session()
    for _ in range(40):
        sample.prompt(session, "x" * 20_000)
    words = [sys.executable, "-m", "opensesh", "export", "--format", "json"]
    whole = subprocess.run(words, capture_output=True, check=True).stdout
    assert len(json.loads(whole)) == 14
    chunks: list[bytes] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout
        time.sleep(0.5)
        while chunk := process.stdout.read(65_536):
            chunks.append(chunk)
            time.sleep(0.001)
    assert process.returncode == 0
    assert b"".join(chunks) == whole


def test_a_reader_that_goes_away_is_not_an_error(store: Path) -> None:
    command = f"{sys.executable} -m opensesh export --format json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 10, b"")


def test_an_export_that_was_killed_continues(store: Path, tmp_path: Path) -> None:
    sample = Sample(store)
    for _ in range(200):
        sample.talk(answers=2)
    out = tmp_path / "all.jsonl"
    words = [sys.executable, "-m", "opensesh", "export", "-o", str(out)]
    part = out.with_name("all.jsonl.part")
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (part.exists() and part.stat().st_size > 50_000):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert out.exists() or part.exists()
    subprocess.run(words, check=True, capture_output=True)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert len({line["session_id"] for line in lines}) == len(lines) == 213
    assert not part.exists()


def test_an_export_that_is_interrupted_says_how_to_continue(
    terminal: Terminal, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, read = tmp_path / "all.jsonl", Export.chunks
    seen: list[str] = []

    def impatient(export: Export, chosen: SessionInfo) -> Iterator[bytes]:
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append(chosen.id)
        return read(export, chosen)

    monkeypatch.setattr(Export, "chunks", impatient)
    terminal.run("export", "-o", str(out))
    assert terminal.code == 130
    assert terminal.error == "Interrupted. Run the same command again to continue.\n"
    assert not out.exists()
    monkeypatch.setattr(Export, "chunks", read)
    terminal.run("export", "-o", str(out))
    whole = terminal.run("export")
    assert out.read_text() == whole
    assert sorted(path.name for path in tmp_path.glob("all*")) == ["all.jsonl"]
