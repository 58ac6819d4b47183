from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.tools.truncation import Outputs


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    return Outputs(directory=str(tmp_path / "tool-output"), max_lines=10, max_bytes=100)


def test_what_is_short_enough_is_left_alone_and_makes_no_file(outputs: Outputs) -> None:
    preview = outputs.shorten("a\nb\n")
    assert (preview.text, preview.truncated, preview.path) == ("a\nb\n", False, None)
    assert not Path(outputs.directory).exists()


def test_the_first_lines_are_kept_and_the_whole_is_in_a_file(outputs: Outputs) -> None:
    text = "".join(f"{number}\n" for number in range(50))
    preview = outputs.shorten(text)
    assert preview.truncated
    assert preview.path is not None
    assert Path(preview.path).read_text() == text
    assert os.path.basename(preview.path).startswith("tool_")
    assert preview.text.startswith("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n\n...41 lines truncated...\n")
    assert preview.path in preview.text


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_what_is_kept_can_be_read_by_its_owner_alone(outputs: Outputs) -> None:
    kept = outputs.shorten("x" * 200).path
    assert kept is not None
    assert os.stat(kept).st_mode & 0o777 == 0o600


def test_the_last_lines_can_be_kept_instead(outputs: Outputs) -> None:
    preview = outputs.shorten("\n".join(map(str, range(50))), "tail")
    assert preview.text.startswith("...40 lines truncated...")
    assert preview.text.endswith("\n\n40\n41\n42\n43\n44\n45\n46\n47\n48\n49")


def test_bytes_run_out_at_the_end_of_a_line(outputs: Outputs) -> None:
    preview = outputs.shorten("\n".join(["é" * 20] * 5))
    assert preview.text.startswith("\n".join(["é" * 20] * 2) + "\n\n...123 bytes truncated...")


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_a_single_long_line_is_cut_between_characters(outputs: Outputs, keep: str) -> None:
    preview = outputs.shorten("漢" * 100, "head" if keep == "head" else "tail")
    assert "漢" * 33 in preview.text
    assert "漢" * 34 not in preview.text
    assert "\ufffd" not in preview.text
    assert "...201 bytes truncated..." in preview.text


def test_of_a_long_line_before_the_last_newline_the_end_is_shown(outputs: Outputs) -> None:
    assert outputs.shorten("x" * 200 + "y\n", "tail").text.endswith("\n\n" + "x" * 98 + "y\n")


def test_an_output_that_cannot_be_saved_is_reported_as_lost(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    preview = Outputs(directory=str(tmp_path / "file" / "below"), max_lines=1).shorten("a\nb")
    assert preview.truncated
    assert preview.path is None
    assert "The rest is lost" in preview.text


def test_the_hint_depends_on_whether_work_can_be_handed_on(tmp_path: Path) -> None:
    alone = Outputs(directory=str(tmp_path), max_lines=1)
    helped = Outputs(directory=str(tmp_path), max_lines=1, delegate=True)
    assert "task tool" not in alone.shorten("a\nb").text
    assert "task tool" in helped.shorten("a\nb").text


@given(text=st.text(alphabet="ab\né漢😀", max_size=400), tail=st.booleans())
def test_what_is_kept_never_exceeds_the_limits_and_is_never_made_up(
    text: str, tail: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outputs = Outputs(directory=str(tmp_path_factory.getbasetemp() / "spill"), max_lines=5, max_bytes=40)
    fit = outputs.fit(text.split("\n"), "tail" if tail else "head")
    assert len(fit.text.encode()) == fit.size <= 40
    assert fit.text.count("\n") < 5
    assert text.endswith(fit.text) if tail else text.startswith(fit.text)
