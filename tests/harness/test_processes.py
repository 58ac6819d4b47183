from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from . import ProcessGroup
from . import processes as harness_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import Report


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as processes:
        yield processes


def report_words(report: Report, *words: str) -> None:
    for word in words:
        report(word)


def report_and_sleep(report: Report) -> None:
    report({"pid": os.getpid(), "threads": threading.active_count()})
    time.sleep(60)


def fail(report: Report, number: int) -> None:
    report(number)
    if number == 1:
        raise ValueError("number one fails")


def exit_with(report: Report, code: int) -> None:
    os._exit(code)


def test_a_task_runs_and_its_reports_arrive(processes: ProcessGroup) -> None:
    result = processes.start(report_words, "one", "é\ud800", "\n").wait()
    assert result == (0, ["one", "é\ud800", "\n"], "")


def test_the_exit_code_is_returned(processes: ProcessGroup) -> None:
    assert processes.start(exit_with, 9).wait().code == 9


def test_the_reports_of_a_killed_process_are_kept(processes: ProcessGroup) -> None:
    child = processes.start(report_and_sleep)
    (report,) = child.wait_for()
    assert report == {"pid": child.pid, "threads": 1}
    result = child.kill()
    assert result.code < 0
    assert result.reports == [report]
    assert child.kill() == child.wait() == result


def test_an_exception_is_returned_with_its_traceback(processes: ProcessGroup) -> None:
    result = processes.start(fail, 1).wait()
    assert result.code == 1
    assert "ValueError: number one fails" in result.traceback
    with pytest.raises(AssertionError, match="number one fails"):
        processes.start(fail, 1).wait_for(2)


def test_run_many_names_the_process_that_failed(processes: ProcessGroup) -> None:
    assert [result.reports for result in processes.run_many(report_number, 3, "x")] == [
        [[0, "x"]],
        [[1, "x"]],
        [[2, "x"]],
    ]
    with pytest.raises(AssertionError, match=r"1 of 3 processes failed:\n(.|\n)*number one fails"):
        processes.run_many(fail, 3)


def report_number(report: Report, number: int, word: str) -> None:
    report([number, word])


def test_a_process_that_takes_too_long_is_ended(processes: ProcessGroup) -> None:
    child = processes.start(report_and_sleep)
    child.wait_for()
    with pytest.raises(AssertionError, match=r"did not end within 0\.05 s"):
        child.wait(seconds=0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    with pytest.raises(AssertionError, match="reported"):
        processes.start(report_and_sleep).wait_for(2, seconds=0.3)


@pytest.mark.parametrize("forks", [True, False])
def test_leaving_the_group_ends_every_process(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness_processes, "_CAN_FORK", forks and hasattr(os, "fork"))
    with ProcessGroup() as processes:
        child = processes.start(report_and_sleep)
        child.wait_for()
        with pytest.raises(AssertionError, match="number one fails"):
            processes.start(fail, 1).wait_for(2)
        assert processes.start(exit_with, 9).wait().code == 9
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
