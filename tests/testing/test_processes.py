from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from opensesh.testing import Nursery, processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opensesh.testing.processes import Tell


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def speak(tell: Tell, *words: str) -> None:
    for word in words:
        tell(word)


def speak_and_sleep(tell: Tell) -> None:
    tell({"pid": os.getpid(), "threads": threading.active_count()})
    time.sleep(60)


def fail(tell: Tell, number: int) -> None:
    tell(number)
    if number == 1:
        raise ValueError("number one fails")


def leave(tell: Tell, code: int) -> None:
    os._exit(code)


def test_a_task_is_run_and_heard(nursery: Nursery) -> None:
    fate = nursery.start(speak, "one", "é\ud800", "\n").wait()
    assert fate == (0, ["one", "é\ud800", "\n"], "")


def test_the_code_of_a_process_is_known(nursery: Nursery) -> None:
    assert nursery.start(leave, 9).wait().code == 9


def test_what_a_killed_process_said_is_kept(nursery: Nursery) -> None:
    child = nursery.start(speak_and_sleep)
    (said,) = child.hear()
    assert said == {"pid": child.pid, "threads": 1}
    fate = child.kill()
    assert fate.code < 0
    assert fate.said == [said]
    assert child.kill() == child.wait() == fate


def test_an_exception_is_known_with_its_traceback(nursery: Nursery) -> None:
    fate = nursery.start(fail, 1).wait()
    assert fate.code == 1
    assert "ValueError: number one fails" in fate.raised
    with pytest.raises(AssertionError, match="number one fails"):
        nursery.start(fail, 1).hear(2)


def test_a_crowd_tells_who_failed(nursery: Nursery) -> None:
    assert [fate.said for fate in nursery.crowd(speak_number, 3, "x")] == [[[0, "x"]], [[1, "x"]], [[2, "x"]]]
    with pytest.raises(AssertionError, match=r"1 of 3 processes failed:\n(.|\n)*number one fails"):
        nursery.crowd(fail, 3)


def speak_number(tell: Tell, number: int, word: str) -> None:
    tell([number, word])


def test_a_process_that_takes_too_long_is_ended(nursery: Nursery) -> None:
    child = nursery.start(speak_and_sleep)
    child.hear()
    with pytest.raises(AssertionError, match=r"did not end within 0\.05 s"):
        child.wait(seconds=0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    with pytest.raises(AssertionError, match="said"):
        nursery.start(speak_and_sleep).hear(2, seconds=0.3)


@pytest.mark.parametrize("forks", [True, False])
def test_the_end_of_the_nursery_is_the_end_of_all(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_FORKS", forks and hasattr(os, "fork"))
    with Nursery() as nursery:
        child = nursery.start(speak_and_sleep)
        child.hear()
        with pytest.raises(AssertionError, match="number one fails"):
            nursery.start(fail, 1).hear(2)
        assert nursery.start(leave, 9).wait().code == 9
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
