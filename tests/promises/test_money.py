from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

import opensesh
from opensesh import history
from opensesh.history.session_figures import session_figures
from opensesh.history.stats.money import dollars
from opensesh.project import resolve
from opensesh.sessions import Sessions, trash
from opensesh.storage import open_store

from ..cli.running import Terminal
from ..history.sample_tree import Sample

EXPENSIVE = "USAGE input=100000 output=1000\nSAY expensive"
SCRIPTED = ("--quiet", "-m", "scripted/prompt")


def total(terminal: Terminal) -> float:
    return terminal.json("stats")["total"]["cost"]


def costs(terminal: Terminal) -> dict[str, float]:
    return {entry["id"]: entry["cost"] for entry in terminal.json("list")["sessions"]}


def agree(terminal: Terminal) -> dict[str, float]:
    """Every place that says what sessions cost says the same."""
    by_session = {row["key"]: row["cost"] for row in terminal.json("stats", "--by", "session")["rows"]}
    listed = costs(terminal)
    assert listed == pytest.approx({name: by_session.get(name, 0) for name in listed})
    library = history.open()
    entries = {entry.id: float(entry.cost) for entry in library.sessions()}
    assert entries == pytest.approx(listed)
    figures = {
        entry.id: session_figures(library, entry, library.store.messages(entry.id)).usage.cost
        for entry in library.sessions()
    }
    assert {name: dollars(cost) for name, cost in figures.items()} == pytest.approx(listed)
    return listed


async def engine_costs(sessions: Iterable[str]) -> dict[str, float]:
    async with opensesh.open(".") as engine:
        return {name: float((await engine.cost(name)).own.known) for name in sessions}


def test_promise_3_a_revert_that_is_final_leaves_the_cost(terminal: Terminal) -> None:
    terminal.run("run", *SCRIPTED, EXPENSIVE)
    before = total(terminal)
    assert before == pytest.approx(0.315, rel=0.05)
    terminal.run("session", "revert", "last", "--yes")
    terminal.run("run", *SCRIPTED, "-c", "SAY again")
    assert total(terminal) > before
    [cost] = agree(terminal).values()
    assert cost == pytest.approx(total(terminal))


def test_promise_3_a_session_budget_counts_what_was_reverted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("run", *SCRIPTED, EXPENSIVE)
    terminal.run("session", "revert", "last", "--yes")
    terminal.run("run", *SCRIPTED, "-c", "SAY again")
    monkeypatch.setenv("OPENSESH_BUDGET", "0.05")
    terminal.run("run", "-m", "scripted/prompt", "-c", "SAY x")
    assert terminal.code == 1
    assert "budget" in terminal.error


def test_promise_3_a_compaction_that_is_undone_leaves_its_cost(terminal: Terminal) -> None:
    terminal.run("run", *SCRIPTED, "SAY one")
    terminal.run("run", *SCRIPTED, "-c", "SAY two")
    terminal.run("session", "compact", "last")
    assert terminal.code == 0, terminal.error
    compacted = total(terminal)
    terminal.run("session", "compact", "last", "--undo")
    assert total(terminal) == pytest.approx(compacted)
    agree(terminal)


def test_promise_3_an_undone_compaction_can_be_redone_without_another_call(terminal: Terminal) -> None:
    terminal.run("run", *SCRIPTED, "SAY one")
    terminal.run("run", *SCRIPTED, "-c", "SAY two")
    terminal.run("session", "compact", "last")
    compacted, cost = terminal.json("show", "last"), total(terminal)
    terminal.run("session", "compact", "last", "--undo")
    terminal.run("session", "compact", "last", "--redo")
    assert terminal.code == 0, terminal.error
    assert terminal.json("show", "last") == compacted
    assert total(terminal) == pytest.approx(cost)
    terminal.run("session", "compact", "last", "--redo")
    assert (terminal.code, "has no undone compaction" in terminal.error) == (3, True)
    terminal.run("session", "compact", "last", "--undo", "--redo")
    assert terminal.code == 2


