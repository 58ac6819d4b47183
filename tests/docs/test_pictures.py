from __future__ import annotations

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

DEMO = Path(__file__).parents[2] / "src" / "opensesh" / "cli" / "demo_command.py"
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def test_the_picture_of_a_session_is_a_drawing_that_loads_nothing() -> None:
    text = (PICTURES / "session.svg").read_text("utf-8")
    words = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    assert "$ opensesh run" in words
    assert "temporary project" not in words
    for heading in ("The change", "The cost, at the prices of a larger model"):
        assert heading in words
        assert f'{heading}"' in DEMO.read_text("utf-8")
    assert "return round(sum(prices) * (1 - discount), 2)" in words
    assert "@font-face" not in text
    assert "href=" not in text
    assert len(text) < 200_000


def test_the_picture_of_a_transcript_is_small_enough_for_a_readme() -> None:
    data = (PICTURES / "transcript.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", data[16:24]) == (1100, 850)
    assert len(data) < 200_000


def test_the_pictures_of_the_web_pages_are_all_shown_in_every_form() -> None:
    shown = set(re.findall(r"pictures/(web-\w+-\w+\.png)", (PICTURES.parent / "web-pictures.md").read_text("utf-8")))
    assert shown == {path.name for path in PICTURES.glob("web-*.png")}
    pages = {name.rpartition("-")[0] for name in shown}
    assert shown == {f"{page}-{form}.png" for page in pages for form in ("light", "dark", "phone")}
