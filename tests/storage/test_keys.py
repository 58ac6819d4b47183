from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import InvalidKeyError
from opensesh.records import codec
from opensesh.storage import keys
from opensesh.storage.protocol import Key


def filed(kind: str, record: dict[str, Any]) -> Key:
    match kind:
        case "project":
            return keys.project(record["id"])
        case "session":
            return keys.session(record["projectID"], record["id"])
        case "message":
            return keys.message(record["sessionID"], record["id"])
        case _:
            return keys.part(record["messageID"], record["id"])


def test_records_are_where_opencode_keeps_them(corpus: Path) -> None:
    for kind in ("project", "session", "message", "part"):
        files = list((corpus / "storage" / kind).rglob("*.json"))
        assert files
        for file in files:
            key = filed(kind, codec.loads_object(file.read_bytes()))
            assert corpus.joinpath("storage", *key).with_suffix(".json") == file


def test_what_belongs_to_a_session_is_filed_beside_it_by_its_name() -> None:
    assert keys.diff("ses_x") == ("session_diff", "ses_x")
    assert keys.todo("ses_x") == ("todo", "ses_x")
    assert keys.share("ses_x") == ("session_share", "ses_x")


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 200, "console", "com", "com10", "nul0", "lpt"])
def test_a_plain_name_can_be_part_of_a_key(name: str) -> None:
    assert keys.check_key(("todo", name)) == ("todo", name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a.b", "a/b", "a\\b", "a b", "é", "x" * 201, "a\n", "con", "NUL", "com1", "Lpt9", "aux", "prn"],
)
def test_what_could_leave_the_store_or_is_a_device_of_windows_cannot(name: str) -> None:
    with pytest.raises(InvalidKeyError, match="cannot be part of a storage key") as caught:
        keys.check_key(("todo", name))
    assert caught.value.data == {"key": ["todo", name]}
