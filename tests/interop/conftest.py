from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.testing.wire import WireServer

from .opencode import OpenCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("interop") and not item.get_closest_marker("timeout"):
            # The first test of all may have to fetch a program of 50 MB.
            item.add_marker(pytest.mark.timeout(900))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for opencode in OpenCode.running:
            report.sections.append((f"OpenCode {opencode.version} in {opencode.root}", opencode.log_tail()))
    return report


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    """A model that takes every prompt as its script, for all the tests of a module."""
    with WireServer() as server:
        yield server


@pytest.fixture(scope="module")
def opencode(wire: WireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCode]:
    """OpenCode with its sessions in JSON files, for all the tests of a module."""
    with OpenCode(tmp_path_factory.mktemp("opencode"), wire) as server:
        yield server


@pytest.fixture
def new_opencode(tmp_path: Path) -> Iterator[Callable[..., OpenCode]]:
    """Starts one more OpenCode, with the arguments of the class but its folder, to be stopped after the test."""
    with ExitStack() as stack:
        numbers = count()

        def start(wire: WireServer | str, **options: Any) -> OpenCode:
            return stack.enter_context(OpenCode(tmp_path / f"opencode-{next(numbers)}", wire, **options))

        yield start
