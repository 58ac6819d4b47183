"""Costs of sessions, and budgets, which are checked before every request (steps, summaries, titles, subagents).

What a request may cost is estimated before it is sent: its answer is limited to what the budget still pays, and a
request that the budget does not pay is not sent. A provider that counts more than was estimated can still exceed the
budget, which is reported. Amounts are decimal US dollars. A model without a known price is never taken as free: a sum
with such an answer says so. A call counts for the session that made it, also if its answer was removed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ModelNotFoundError, OverBudgetError, UsageError
from ..history.stats.counted_calls import CountedCalls
from ..models import pricing
from ..models.connect import Connections
from ..models.stream_events import FinishStep, TextDelta, ToolInputDelta, Usage
from ..models.token_estimates import estimate_length
from ..records import as_amount, as_object, object_at
from .call_costs import THINKING_OPTIONS, RequestEstimate, thinking_tokens
from .cancellation import run_in_thread_uncancellable
from .model_call import closing_stream
from .settings import Budget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping

    from ..models.model import Model
    from ..models.request import Provider, Request
    from ..models.stream_events import StreamEvent
    from ..records import Document, Session
    from ..sessions import Sessions
    from .model_choice import Models

log = logging.getLogger("opensesh.engine")
BUDGET_VARIABLE = "OPENSESH_BUDGET"
"""Budget of a session where nothing else is set. It is not a key of the configuration file, which is shared with
OpenCode: that refuses a file with a key it does not know."""
_BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


def parse_amount(text: str) -> Decimal:
    """Parse an amount in US dollars. Raises :class:`~opensesh.errors.UsageError`."""
    try:
        value = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 0:
        raise UsageError(f"{text!r} is not a valid amount; write a budget like 0.50")
    return value


def budget_from_environment(environ: Mapping[str, str]) -> Budget:
    """Return the budget that the environment sets."""
    value = environ.get(BUDGET_VARIABLE, "").strip()
    return Budget(session=parse_amount(value)) if value else Budget()


# -- costs -------------------------------------------------------------------------------------------------------------


class Spent(Struct, frozen=True, kw_only=True):
    """Cost and tokens of some answers."""

    known: Decimal = Decimal(0)
    """US dollars, of the answers that have a price."""
    unpriced: tuple[str, ...] = ()
    """The models among them whose price is not known, as ``provider/model``."""
    tokens: Usage = Usage()

    @property
    def cost(self) -> Decimal | None:
        """US dollars; ``None`` if the price of some of it is not known."""
        return None if self.unpriced else self.known

    def __add__(self, other: Spent) -> Spent:
        unpriced = tuple(dict.fromkeys((*self.unpriced, *other.unpriced)))
        return Spent(known=self.known + other.known, unpriced=unpriced, tokens=self.tokens + other.tokens)


class Costs(Struct, frozen=True, kw_only=True):
    """What one session cost."""

    own: Spent
    children: Spent
    """Those of its subagents, and of theirs."""

    @property
    def total(self) -> Spent:
        """Own cost and that of the subagents."""
        return self.own + self.children


class CostReport:
    """Computes costs from stored answers, and from the records of calls that led to none (titles)."""

    def __init__(self, sessions: Sessions, models: Models) -> None:
        self._sessions = sessions
        self._models = models

    def session(self, session_id: str) -> Costs:
        """Return the costs of a session."""
        calls = CountedCalls(self._sessions.store)
        children = [self._own(child, calls) for child in self._sessions.descendants(session_id)]
        return Costs(own=self._own(self._sessions.get(session_id), calls), children=sum(children, Spent()))

    def spent(self, answers: Iterable[Document]) -> Spent:
        """Return the sum of some answers."""
        known, tokens, unpriced = Decimal(0), Usage(), dict[str, None]()
        for info in answers:
            used = used_tokens(info)
            known += Decimal(repr(as_amount(info.get("cost"))))
            tokens += used
            provider_id, model_id = str(info.get("providerID")), str(info.get("modelID"))
            try:
                price = self._models.catalogue.model(provider_id, model_id).price
            except ModelNotFoundError:
                price = None
            if used != Usage() and pricing.charge(price, used).cost is None:
                unpriced[f"{provider_id}/{model_id}"] = None
        return Spent(known=known, unpriced=tuple(unpriced), tokens=tokens)

    def before_run(self, session_id: str) -> Spent:
        """Return what counts for the budget of a session: its whole tree, since a subagent's cost is its root's."""
        ancestors = self._sessions.ancestors(session_id)
        return self.session(ancestors[-1].id if ancestors else session_id).total

    def _own(self, session: Session, calls: CountedCalls) -> Spent:
        messages = (as_object(value) for _, value in self._sessions.store.scan(("message", session.id)))
        return self.spent(calls.of_session(session.document, filter(None, messages)))


def used_tokens(info: Document) -> Usage:
    """Return the tokens of an answer."""
    tokens = object_at(info, "tokens")
    cache = object_at(tokens, "cache")
    counts: dict[str, Any] = {**tokens, "cache_read": cache.get("read"), "cache_write": cache.get("write")}
    return Usage(**{name: int(counts.get(name) or 0) for name in _BUCKETS})


# -- enforcing a budget ------------------------------------------------------------------------------------------------


class Budgets:
    """Opens the accounts of runs and subagents under one budget."""

    def __init__(self, budget: Budget, costs: CostReport) -> None:
        self._budget = budget
        self._costs = costs
        self._has_limit = budget.is_set

    @contextmanager
    def run(self, session_id: str) -> Generator[Account | None]:
        """Charge all model calls made in this context, and in tasks started in it, to one run, and yield its account. A
        run within a run is charged to the outer one and has none."""
        if not self._has_limit or _account.get() is not None:
            yield None
            return
        account = Account(self._budget, self._costs, session_id)
        with _charged_to(account):
            yield account

    @contextmanager
    def subagent(self, session_id: str) -> Generator[None]:
        """Limit what a subagent spends in this context, and charge it to the run that started it."""
        parent = _account.get()
        if parent is None or self._budget.task is None:
            yield
            return
        with _charged_to(Account(self._budget, self._costs, session_id, parent)):
            yield


class _Limit(Struct, frozen=True, kw_only=True):
    """One limit of an account, and what is spent of it."""

    scope: Literal["run", "session", "task"]
    budget: Decimal
    spent: Decimal
    reserved: Decimal
    """For requests in progress."""

    @property
    def left(self) -> Decimal:
        """US dollars that are neither spent nor reserved."""
        return self.budget - self.spent - self.reserved

    def error(self, reason: str) -> OverBudgetError:
        """Return the error for this limit."""
        return OverBudgetError(
            f"the budget of this {self.scope}, ${self.budget}, {reason}",
            scope=self.scope,
            spent=self.spent,
            budget=self.budget,
        )


def _limit_output(request: Request, tokens: int) -> Request:
    """Return the request with at most ``tokens`` for thinking and answer together, half of them for thinking."""
    thinking = {name: min(thinking_tokens(request, name), tokens // 2) for name in THINKING_OPTIONS}
    limited = {
        name: {**request.options[name], "budgetTokens": thinking[name]} for name in THINKING_OPTIONS if thinking[name]
    }
    return replace(request, max_output_tokens=tokens - max(thinking.values()), options={**request.options, **limited})


class Account:
    """What one run has spent, with its subagents; or one subagent, whose costs are its parent's too."""

    def __init__(self, budget: Budget, costs: CostReport, session_id: str, parent: Account | None = None) -> None:
        """With a ``parent``, only the budget for tasks is checked here."""
        self._budget = budget
        self._costs = costs
        self._session_id = session_id
        self._parent = parent
        self._root: Account = self if parent is None else parent._root
        self._spent = Decimal(0)
        self._reserved = Decimal(0)
        self._released = asyncio.Event()
        """Set when a request ends, and then replaced."""
        self._before: Decimal | None = None
        self._warned: set[str] = set()
        self.exceeded: OverBudgetError | None = None
        """Of a run: that its budget was exceeded, or cut an answer off."""

    @asynccontextmanager
    async def reserve(self, request: Request) -> AsyncGenerator[Request]:
        """Reserve what a request may cost, and yield it, its answer limited to what the budget pays.

        Where only the requests in progress leave too little, wait for one to end: most cost less than is reserved for
        them. Raises :class:`~opensesh.errors.OverBudgetError` if the budget does not pay the request.
        """
        await self._root._prepare(request.model)
        estimate = await run_in_thread_uncancellable(RequestEstimate.of, request)
        while True:
            limits = self._limits()
            for limit in limits:
                _check_limit(limit, estimate)
            left = min((limit.left for limit in limits), default=estimate.cost(estimate.max_output_tokens))
            if left >= estimate.least_cost:
                break
            await self._root._released.wait()
        output = estimate.affordable_output(left)
        amount = estimate.cost(output)
        self._add_reserved(amount)
        try:
            yield request if output == estimate.max_output_tokens else _limit_output(request, output)
        finally:
            self._add_reserved(-amount)
            self._root._released.set()
            self._root._released = asyncio.Event()

    def charge(self, model: Model, finished: FinishStep, *, is_limited: bool) -> None:
        """Add the cost of a request that was answered, and report if it exceeds the budget.

        ``is_limited``: whether its answer was limited to what the budget pays.
        """
        self.add_spent(pricing.charge(model.price, finished.usage).known)
        limits = self._limits()
        over = next((limit for limit in limits if limit.spent > limit.budget), None)
        if over is not None:
            error = over.error(
                f"is exceeded: ${over.spent.normalize():f} are spent. The provider counted more tokens than estimated."
            )
        elif is_limited and finished.reason == "length":
            error = min(limits, key=lambda limit: limit.left).error("does not pay a longer answer: it was cut off.")
        else:
            return
        log.warning("%s", error.message)
        self._root.exceeded = self._root.exceeded or error

    def add_spent(self, amount: Decimal) -> None:
        """Add US dollars to what this account and those above it have spent."""
        self._spent += amount
        if self._parent is not None:
            self._parent.add_spent(amount)

    async def _prepare(self, model: Model) -> None:
        """Refuse or report what has no known price, and compute what the session cost before this run."""
        rates = model.price.rates if model.price is not None else None
        if rates is None or rates.input is None or rates.output is None:
            self._report_unpriced((model.ref,))
        if self._budget.session is not None and self._before is None:
            before = await run_in_thread_uncancellable(self._costs.before_run, self._session_id)
            if before.unpriced:
                self._report_unpriced(before.unpriced)
            # Another request of this run may have been quicker, and have been charged since.
            self._before = before.known if self._before is None else self._before

    def _limits(self) -> list[_Limit]:
        """Return the limits of this account and of the run."""
        root, budget = self._root, self._budget
        limits: list[_Limit] = []
        if budget.session is not None:
            spent = (root._before or 0) + root._spent
            limits.append(_Limit(scope="session", budget=budget.session, spent=spent, reserved=root._reserved))
        if budget.run is not None:
            limits.append(_Limit(scope="run", budget=budget.run, spent=root._spent, reserved=root._reserved))
        account = self
        while account._parent is not None:
            if budget.task is not None:
                limits.append(
                    _Limit(scope="task", budget=budget.task, spent=account._spent, reserved=account._reserved)
                )
            account = account._parent
        return limits

    def _add_reserved(self, amount: Decimal) -> None:
        self._reserved += amount
        if self._parent is not None:
            self._parent._add_reserved(amount)

    def _report_unpriced(self, models: tuple[str, ...]) -> None:
        names = ", ".join(models)
        if self._budget.unpriced == "warn":
            if names not in self._warned:
                self._warned.add(names)
                log.warning("the budget cannot be enforced: the price of %s is not known", names)
            return
        limits = {"run": self._budget.run, "session": self._budget.session, "task": self._budget.task}
        scope, budget = next((scope, limit) for scope, limit in limits.items() if limit is not None)
        raise OverBudgetError(
            f"the budget of this {scope}, ${budget}, cannot be enforced: the price of {names} is not known. Nothing "
            "was sent. Set the price in the configuration (provider.<id>.models.<id>.cost), or set no budget.",
            scope=scope,
            spent=self._spent,
            budget=budget,
        )


