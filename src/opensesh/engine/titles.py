"""A title for a session that nobody has named: at once from its first prompt, then by the small model.

The first is provisional. The record remembers it, so that the model's title takes its place, and so that a title that
anybody else gave in the meantime, in whichever program, does not. Whatever goes wrong with it harms nothing; what the
call cost is noted with the prompt.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

from .. import ids
from ..errors import OpenseshError, OverBudgetError
from ..events import MessageUpdated
from ..models import options, pricing
from ..models.request import Request, System, Text, User
from ..models.stream_events import FinishStep, TextDelta
from ..records import EXTENSION_KEY, as_list, as_object, document_of, merged
from ..storage import keys
from .turn import closed_after

if TYPE_CHECKING:
    from ..config import Agent
    from ..models.model import Model
    from ..models.stream_events import Usage
    from ..records import Document, Session
    from ..storage.protocol import StoredMessage
    from .components import Runtime
    from .session_history import History

log = logging.getLogger("opensesh.engine")
_THOUGHT = r"(?s)<think>.*?</think>\s*"
_ASK = "Write a title for the conversation that begins like this:\n\n"
_ORNAMENT = r"^[\s#>*\-`_]+|[\s*`_]+$"
_LONGEST = 50


def wants_title(session: Session, history: History) -> bool:
    """Whether this is the first real prompt of a root session that still has its default title."""
    if session.parent_id is not None or not session.has_default_title:
        return False
    return sum(message.info.get("role") == "user" and bool(_subject(message)) for message in history) == 1


def is_provisional(session: Session) -> bool:
    """Whether the title is still the one that was made from the first prompt."""
    ours = as_object(session.document.get(EXTENSION_KEY)) or {}
    return bool(session.title) and ours.get("title") == session.title


def provisional_title(prompt: StoredMessage) -> str:
    """What a prompt is about, as far as its first words tell: a line, cut between words."""
    lines = (re.sub(_ORNAMENT, "", line) for line in _subject(prompt).splitlines())
    line = " ".join(next((line for line in lines if line), "").split())
    if len(line) <= _LONGEST:
        return line
    cut = line[: _LONGEST + 1].rfind(" ")
    # Some languages have no spaces between words, and some words no end.
    return f"{line[: cut if cut > _LONGEST // 2 else _LONGEST].rstrip(' ,;:.')}…"


def _subject(message: StoredMessage) -> str:
    """What the user typed; or what they ordered, or attached, without a word."""
    said = prompt_text(message)
    for kind, field in (("subtask", "prompt"), ("file", "filename")):
        said = said or ", ".join(str(part.get(field) or "") for part in message.parts if part.get("type") == kind)
    return said


def prompt_text(message: StoredMessage) -> str:
    """What the user typed, without what the program added."""
    texts = [part for part in message.parts if part.get("type") == "text" and not part.get("synthetic")]
    return "\n".join(str(part.get("text", "")) for part in texts).strip()


def as_title(text: str) -> str:
    """A model's answer as a title: its first line, not too long."""
    lines = [line.strip() for line in re.sub(_THOUGHT, "", text).splitlines()]
    title = next((line for line in lines if line), "")
    return f"{title[:97]}..." if len(title) > 100 else title


async def give_title(runtime: Runtime, session: Session, prompt: StoredMessage) -> None:
    """Name a session after its first prompt, and have the small model do better if it may; unless somebody names the
    session meanwhile."""
    try:
        await _rename(runtime, session.id, provisional_title(prompt), provisional=True)
        agent = runtime.agents.get("title")
        if agent is not None:
            await _rename(runtime, session.id, await _ask(runtime, agent, prompt), provisional=False)
    except OverBudgetError as error:
        log.info("no title for %s: %s", session.id, error)  # the prompt itself comes to the same end, and says so
    except OpenseshError as error:
        log.warning("no title for %s: %s", session.id, error)
    except Exception:
        log.exception("no title for %s", session.id)


async def _rename(runtime: Runtime, session_id: str, title: str, *, provisional: bool) -> None:
    session = await runtime.session(session_id)
    if not title or not (session.has_default_title or is_provisional(session)):
        return

    def change(info: Document) -> None:
        if info.get("title") != session.title:
            return  # somebody was quicker
        ours = {key: value for key, value in (as_object(info.pop(EXTENSION_KEY, None)) or {}).items() if key != "title"}
        ours |= {"title": title} if provisional else {}
        info.update({"title": title} | ({EXTENSION_KEY: ours} if ours else {}))

    await runtime.edit(session_id, change, touch=False)


async def _ask(runtime: Runtime, agent: Agent, prompt: StoredMessage) -> str:
    main = runtime.model_of(prompt.info)
    model = await runtime.hooks.small_model(prompt.info["sessionID"], agent, main)
    request = Request(
        model=model,
        messages=(System(text=agent.prompt or ""), User(content=(Text(text=_ASK + _subject(prompt)[:4000]),))),
        max_output_tokens=options.max_output_tokens(model, runtime.config.flags.output_token_max),
        temperature=agent.temperature if model.capabilities.temperature else None,
        options=merged(options.small_options(model), model.options, agent.options),
        headers=model.headers,
    )
    request = await runtime.hooks.side_request(prompt.info, agent.name, "title", request)
    begun = ids.now_ms()
    texts: list[str] = []
    async with closed_after(runtime.connections.provider(model).stream(request)) as events:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    texts.append(text)
                case FinishStep(usage=usage):
                    await asyncio.to_thread(_note_cost, runtime, prompt.info, model, usage, begun)
                case _:
                    pass
    return as_title("".join(texts))


def _note_cost(runtime: Runtime, prompt: Document, model: Model, usage: Usage, begun: int) -> None:
    """A call that led to no answer is noted with the prompt that it was made for."""
    call: Document = {
        "agent": "title",
        "providerID": model.provider_id,
        "modelID": model.id,
        "time": {"created": begun, "completed": ids.now_ms()},
        "cost": pricing.charge(model.price, usage).stored,
        "tokens": document_of(pricing.tokens(usage)),
    }

    def edit(info: Document) -> None:
        ours = as_object(info.get(EXTENSION_KEY)) or {}
        info[EXTENSION_KEY] = ours | {"calls": [*(as_list(ours.get("calls")) or ()), call]}

    info = runtime.sessions.store.update(keys.message(prompt["sessionID"], prompt["id"]), edit)
    runtime.publish(MessageUpdated(info=info))
