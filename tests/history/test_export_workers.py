from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from opensesh.history.filters import Selection
from opensesh.history.formats import FormatOptions
from opensesh.history.import_export.destinations import to_folder, to_stream
from opensesh.history.import_export.exporting import Export
from opensesh.redaction import Redactor
from opensesh.storage import open_store
from opensesh.storage.protocol import Damage

from .sample_tree import Sample

Step = Callable[[int, int], None]
KEY = "sk-ant-api03-" + "a1B2c3D4" * 12


@pytest.fixture
def sample(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> Sample:
    for number in range(12):
        sample.talk(f"Talk {number}", answers=number % 3)
    monkeypatch.setattr(Export, "min_sessions_for_workers", 2)
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
        FormatOptions(tools="summary"),
        redactor=redactor,
        report=damage.append,
        workers=3 if several else 1,
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


def split(sample: Sample, folder: Path, form: str, *, several: bool, step: Step = nothing) -> dict[str, bytes]:
    damage = list[Damage]()
    redactor = Redactor()
    export = Export(
        open_store(str(sample.root)),
        Selection(),
        form,
        redactor=redactor,
        report=damage.append,
        workers=3 if several else 1,
    )
    to_folder(export, str(folder), step)
    reported = f"{damage} {sorted(redactor.counts.items())}".encode()
    return {path.name: path.read_bytes() for path in folder.iterdir()} | {"told": reported}


@pytest.fixture
def family(sample: Sample) -> Sample:
    parent = sample.talk("Parent")
    child = sample.talk("Child", parentID=parent["id"])
    sample.prompt(sample.session("Grandchild", parentID=child["id"]), f"the key is {KEY}")
    torn = sample.talk("Torn")
    (sample.root / "message" / torn["id"] / f"{sample.messages(torn)[0]['id']}.json").write_text('{"id": ')
    return sample


@pytest.mark.parametrize("form", ["html", "markdown", "opencode"])
def test_several_processes_make_the_pages_that_one_makes(
    family: Sample, tmp_path: Path, started: list[subprocess.Popen[Any]], form: str
) -> None:
    alone = split(family, tmp_path / "alone", form, several=False)
    assert not started
    assert split(family, tmp_path / "several", form, several=True) == alone
    assert [process.returncode for process in started] == [0, 0, 0]
    assert any(b"Grandchild" in page for page in alone.values())
    assert b"anthropic" in alone["told"]


@pytest.mark.parametrize("large", [True, False])
def test_a_page_that_no_worker_makes_is_made_here(
    family: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        family.prompt(family.session("Large"), "word " * 1_100_000)
    alone = split(family, tmp_path / "alone", "html", several=False)
    if not large:
        let_workers_do(monkeypatch, "import sys; sys.stdin.buffer.read(40)")
    assert split(family, tmp_path / "several", "html", several=True) == alone


def test_interrupted_pages_are_continued(family: Sample, tmp_path: Path, started: list[subprocess.Popen[Any]]) -> None:
    alone = split(family, tmp_path / "alone", "html", several=False)

    def interrupt(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split(family, tmp_path / "several", "html", several=True, step=interrupt)
    assert len(list((tmp_path / "several").glob("ses_*.html"))) == 7
    assert None not in [process.wait(60) for process in started]
    steps: list[int] = []
    again = split(family, tmp_path / "several", "html", several=True, step=lambda done, total: steps.append(done))
    assert steps[0] == 8
    assert {name: page for name, page in again.items() if name != "told"} == {
        name: page for name, page in alone.items() if name != "told"
    }


def test_damage_and_redactions_of_workers_are_reported(sample: Sample) -> None:
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
    read = Export.chunks

    def noted(export: Export, chosen: Any) -> Any:
        made.append(chosen.id)
        return read(export, chosen)

    monkeypatch.setattr(Export, "chunks", noted)
    assert written(sample, several=True, redact=True) == alone
    assert [json.loads(line)["session_id"] for line in alone[0].splitlines() if len(line) > 5_000_000] == made


@pytest.mark.parametrize("program", ["import os; os._exit(1)", "import sys; sys.stdin.buffer.read(40)"])
def test_the_work_of_a_worker_that_dies_is_done_here(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    alone = written(sample, several=False)
    let_workers_do(monkeypatch, program)
    assert written(sample, several=True) == alone


def let_workers_do(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    start: type[subprocess.Popen[Any]] = subprocess.Popen

    def dying(_: list[str], **options: Any) -> subprocess.Popen[Any]:
        return start([sys.executable, "-c", program], **options)

    monkeypatch.setattr(subprocess, "Popen", dying)


def test_workers_end_with_an_export_that_is_given_up(sample: Sample, started: list[subprocess.Popen[Any]]) -> None:
    export = Export(open_store(str(sample.root)), Selection(), workers=3)
    sessions = export.sessions(export.selected)
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
