from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from opensesh.loading import entry_points

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "opensesh.tests"
ABOUT = {
    "METADATA": "Metadata-Version: 2.1\nName: brought\nVersion: 1\n",
    "PKG-INFO": "Metadata-Version: 2.1\nName: brought\nVersion: 1\n",
    "entry_points.txt": f"[console_scripts]\nit = it:main\n\n[{GROUP}]\nthing = brought:thing\n",
}


def describe(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, text in ABOUT.items():
        (folder / name).write_text(text)


def named() -> list[str]:
    return [point.value for point in entry_points(GROUP)]


@pytest.mark.parametrize("folder", ["brought-1.dist-info", "brought-1.egg-info"])
def test_what_a_distribution_brings_is_found_wherever_it_says_so(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(tmp_path / folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert named() == ["brought:thing"]


def test_what_lies_in_the_current_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(tmp_path / "brought-1.dist-info")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert named() == ["brought:thing"]


def test_an_egg_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    egg = tmp_path / "brought-1-py3.egg"
    describe(egg / "EGG-INFO")
    monkeypatch.setattr(sys, "path", [*sys.path, str(egg)])
    assert named() == ["brought:thing"]


def test_an_archive_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "brought.zip"
    with ZipFile(archive, "w") as file:
        for name, text in ABOUT.items():
            file.writestr(f"brought-1.dist-info/{name}", text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    assert named() == ["brought:thing"]


def test_entry_points_are_not_loaded_where_no_distribution_names_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent-1.dist-info").mkdir()
    monkeypatch.setattr(
        sys, "path", [*(location for location in sys.path if location), str(tmp_path), str(tmp_path / "gone")]
    )
    monkeypatch.setattr(metadata, "entry_points", None)
    assert named() == []
