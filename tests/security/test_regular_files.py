from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from opensesh.storage.disk import read_file, read_or_empty
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

_HEADROOM_BYTES = 1 << 30
COMMANDS = (
    ("list",),
    ("projects",),
    ("stats",),
    ("stats", "--bytes"),
    ("doctor",),
    ("search", "answer"),
    ("show", "last"),
    ("export", "--format", "jsonl"),
)


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _HEADROOM_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_h7_links_to_devices_and_pipes_cost_themselves_alone(
    sample: Sample, terminal: Terminal, words: tuple[str, ...]
) -> None:
    session = sample.talk("Healthy")
    message = sample.messages(session)[0]["id"]
    for kind in (("session", "proj"), ("message", session["id"]), ("part", message), ("project",), ("todo",)):
        folder = sample.root.joinpath(*kind)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ses_1e7329606001zzzzzzzzzzzzzz.json").symlink_to("/dev/zero")
        os.mkfifo(folder / "ses_1e7329606002zzzzzzzzzzzzzz.json")
    output = terminal.run(*words)
    assert terminal.code in (0, 5), terminal.error
    assert "Traceback" not in terminal.error
    assert "internal error" not in terminal.error
    assert output


def test_h7_an_import_of_a_folder_skips_what_is_not_a_file(sample: Sample, terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    sample.talk("Healthy")
    terminal.run("export", "--format", "json", "-o", str(folder / "a.json"))
    (folder / "b.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "c.json")
    terminal.run("import", str(folder), "--store", str(tmp_path / "new" / "storage"))
    assert "not a regular file" in terminal.error
    assert "Healthy" in terminal.run("list", "--store", str(tmp_path / "new" / "storage"))


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_h7_devices_are_not_read_as_files(name: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(name)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(str(link))
    assert read_or_empty(str(link)) == b""


def test_h7_a_named_pipe_as_configuration_is_an_error_and_not_a_wait(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "opencode.json")
    terminal.run("config")
    assert terminal.code == 1
    assert "not a regular file" in terminal.error