def _check_limit(limit: _Limit, estimate: RequestEstimate) -> None:
    """Raise if the limit would not pay a request even if no other were in progress."""
    if limit.spent >= limit.budget:
        raise limit.error(
            f"is used up: ${limit.spent.normalize():f} are spent. Nothing more was sent. Raise the budget to continue."
        )
    if limit.spent + estimate.least_cost > limit.budget:
        raise limit.error(
            f"does not pay the next request: ${limit.spent.normalize():f} are spent, and about "
            f"{estimate.input_tokens:,} tokens with a short answer cost ${estimate.least_cost.normalize():f}. Nothing "
            "more was sent. Raise the budget to continue."
        )


_account: ContextVar[Account | None] = ContextVar("account", default=None)


@contextmanager
def _charged_to(account: Account) -> Generator[None]:
    token = _account.set(account)
    try:
        yield
    finally:
        _account.reset(token)


class MeteredConnections(Connections):
    """Connections whose requests are charged to the account of the run that makes them."""

    def provider(self, model: Model) -> Provider:
        """Return the provider for ``model``."""
        return _MeteredProvider(super().provider(model))


class _MeteredProvider:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Reserve what the request may cost, send it, and charge what it cost."""
        account = _account.get()
        if account is None:
            async with closing_stream(self._provider.stream(request)) as events:
                async for event in events:
                    yield event
            return
        received: int | None = None
        is_charged = False
        async with account.reserve(request) as sent, closing_stream(self._provider.stream(sent)) as events:
            try:
                async for event in events:
                    received = received or 0
                    if isinstance(event, FinishStep):
                        account.charge(request.model, event, is_limited=sent is not request)
                        is_charged = True
                    elif isinstance(event, TextDelta | ToolInputDelta):
                        received += len(event.text)
                    yield event
            finally:
                if received is not None and not is_charged:  # it broke off, and the provider charges it nevertheless
                    account.add_spent(RequestEstimate.of(sent).cost(estimate_length(received)))
