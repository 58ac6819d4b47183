from __future__ import annotations

import json
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from opensesh.history.exchange import exporting, workers
from opensesh.history.exchange.destinations import to_stream
from opensesh.history.exchange.exporting import Export
from opensesh.history.exchange.redaction import Redactor
from opensesh.history.formats import Options
from opensesh.history.selection import Selection
from opensesh.storage import open_store
from opensesh.storage.store import Damage

from .sample_tree import Sample

KEY = "sk-ant-api03-" + "a1B2c3D4" * 12


@pytest.fixture
def sample(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> Sample:
    for number in range(12):
        sample.talk(f"Talk {number}", answers=number % 3)
    monkeypatch.setattr(exporting, "MANY", 2)
    monkeypatch.setattr(workers, "cores", lambda: 3)
    return sample


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[Any]]:
    processes: list[subprocess.Popen[Any]] = []

    class Noted(subprocess.Popen[Any]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return processes


def nothing(done: int, total: int) -> None:
    assert 0 < done <= total


def written(sample: Sample, form: str = "jsonl", *, several: bool, redact: bool = False) -> tuple[bytes, Any]:
    stream, damage = BytesIO(), list[Damage]()
    redactor = Redactor() if redact else None
    export = Export(
        open_store(str(sample.root)),
        Selection(),
        form,
        Options(tools="summary"),
        redactor=redactor,
        report=damage.append,
        several=several,
    )
    to_stream(export, stream, nothing)
    return stream.getvalue(), (sorted(damage), redactor and redactor.counts)


@pytest.mark.parametrize("form", ["jsonl", "prompts", "json"])
def test_several_processes_give_what_one_gives(sample: Sample, started: list[subprocess.Popen[Any]], form: str) -> None:
    alone = written(sample, form, several=False)
    assert not started
    assert written(sample, form, several=True) == alone
    assert len(started) == 3
    assert [process.returncode for process in started] == [0, 0, 0]


def test_damage_and_what_was_redacted_are_told_here(sample: Sample) -> None:
    torn, secret = sample.talk("Torn"), sample.talk("Secret")
    sample.prompt(secret, f"the key is {KEY}")
    message = sample.messages(torn)[0]
    (sample.root / "message" / torn["id"] / f"{message['id']}.json").write_text('{"id": ')
    alone = written(sample, several=False, redact=True)
    assert len(alone[1][0]) == 1
    assert sum(alone[1][1].values()) == 1
    assert written(sample, several=True, redact=True) == alone


def test_a_large_session_is_made_here_a_piece_at_a_time(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    sample.prompt(sample.session("Large"), "word " * 1_100_000)
    alone = written(sample, several=False, redact=True)
    made: list[str] = []
    read = Export.pieces

    def noted(export: Export, chosen: Any) -> Any:
        made.append(chosen.id)
        return read(export, chosen)

    monkeypatch.setattr(Export, "pieces", noted)
    assert written(sample, several=True, redact=True) == alone
    assert [json.loads(line)["session_id"] for line in alone[0].splitlines() if len(line) > 5_000_000] == made


@pytest.mark.parametrize("words", [("import os; os._exit(1)",), ("import sys; sys.stdin.buffer.read(40)",)])
def test_the_work_of_a_worker_that_dies_is_done_here(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    alone = written(sample, several=False)
    start: type[subprocess.Popen[Any]] = subprocess.Popen

    def dying(_: list[str], **options: Any) -> subprocess.Popen[Any]:
        return start([sys.executable, "-c", *words], **options)

    monkeypatch.setattr(subprocess, "Popen", dying)
    assert written(sample, several=True) == alone


def test_workers_end_with_an_export_that_is_given_up(sample: Sample, started: list[subprocess.Popen[Any]]) -> None:
    export = Export(open_store(str(sample.root)), Selection(), several=True)
    sessions = export.sessions(export.chosen)
    next(sessions)
    assert [process.poll() for process in started] == [None] * 3
    sessions.close()
    assert None not in [process.returncode for process in started]


def test_a_worker_imports_nothing_from_the_folder_it_is_in(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = written(sample, several=False)
    (tmp_path / "elsewhere" / "opensesh").mkdir(parents=True)
    trap = tmp_path / "elsewhere" / "opensesh" / "__init__.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert written(sample, several=True) == alone
    assert not os.path.exists(tmp_path / "sprung")
