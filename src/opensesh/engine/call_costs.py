"""What a model call costs: estimated before it is sent, recorded when the provider has reported its usage, and
estimated from what was sent and received if the provider never reports it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .. import ids
from ..errors import RecordError
from ..models import options, pricing
from ..models.model import Price
from ..models.request import Assistant
from ..models.stream_events import Usage
from ..models.token_estimates import estimate
from ..records import EXTENSION_KEY, as_list, as_whole, document_of, dumps_compact, loads_object, object_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models.model import Model
    from ..models.request import Request
    from ..records import Document

MIN_ANSWER_TOKENS = 256
"""A request whose answer the budget would limit to less is not sent."""
THINKING_OPTIONS = ("thinking", "reasoningConfig")
"""Options with tokens for thinking that Claude is given in addition to the limit of the answer."""
_OUTPUT_PRICE = "outputPrice"
"""Field of a call in progress: US dollars for each token of its answer."""


class RequestEstimate(Struct, frozen=True, kw_only=True):
    """What a request may cost. All of it is 0 if the model's price is not known."""

    input: Usage
    """The tokens that are sent, by whether the provider has them in its cache."""
    input_cost: Decimal
    output_token_price: Decimal
    max_output_tokens: int
    """Including thinking."""

    @staticmethod
    def of(request: Request) -> RequestEstimate:
        """Estimate a request.

        The conversation up to the last answer was sent before, so that it has the price of cached input, where the
        model has one; everything has the full price in the first request of a conversation.
        """
        model, total, cached = request.model, 0, 0
        for spec in request.tools:
            total += spec.tokens
        last_answer = len(request.messages) - 1
        while last_answer >= 0 and not isinstance(request.messages[last_answer], Assistant):
            last_answer -= 1
        for at, message in enumerate(request.messages):
            if at == last_answer:
                cached = total
            total += message.tokens
        if pricing.charge(model.price, Usage(input=total)).rates.cache_read is None:
            cached = 0
        sent = Usage(input=total - cached, cache_read=cached)
        charge = pricing.charge(model.price, sent)
        output = request.max_output_tokens or options.max_output_tokens(model)
        for name in THINKING_OPTIONS:
            output += thinking_tokens(request, name)
        return RequestEstimate(
            input=sent,
            input_cost=charge.known,
            output_token_price=max(
                pricing.charge(Price(rates=charge.rates), Usage(output=1)).known,
                pricing.charge(Price(rates=charge.rates), Usage(reasoning=1)).known,
            ),
            max_output_tokens=min(output, model.limit.output or output),
        )

    def cost(self, output_tokens: int) -> Decimal:
        """Return US dollars, with an answer of this length."""
        return self.input_cost + self.output_token_price * output_tokens

    @property
    def input_tokens(self) -> int:
        """The tokens that are sent."""
        return self.input.input + self.input.cache_read

    @property
    def least_cost(self) -> Decimal:
        """US dollars, with the shortest answer that is worth a request."""
        return self.cost(min(MIN_ANSWER_TOKENS, self.max_output_tokens))

    def affordable_output(self, amount: Decimal) -> int:
        """Return how many tokens of output ``amount`` pays, which is at least :attr:`least_cost`."""
        if self.cost(self.max_output_tokens) <= amount:
            return self.max_output_tokens
        return int((amount - self.input_cost) / self.output_token_price)


def thinking_tokens(request: Request, option: str) -> int:
    """Return the tokens that an option of a request gives for thinking."""
    setting = object_at(request.options, option)
    return max(as_whole(setting.get("budgetTokens") or setting.get("budget_tokens")), 0)


# -- records of calls --------------------------------------------------------------------------------------------------
# A call that is not an answer of its own is recorded in the extension of a message, and counts like one. So is a call
# whose provider never reported its usage: OpenCode's fields have only what providers reported.


def call_record(agent: str, model: Model, usage: Usage, created_ms: int) -> Document:
    """Return the record of a call whose usage is known."""
    return {
        "agent": agent,
        "providerID": model.provider_id,
        "modelID": model.id,
        "time": {"created": created_ms, "completed": ids.now_ms()},
        "cost": pricing.charge(model.price, usage).stored,
        "tokens": document_of(pricing.tokens(usage)),
    }


def add_side_call(info: Document, call: Document) -> None:
    """Add a call to the extension of a message; it is not stored."""
    extension = object_at(info, EXTENSION_KEY)
    info[EXTENSION_KEY] = extension | {"calls": [*(as_list(extension.get("calls")) or ()), call]}


def call_in_progress(agent: str, request: Request) -> Document:
    """Return the record of a call that is about to be sent, with its estimated input."""
    estimated = RequestEstimate.of(request)
    call = call_record(agent, request.model, estimated.input, ids.now_ms())
    return call | {"estimated": True, _OUTPUT_PRICE: float(estimated.output_token_price)}


def broken_off(call: Document, output_tokens: int) -> Document:
    """Return the record of a call in progress whose usage will not be reported, after so much output."""
    cost = Decimal(repr(call["cost"])) + Decimal(repr(call[_OUTPUT_PRICE])) * output_tokens
    return {name: value for name, value in call.items() if name != _OUTPUT_PRICE} | {
        "time": call["time"] | {"completed": ids.now_ms()},
        "cost": float(cost),
        "tokens": call["tokens"] | {"output": output_tokens},
    }


def output_tokens(parts: Iterable[Document]) -> int:
    """Estimate the tokens of an answer by its parts: text, reasoning and the arguments of tool calls."""
    total = 0
    for part in parts:
        if part.get("type") in ("text", "reasoning"):
            total += estimate(str(part.get("text") or ""))
        elif part.get("type") == "tool":
            arguments: Any = object_at(part, "state").get("input")
            total += estimate(str(part.get("tool"))) + estimate(dumps_compact(arguments).decode())
    return total


def journaled_calls(journal: str, parts: Iterable[Document]) -> list[Document]:
    """Return the calls in the journal of a message, of whose answer ``parts`` were received.

    A call has a line when it is sent and one when it ends, which is empty if the provider refused it. A line that was
    not written to its end is left out.
    """
    calls: list[Document] = []
    for line in journal.splitlines():
        try:
            call = loads_object(line.encode())
        except RecordError:
            continue
        if calls and _OUTPUT_PRICE in calls[-1]:
            calls.pop()
        if call:
            calls.append(call)
    if calls and _OUTPUT_PRICE in calls[-1]:
        calls[-1] = broken_off(calls[-1], output_tokens(parts))
    return calls