def test_promise_3_a_removed_session_takes_its_undone_compaction_along(terminal: Terminal) -> None:
    terminal.run("run", *SCRIPTED, "SAY one")
    terminal.run("run", *SCRIPTED, "-c", "SAY two")
    terminal.run("session", "compact", "last")
    terminal.run("session", "compact", "last", "--undo")
    terminal.run("session", "remove", "last", "--yes")
    terminal.run("session", "restore", "last")
    terminal.run("session", "compact", "last", "--redo")
    assert terminal.code == 0, terminal.error


def test_promise_3_a_removed_session_takes_its_costs_along_and_brings_them_back(terminal: Terminal) -> None:
    terminal.run("run", *SCRIPTED, EXPENSIVE)
    terminal.run("session", "revert", "last", "--yes")
    terminal.run("run", *SCRIPTED, "-c", "SAY again")
    before = total(terminal)
    terminal.run("session", "remove", "last", "--yes")
    assert total(terminal) == 0
    terminal.run("session", "restore", "last")
    assert total(terminal) == pytest.approx(before)


def test_promise_3_messages_removed_twice_count_once_and_restored_ones_too(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk(answers=3)
    sessions = Sessions(open_store(str(sample.root)), resolve(str(Path.cwd())))
    before = total(terminal)
    answer = sample.messages(session)[-1]
    record, parts = sessions.messages(session["id"])[-1]
    sessions.remove_message(session["id"], answer["id"])
    assert total(terminal) == pytest.approx(before)
    sessions.remove_message(session["id"], answer["id"])
    assert total(terminal) == pytest.approx(before)
    sessions.add_message(type(sessions.messages(session["id"])[0])(record, parts))
    assert total(terminal) == pytest.approx(before)
    agree(terminal)


def test_promise_4_forks_count_what_they_spent_themselves(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.run("run", *SCRIPTED, EXPENSIVE)
    original = terminal.json("list")["sessions"][0]["id"]
    spent = total(terminal)
    for _ in range(3):
        terminal.run("session", "fork", original)
    results = agree(terminal)
    assert results.pop(original) == pytest.approx(spent)
    assert list(results.values()) == [0, 0, 0]
    assert asyncio.run(engine_costs(results)) == results
    assert asyncio.run(engine_costs([original])) == {original: pytest.approx(spent)}
    assert total(terminal) == pytest.approx(spent)
    monkeypatch.setenv("OPENSESH_BUDGET", "0.1")
    result = terminal.json("run", *SCRIPTED, "-c", "SAY hi")
    assert terminal.code == 0, terminal.error
    results = agree(terminal)
    assert sum(results.values()) == pytest.approx(total(terminal)) == pytest.approx(spent + result["cost"])
    assert max(cost for name, cost in results.items() if name != original) == pytest.approx(result["cost"])


def test_promise_4_a_fork_of_reverted_messages_counts_them_once(terminal: Terminal) -> None:
    terminal.run("run", *SCRIPTED, EXPENSIVE)
    original = terminal.json("list")["sessions"][0]["id"]
    terminal.run("session", "revert", original, "--yes")
    terminal.run("run", *SCRIPTED, "-c", "SAY again")
    spent = total(terminal)
    terminal.run("session", "fork", original, "--reverted")
    assert terminal.code == 0, terminal.error
    assert total(terminal) == pytest.approx(spent)
    assert agree(terminal)[original] == pytest.approx(spent)


def test_promise_4_a_fork_whose_original_is_deleted_keeps_the_cost(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk(answers=2)
    fork = sample.fork(session)
    store = open_store(str(sample.root))
    before = agree(terminal)
    assert before == {session["id"]: pytest.approx(0.5), fork["id"]: 0}
    trash.remove(store, [history.open().session(session["id"]).record])
    assert agree(terminal) == {fork["id"]: pytest.approx(0.5)}
