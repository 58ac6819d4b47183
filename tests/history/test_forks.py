from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.stats.forks import copied_messages
from opensesh.history.stats.usage_layer import UsageTable
from opensesh.history.stats.usage_stats import Statistics, UsageFilter, statistics
from opensesh.project import ProjectLocation
from opensesh.sessions import Sessions
from opensesh.storage import open_store
from opensesh.storage.json_tree.store import JsonTree

from .sample_tree import Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"


def counted(sample: Sample) -> Statistics:
    return statistics(JsonTree(sample.root), "session", fresh=True)


def test_three_forks_cost_nothing_more(sample: Sample) -> None:
    session = sample.talk(answers=4)
    for _ in range(3):
        sample.fork(session)
    result = counted(sample)
    assert result.total.document()["cost"] == 1.0
    assert result.total.document()["messages"] == 8
    assert (result.copied.sessions, result.copied.totals.messages) == (3, 24)
    assert result.document()["copied"]["cost"] == 3.0


def test_what_a_fork_adds_is_billed_to_it(sample: Sample) -> None:
    session = sample.talk(answers=2)
    fork = sample.fork(session, upto=2)
    sample.answer(fork, cost=1)
    result = {row.key: row.document()["cost"] for row in counted(sample).rows}
    assert result == {session["id"]: 0.5, fork["id"]: 1.0}


def test_a_fork_of_a_fork_is_billed_where_each_call_was_made(sample: Sample) -> None:
    session = sample.talk(answers=2)
    first = sample.fork(session)
    sample.answer(first, cost=1)
    second = sample.fork(first)
    sample.answer(second, cost=4)
    result = {row.key: row.document()["cost"] for row in counted(sample).rows}
    assert result == {session["id"]: 0.5, first["id"]: 1.0, second["id"]: 4.0}


def test_a_fork_that_was_renamed_is_known_by_what_is_older_than_itself(sample: Sample) -> None:
    session = sample.talk()
    sample.fork(session, title="Something else entirely")
    assert counted(sample).total.document()["cost"] == 0.5


def test_a_fork_that_says_where_it_came_from_is_believed(sample: Sample) -> None:
    session = sample.talk()
    before = session["time"]
    sample.fork(session, title="x", fork={"sessionID": session["id"]}, time=before)
    assert counted(sample).total.document()["cost"] == 0.5


def test_when_the_original_is_gone_the_oldest_fork_pays(sample: Sample) -> None:
    session = sample.talk()
    first, second = sample.fork(session), sample.fork(session)
    for path in (sample.root / "message" / session["id"]).iterdir():
        path.unlink()
    sample.path("session", "proj", session["id"]).unlink()
    result = {row.key: row.document()["cost"] for row in counted(sample).rows}
    assert result == {first["id"]: 0.5}
    assert second["id"] not in result


def test_messages_of_one_session_are_not_copies_of_each_other(sample: Sample) -> None:
    session = sample.session()
    moment = {"created": sample.clock, "completed": sample.clock + 1}
    for _ in range(2):
        sample.answer(session, time=moment)
    sample.fork(session)
    assert counted(sample).total.document()["cost"] == 0.5
    for path in (sample.root / "message" / session["id"]).iterdir():
        path.unlink()
    assert counted(sample).total.document()["cost"] == 0.5


def test_forks_are_reported_as_far_as_their_copies_were_asked_for(sample: Sample) -> None:
    session = sample.talk(answers=2)
    fork = sample.fork(session)
    sample.answer(fork, cost=1)
    last = UsageFilter(since=sample.clock)
    result = statistics(JsonTree(sample.root), "day", last, fresh=True)
    assert (result.total.document()["cost"], result.copied.sessions) == (1, 0)


def test_messages_that_only_look_alike_are_both_billed(sample: Sample) -> None:
    one, other = sample.session(), sample.session()
    moment = {"created": sample.clock + 5000, "completed": sample.clock + 6000}
    sample.answer(one, time=moment)
    sample.answer(other, time=moment)
    assert counted(sample).total.document()["cost"] == 0.5


def test_a_message_older_than_its_session_without_a_twin_is_billed(sample: Sample) -> None:
    session = sample.session("Imported (fork #2)")
    early = session["time"]["created"] - 10_000
    sample.answer(session, time={"created": early, "completed": early + 1})
    assert counted(sample).total.document()["cost"] == 0.25


def test_an_answer_that_differs_in_anything_is_not_a_copy(sample: Sample) -> None:
    session = sample.talk(answers=1)
    fork = sample.fork(session)
    [answer] = [info for info in sample.messages(fork) if info["role"] == "assistant"]
    sample.write(("message", fork["id"], answer["id"]), answer | {"cost": 0.26})
    assert counted(sample).total.document()["cost"] == 0.51


def test_forks_made_by_opensesh_are_known_too(sample: Sample) -> None:
    session = sample.talk()
    sessions = Sessions(
        JsonTree(sample.root), ProjectLocation("/srv/dev/shop", "proj", "/srv/dev/shop", "/srv/dev/shop", "git")
    )
    sessions.fork(session["id"])
    sessions.rename(sessions.fork(session["id"]).id, "renamed")
    assert counted(sample).total.document()["cost"] == 0.5


@pytest.mark.parametrize(
    "place", ["opencode-1.1.65/storage", "opencode-1.18.33/opencode.db", "opencode-1.2/opencode.db"]
)
def test_the_forks_that_real_opencode_made_are_known(place: str) -> None:
    usage = UsageTable(DerivedCache(store=open_store(str(FIXTURES / place)), temporary=True))
    result = copied_messages(usage)
    assert sorted(len(positions) for positions in result.values()) == [5, 7]
    assert {usage.infos[session].title for session in result} == {"Scripted title for session (fork #1)"}
