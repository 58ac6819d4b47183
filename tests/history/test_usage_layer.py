from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import opensesh
from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.stats import usage_layer
from opensesh.history.stats.money import table_fingerprint
from opensesh.history.stats.usage_layer import UsageTable
from opensesh.history.stats.usage_stats import UsageFilter, add_up
from opensesh.storage.locations import find_stores

from .sample_tree import DAY, Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"
By = Literal["day", "project", "model", "agent", "session"]
GROUPS: tuple[By, ...] = ("day", "project", "model", "agent", "session")


@pytest.fixture
def sample(sample: Sample, tmp_path: Path) -> Sample:
    sample.talk("one")
    sample.clock += 3 * DAY
    child = sample.talk("two", parent=sample.talk("parent")["id"])
    sample.fork(child)
    settle(tmp_path)
    return sample


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def settle(folder: Path) -> None:
    """Make everything look as if it had been written a while ago, and each thing at a time of its own."""
    then = time.time_ns() - 60 * 10**9
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            then += 1000
            os.utime(os.path.join(base, name), ns=(then, then))


def place_of(sample: Sample) -> str:
    return str(sample.root.parent)


def result_of(place: str, by: By = "day", *, utc: bool = True) -> dict[str, Any]:
    """The sums as the command prints them, from what the cache has."""
    cache = DerivedCache(find_stores(place))
    result = add_up(UsageTable(cache), by, UsageFilter(), utc=utc)
    cache.close()
    return result.document()


def damage_in(place: str) -> list[str]:
    cache = DerivedCache(find_stores(place))
    damage = UsageTable(cache).damage
    cache.close()
    return [path for path, _ in damage]


def counted(place: str, by: By = "day", *, utc: bool = True) -> dict[str, Any]:
    """The sums from everything, read again."""
    cache = DerivedCache(find_stores(place), temporary=True)
    return add_up(UsageTable(cache), by, UsageFilter(), utc=utc).document()


@pytest.mark.parametrize("by", GROUPS)
def test_sums_are_kept_and_read_back_as_they_were(sample: Sample, by: By) -> None:
    first = result_of(place_of(sample), by)
    second = result_of(place_of(sample), by)
    assert first == second == counted(place_of(sample), by)
    assert first["copied"]["messages"] == 4


def first(sample: Sample) -> Path:
    return next(path for path in (sample.root / "session" / "proj").iterdir() if '"one"' in path.read_text())


def rename(sample: Sample) -> None:
    path = first(sample)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"title": "another"}))


def rename_a_project(sample: Sample) -> None:
    (sample.root / "session" / "proj").rename(sample.root / "session" / "prok")


def add_session(sample: Sample) -> None:
    sample.talk("new")


def add_message(sample: Sample) -> None:
    sample.answer({"id": first(sample).stem}, cost=4)


def remove_session(sample: Sample) -> None:
    first(sample).unlink()


def remove_messages(sample: Sample) -> None:
    shutil.rmtree(sample.root / "message" / first(sample).stem)


def remove_message(sample: Sample) -> None:
    next((sample.root / "message" / first(sample).stem).iterdir()).unlink()


def move_to_another_project(sample: Sample) -> None:
    path = first(sample)
    (sample.root / "session" / "other").mkdir()
    path.rename(sample.root / "session" / "other" / path.name)


def tear_a_session(sample: Sample) -> None:
    first(sample).write_bytes(b"{")


@pytest.mark.parametrize(
    "change",
    [
        rename,
        rename_a_project,
        add_session,
        add_message,
        remove_session,
        remove_messages,
        remove_message,
        move_to_another_project,
        tear_a_session,
    ],
)
@pytest.mark.parametrize("by", ["project", "session"])
def test_every_change_is_in_the_next_answer(sample: Sample, by: By, change: Callable[[Sample], None]) -> None:
    before = result_of(place_of(sample), by)
    change(sample)
    after = result_of(place_of(sample), by)
    assert after == counted(place_of(sample), by)
    assert after != before or (by == "project" and change is rename)
    settle(sample.root.parent)
    assert result_of(place_of(sample), by) == after


def test_an_answer_that_ends_in_place_is_counted(sample: Sample) -> None:
    session = sample.session("running")
    running = sample.answer(session, cost=0)
    del running["time"]["completed"]
    path = sample.write(("message", session["id"], running["id"]), running)
    settle(sample.root.parent)
    before = result_of(place_of(sample))["total"]["cost"]
    changed = path.parent.stat().st_mtime_ns
    running["time"]["completed"], running["cost"] = sample.clock, 8
    path.write_text(json.dumps(running))
    assert path.parent.stat().st_mtime_ns == changed
    assert result_of(place_of(sample))["total"]["cost"] == before + 8


