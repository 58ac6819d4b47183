from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from opensesh.engine.budget import Budget, budget_from_environment, parse_amount
from opensesh.engine.components import Settings
from opensesh.errors import UsageError
from opensesh.records import BudgetExceededError, read_failure, side_calls
from opensesh.testing.scripted import ScriptedModel

from .stage import Stage, echo, stage

# The scripted model costs 3 dollars a million tokens in, and 15 out.
ONE_CENT = "USAGE input=2000 output=267"


def steps(count: int) -> str:
    return "".join(f'CALL echo {{"number": {number}}}\n{ONE_CENT}\n---\n' for number in range(count))


def limited(**budget: Any) -> Settings:
    return Settings(budget=Budget(**budget))


def over(it: Stage) -> BudgetExceededError:
    failure = read_failure(it.answers()[-1].info["error"])
    assert isinstance(failure, BudgetExceededError)
    return failure


async def test_a_run_ends_when_its_budget_is_used_up_and_nothing_more_is_sent() -> None:
    async with stage(steps(9) + "SAY done", settings=limited(run=Decimal("0.025")), tools=[echo()]) as it:
        outcome = await it.ask()
        assert outcome.kind == "failed"
        assert len(it.model.calls) == 3
        failure = over(it)
        assert (failure.scope, failure.spent, failure.budget) == ("run", 0.030015, 0.025)
        assert failure.message.startswith("the budget of this run, $0.025, is used up: $0.030015 are spent.")
        assert outcome.description == failure.message
        it.assert_sound()
        costs = await it.engine.cost(it.session)
        assert costs.total.cost == Decimal("0.030015")


async def test_the_next_run_has_a_budget_of_its_own() -> None:
    async with stage(steps(2) + f"SAY one\n{ONE_CENT}\n---\nSAY two", settings=limited(run=Decimal("0.02"))) as it:
        assert (await it.ask()).kind == "failed"
        assert (await it.ask()).kind == "answered"


async def test_a_budget_that_is_enough_changes_nothing() -> None:
    async with stage(steps(1) + "SAY done", settings=limited(run=Decimal(1), session=Decimal(1)), tools=[echo()]) as it:
        assert (await it.ask()).kind == "answered"


async def test_the_budget_of_a_session_counts_what_earlier_runs_spent() -> None:
    settings = limited(session=Decimal("0.02"))
    async with stage(f"SAY one\n{ONE_CENT}\n---\nSAY two\n{ONE_CENT}\n---\nSAY never", settings=settings) as it:
        assert (await it.ask()).kind == "answered"
        assert (await it.ask()).kind == "answered"
        assert (await it.ask()).kind == "failed"
        assert over(it).scope == "session"
        assert len(it.model.calls) == 2


TASK = 'CALL task {"description": "Look", "prompt": "Look.", "subagent_type": "general"}\n'


async def test_subagents_are_paid_from_the_budget_of_the_run() -> None:
    child = ScriptedModel(steps(3) + "SAY found it")
    config = {"agent": {"general": {"model": "scripted/child"}}, "permission": "allow"}
    script = f"{TASK}{ONE_CENT}\n---\nSAY never"
    async with stage(script, settings=limited(run=Decimal("0.025")), config=config, tools=[echo()], child=child) as it:
        outcome = await it.ask()
        assert outcome.kind == "failed"
        assert (len(it.model.calls), len(child.calls)) == (1, 2)
        (part,) = it.parts("tool")
        assert part["state"]["status"] == "error"
        assert "the budget of this run" in part["state"]["error"]
        costs = await it.engine.cost(it.session)
        assert (costs.own.cost, costs.children.cost) == (Decimal("0.010005"), Decimal("0.02001"))
        assert over(it).spent == 0.030015


async def test_titles_are_paid_from_it_too() -> None:
    script = f"SAY hello\n{ONE_CENT}\n---\nTITLE A greeting"
    async with stage(script, settings=limited(run=Decimal(0)), title=None) as it:
        assert (await it.ask()).kind == "failed"
    assert it.model.calls == ()
    assert it.model.title_calls == ()


async def test_the_cost_of_a_session_includes_its_title() -> None:
    script = f"SAY hello\n{ONE_CENT}\n---\nTITLE A greeting"
    async with stage(script, settings=limited(session=Decimal(1)), title=None) as it:
        await it.ask()
        (call,) = await it.until(lambda: side_calls(it.messages()[0].info))
        assert call["cost"] > 0
        answer = it.answers()[0].info
        costs = await it.engine.cost(it.session)
        assert costs.own.known == Decimal(repr(answer["cost"])) + Decimal(repr(call["cost"]))
        assert costs.own.tokens.input == answer["tokens"]["input"] + call["tokens"]["input"]


UNPRICED: dict[str, Any] = {
    "provider": {
        "own": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "x"},
            "models": {"big": {"name": "Big"}},
        }
    }
}


async def test_with_a_model_of_unknown_price_a_budget_cannot_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    async with stage("SAY never", settings=limited(run=Decimal(1)), config=UNPRICED) as it:
        outcome = await it.ask("Go.", model="own/big")
        assert outcome.kind == "failed"
        assert "cannot be enforced: the price of own/big is not known. Nothing was sent." in over(it).message


async def test_or_it_is_only_warned_of(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    settings = limited(run=Decimal(1), unpriced="warn")
    async with stage("SAY never", settings=settings, config=UNPRICED) as it:
        await it.submit("Go.", model="own/big")
        await it.until(lambda: "the budget cannot be enforced: the price of own/big is not known" in caplog.text)
        it.engine.abort(it.session)


async def test_the_environment_sets_the_budget_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_BUDGET", "0.01")
    async with stage(f"SAY one\n{ONE_CENT}\n---\nSAY never") as it:
        assert (await it.ask()).kind == "answered"
        assert (await it.ask()).kind == "failed"
        assert over(it).budget == 0.01


def test_an_amount_is_what_people_write() -> None:
    assert parse_amount("$0.50") == parse_amount(" 0.5 ") == Decimal("0.5")
    assert budget_from_environment({"OPENSESH_BUDGET": " "}) == Budget()
    for wrong in ("much", "-1", "nan", "inf", ""):
        with pytest.raises(UsageError, match="is not a valid amount"):
            parse_amount(wrong)
