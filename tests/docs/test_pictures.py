from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def test_the_picture_of_a_session_is_a_drawing_that_loads_nothing() -> None:
    text = (PICTURES / "session.svg").read_text("utf-8")
    words = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    assert "opensesh run" in words
    assert "return round(sum(prices) * (1 - discount), 2)" in words
    assert "@font-face" not in text
    assert "href=" not in text
    assert len(text) < 200_000


def test_the_picture_of_a_transcript_is_small_enough_for_a_readme() -> None:
    data = (PICTURES / "transcript.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", data[16:24]) == (1100, 850)
    assert len(data) < 200_000
