from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.config import load

if TYPE_CHECKING:
    from opensesh.config import Config
    from opensesh.config.source import Fetch


class ConfigFolders:
    """A home, a project with a folder two levels down, and an environment, all in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.project = root / "project"
        self.directory = self.project / "a" / "b"
        self.environ = {"OPENCODE_TEST_MANAGED_CONFIG_DIR": str(root / "managed"), "USER": "someone"}
        self.home.mkdir()
        self.directory.mkdir(parents=True)

    @property
    def config(self) -> Path:
        return self.home / ".config" / "opencode"

    def write(self, path: Path | str, content: Any) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
        return target

    def load(self, fetch: Fetch | None = None) -> Config:
        return load(self.directory, self.project, home=self.home, environ=self.environ, fetch=fetch)


@pytest.fixture
def folders(tmp_path: Path) -> ConfigFolders:
    return ConfigFolders(tmp_path)
