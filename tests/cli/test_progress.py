from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from opensesh.cli.terminal import Progress

from ..history.sample_tree import Sample
from .running import Screen


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "told"), [(Tty(), "\r200 of 9,000\r400 of 9,000\r            \r"), (io.StringIO(), "")]
)
def test_work_over_a_second_is_reported_now_and_then_and_leaves_no_trace(
    stream: io.StringIO, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    moments = iter((0.0, 0.5, 1.0, 1.1, 1.3))
    with Progress("{:,} of {:,}", clock=lambda: next(moments)) as progress:
        for number in (100, 200, 300, 400):
            progress(number, 9_000)
    assert stream.getvalue() == told


@pytest.mark.parametrize("command", ["list", "stats", "stats --by session"])
def test_forty_columns_are_enough(sample: Sample, screen: Callable[..., Screen], command: str) -> None:
    sample.talk("A title that is longer than forty columns, and then some")
    seen = screen(*command.split(), columns=40)
    seen.end()
    wide = [line for line in seen.text.splitlines() if len(line) > 40 and not line.endswith((".", ":"))]
    assert wide == []
