from __future__ import annotations

import json

from ..cli.running import Terminal

EXPENSIVE = "USAGE input=100000 output=1000\nSAY expensive"
SCRIPTED = ("run", "-m", "scripted/prompt", "--title", "T")


def test_promise_5_a_request_that_the_budget_does_not_pay_costs_nothing(terminal: Terminal) -> None:
    assert "expensive" not in terminal.run(*SCRIPTED, "--budget", "0.0001", EXPENSIVE)
    assert terminal.code == 1
    assert "the budget of this run, $0.0001, does not pay the next request" in " ".join(terminal.error.split())
    assert terminal.json("stats")["total"]["cost"] == 0


def test_promise_5_a_budget_that_the_provider_exceeds_is_reported(terminal: Terminal) -> None:
    assert "expensive" in terminal.run(*SCRIPTED, "--budget", "0.1", EXPENSIVE)
    assert terminal.code == 1
    assert "the budget of this run, $0.1, is exceeded: $0.315 are spent" in " ".join(terminal.error.split())
    lines = terminal.run(*SCRIPTED, "--format", "json", "--budget", "0.1", EXPENSIVE).splitlines()
    assert terminal.code == 1
    for result in (json.loads(lines[-1]), terminal.json(*SCRIPTED, "--budget", "0.1", EXPENSIVE)):
        assert (result["outcome"], result["text"], result["cost"]) == ("failed", "expensive", 0.315)
        assert result["error"]["name"] == "BudgetExceededError"
        assert result["error"]["data"]["spent"] == 0.315
    assert terminal.code == 1


def test_promise_5_a_reasonable_budget_refuses_nothing(terminal: Terminal) -> None:
    for words in ((), ("-c",)):
        result = terminal.json("run", "-m", "scripted/prompt", *words, "--budget", "0.25", "SAY hello")
        assert (terminal.code, result["outcome"]) == (0, "answered")
