from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .journey import GitJourney, Journey

JOURNEYS = pytest.mark.parametrize("journey", [Journey, GitJourney], ids=["without git", "in git"])


@pytest.fixture(autouse=True)
def _unread_files_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_FILETIME_CHECK", "true")


@JOURNEYS
def test_reverts_touch_only_what_the_session_did_and_can_be_undone(journey: type[Journey]) -> None:
    run_state_machine_as_test(journey, settings=settings(max_examples=6, stateful_step_count=12))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@JOURNEYS
def test_reverts_touch_only_what_the_session_did_on_long_journeys(journey: type[Journey]) -> None:
    run_state_machine_as_test(journey, settings=settings(max_examples=40, stateful_step_count=25))