def test_damage_is_reported_again_and_forgotten_when_it_is_repaired(sample: Sample) -> None:
    path = next(next((sample.root / "message").iterdir()).iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    settle(sample.root.parent)
    for _ in range(2):
        assert damage_in(place_of(sample)) == [str(path)]
    path.write_bytes(whole)
    assert damage_in(place_of(sample)) == []


def test_what_was_written_just_now_is_not_relied_on(sample: Sample) -> None:
    session = sample.talk("new")
    before = result_of(place_of(sample))["total"]["cost"]
    folder = sample.root / "message" / session["id"]
    changed = folder.stat().st_mtime_ns
    sample.answer(session, cost=4)
    os.utime(folder, ns=(changed, changed))
    assert result_of(place_of(sample))["total"]["cost"] == before + 4


def test_a_time_to_come_is_not_relied_on(sample: Sample) -> None:
    session = {"id": first(sample).stem}
    folder = sample.root / "message" / session["id"]
    later = time.time_ns() + 3600 * 10**9
    os.utime(folder, ns=(later, later))
    before = result_of(place_of(sample))["total"]["cost"]
    sample.answer(session, cost=4)
    os.utime(folder, ns=(later, later))
    assert result_of(place_of(sample))["total"]["cost"] == before + 4


def test_files_that_cannot_be_looked_at_do_no_harm(sample: Sample) -> None:
    expected = counted(place_of(sample))
    for folder in ("session/proj", "message"):
        (sample.root / folder / "ses_gone.json").symlink_to("nowhere")
        assert result_of(place_of(sample)) == expected
        (sample.root / folder / "ses_gone.json").unlink()


def test_strange_files_between_the_folders_do_no_harm(sample: Sample) -> None:
    expected = counted(place_of(sample))
    for folder in ("", "session", "session/proj", "message"):
        for name in ("no tes", "two\nlines"):
            (sample.root / folder / name).write_text("x")
    (sample.root / "session" / "loop").symlink_to(".")
    settle(sample.root.parent)
    assert [result_of(place_of(sample)) for _ in range(2)] == [expected, expected]


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "OPENCODE_MODELS_PATH"])
def test_another_price_table_makes_other_sums(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    before = result_of(place_of(sample))
    table = tmp_path / "models.json"
    if variable == "XDG_CACHE_HOME":
        table = Path.home() / ".cache" / "opencode" / "models.json"
        table.parent.mkdir(parents=True)
    else:
        monkeypatch.setenv(variable, str(table))
    name = "claude-sonnet-4-5"
    model = {"id": name, "name": "x", "cost": {"input": 1, "output": 1}}
    table.write_text(json.dumps({"anthropic": {"id": "anthropic", "name": "x", "models": {name: model}}}))
    after = result_of(place_of(sample))
    assert after != before
    assert after == counted(place_of(sample))


def test_the_price_table_of_the_package_is_among_what_is_looked_at() -> None:
    table = Path(opensesh.__file__).parent / "models" / "data" / "models.zip"
    assert (str(table), table.stat().st_mtime_ns, table.stat().st_size) in table_fingerprint()


def test_another_version_of_the_program_reads_for_itself(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = result_of(place_of(sample))
    cache = DerivedCache(find_stores(place_of(sample)))
    cache.write(lambda db: db.execute("UPDATE usage SET buckets = '[]'"))
    cache.close()
    assert result_of(place_of(sample)) != expected
    monkeypatch.setattr(usage_layer, "__version__", "0.0.0")
    assert result_of(place_of(sample)) == expected


@pytest.mark.parametrize("by", ["day", "month"])
def test_days_and_months_are_those_of_the_zone_one_is_in_now(
    sample: Sample, zone: Callable[[str], None], by: By
) -> None:
    session = sample.session("late")
    sample.clock = 1_790_812_200_000  # ten minutes before the first of October, UTC
    sample.answer(session, cost=1)
    settle(sample.root.parent)
    zone("UTC")
    first = result_of(place_of(sample), by, utc=False)
    zone("Asia/Tokyo")
    second = result_of(place_of(sample), by, utc=False)
    assert second != first
    assert second == counted(place_of(sample), by, utc=False)
    zone("UTC")
    assert result_of(place_of(sample), by, utc=False) == first


def test_a_database_beside_the_tree_is_looked_at_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", data / "storage")
    shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", data / "opencode.db")
    settle(tmp_path)
    first = result_of(str(data), "session")
    with sqlite3.connect(data / "opencode.db") as database:
        database.execute("UPDATE session SET title = 'changed', time_updated = time_updated + 1")
    database.close()
    second = result_of(str(data), "session")
    assert second != first
    shutil.copy(FIXTURES / "opencode-1.18.33" / "opencode.db", data / "opencode-dev.db")
    assert result_of(str(data), "session") not in (first, second)


def test_sums_of_another_store_are_never_used(sample: Sample, tmp_path: Path) -> None:
    first = DerivedCache(find_stores(place_of(sample))).path
    result_of(place_of(sample))
    other = shutil.copytree(sample.root.parent, tmp_path / "other")
    shutil.rmtree(other / "storage" / "message")
    shutil.copy(first, DerivedCache(find_stores(str(other))).path)
    assert result_of(str(other))["rows"] == []


@pytest.mark.parametrize("junk", [b"", b"\x00" * 200, b"SQLite format 3\x00" + b"x" * 5000])
def test_a_damaged_cache_is_made_again(sample: Sample, junk: bytes) -> None:
    first = result_of(place_of(sample))
    Path(DerivedCache(find_stores(place_of(sample))).path).write_bytes(junk)
    assert [result_of(place_of(sample)) for _ in range(2)] == [first, first]


def test_an_empty_place_has_empty_sums(tmp_path: Path) -> None:
    for _ in range(2):
        answer = result_of(str(tmp_path))
        assert (answer["rows"], answer["total"]["messages"]) == ([], 0)


def test_kept_sums_are_printed_without_loading_what_counts_them(sample: Sample) -> None:
    code = (
        "import sys; from opensesh.cli.main import run; run(['stats', '--store', sys.argv[1]]);"
        "print(sorted({'logging', 'msgspec', 'opensesh.history.stats.usage_writer'} & sys.modules.keys()))"
    )
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}", place_of(sample)]
    printed = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert printed[1].splitlines()[-1] == "[]"
    assert printed[0].splitlines()[:-1] == printed[1].splitlines()[:-1]
