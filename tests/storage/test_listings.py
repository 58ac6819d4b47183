from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from opensesh.storage.json_tree.store import Listings

if TYPE_CHECKING:
    from pathlib import Path


def later() -> int:
    return time.time_ns() + 10_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    for number in range(1_000):
        (inside / str(number)).touch()
    return inside


def test_a_large_folder_at_rest_is_listed_once(folder: Path) -> None:
    listings = Listings(clock=later)
    first = listings.names(str(folder))
    assert sorted(first) == sorted(os.listdir(folder))
    assert listings.names(str(folder)) is first


def test_what_is_added_renamed_or_removed_is_seen_at_once(folder: Path) -> None:
    listings = Listings(clock=later)
    listings.names(str(folder))
    (folder / "new").touch()
    assert "new" in listings.names(str(folder))
    time.sleep(0.02)
    (folder / "new").rename(folder / "newer")
    assert "newer" in listings.names(str(folder))
    time.sleep(0.02)
    (folder / "newer").unlink()
    assert "newer" not in listings.names(str(folder))


def test_a_folder_whose_old_times_were_put_back_is_listed_again(folder: Path) -> None:
    listings = Listings(clock=later)
    listings.names(str(folder))
    before = folder.stat()
    (folder / "new").touch()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "new" in listings.names(str(folder))


def test_a_folder_put_in_the_place_of_another_is_listed_again(folder: Path) -> None:
    listings = Listings(clock=later)
    listings.names(str(folder))
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()
    assert listings.names(str(folder)) == []


def test_a_folder_rests_when_its_latest_time_is_more_than_two_seconds_past(folder: Path) -> None:
    changed = folder.stat().st_mtime_ns + 3_600_000_000_000
    os.utime(folder, ns=(changed, changed))
    now = changed + 2_000_000_000
    listings = Listings(clock=lambda: now)
    first = listings.names(str(folder))
    assert listings.names(str(folder)) is not first
    now += 1
    second = listings.names(str(folder))
    assert listings.names(str(folder)) is second


def test_small_folders_push_no_large_one_out(folder: Path, tmp_path: Path) -> None:
    listings = Listings(clock=later)
    first = listings.names(str(folder))
    for number in range(9):
        (tmp_path / str(number)).mkdir()
        listings.names(str(tmp_path / str(number)))
    assert listings.names(str(folder)) is first


def test_what_changes_all_the_time_is_never_seen_late(tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / str(number)).touch()
    listings = Listings()
    for number in range(300):
        (tmp_path / f"new {number}").touch()
        assert f"new {number}" in listings.names(str(tmp_path))


def test_only_a_few_folders_are_remembered(folder: Path) -> None:
    listings = Listings(clock=later)
    first = listings.names(str(folder))
    for number in range(9):
        listings.names(f"{folder}{'/.' * number}")
    assert listings.names(str(folder)) is not first


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Listings().names(str(tmp_path / "none"))
