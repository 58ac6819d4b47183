"""OpenCode's login files, ``auth.json`` and ``mcp-auth.json``: objects with an entry for each provider or server.

Only their owner can read them. OpenCode takes no lock that others could see, so the lock keeps only processes of
opensesh apart; a file is always replaced as a whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import StoreError
from ..records import dumps, loads_object
from . import paths
from .disk import Disk, read_file
from .locks import Locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..records import Document


def change_entry(path: str, name: str, change: Callable[[Document | None], Document | None]) -> None:
    """Replace the entry ``name`` by what ``change`` returns for it; ``None`` stands for no entry.

    Other entries stay as they are. A file that cannot be read, or is not a JSON object, raises and stays as it is.
    """
    with Locks(os.path.join(paths.state(), "locks", paths.digest(path))).hold(os.path.basename(path)):
        try:
            content = read_file(path)
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror or error}", path=path) from error
        document = loads_object(content, path) if content.strip() else {}
        before = document.get(name)
        after = change(before)
        if after == before:
            return
        if after is None:
            del document[name]
        else:
            document[name] = after
        Disk().replace(path, dumps(document))
