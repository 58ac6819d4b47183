"""A title for a session that nobody has named, by the small model. Whatever goes wrong with it harms nothing."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from ..errors import OpenseshError
from ..models import options
from ..models.events import TextDelta
from ..models.request import Request, System, Text, User
from .turn import closed_after

if TYPE_CHECKING:
    from ..records import Session
    from ..storage.store import StoredMessage
    from .history import History
    from .runtime import Runtime

log = logging.getLogger("opensesh.engine")
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_ASK = "Write a title for the conversation that begins like this:\n\n"


def wants_title(session: Session, history: History) -> bool:
    """Whether this is the first real prompt of a root session that still has its default title."""
    if session.parent_id is not None or not session.has_default_title:
        return False
    return sum(message.info.get("role") == "user" and bool(prompt_text(message)) for message in history) == 1


def prompt_text(message: StoredMessage) -> str:
    """What the user typed, without what the program added."""
    texts = [part for part in message.parts if part.get("type") == "text" and not part.get("synthetic")]
    return "\n".join(str(part.get("text", "")) for part in texts).strip()


def as_title(text: str) -> str:
    """A model's answer as a title: its first line, not too long."""
    lines = [line.strip() for line in _THOUGHT.sub("", text).splitlines()]
    title = next((line for line in lines if line), "")
    return f"{title[:97]}..." if len(title) > 100 else title


async def give_title(runtime: Runtime, session: Session, prompt: StoredMessage) -> None:
    """Ask for a title and store it, unless somebody named the session meanwhile."""
    try:
        title = await _ask(runtime, prompt)
        if title and (await runtime.session(session.id)).has_default_title:
            await runtime.rename(session.id, title)
    except OpenseshError as error:
        log.warning("no title for %s: %s", session.id, error)
    except Exception:
        log.exception("no title for %s", session.id)


async def _ask(runtime: Runtime, prompt: StoredMessage) -> str:
    agent = runtime.agent("title")
    main = runtime.model_of(prompt.info)
    model = runtime.small_model(agent, main)
    text = prompt_text(prompt) or " ".join(str(part.get("prompt", "")) for part in prompt.parts)
    request = Request(
        model=model,
        messages=(System(text=agent.prompt or ""), User(content=(Text(text=_ASK + text[:4000]),))),
        max_output_tokens=options.max_output_tokens(model),
        temperature=agent.temperature if model.capabilities.temperature else None,
        options=options.merged(options.small_options(model), model.options, agent.options),
        headers=model.headers,
    )
    async with closed_after(runtime.connections.provider(model).stream(request)) as events:
        return as_title("".join([event.text async for event in events if isinstance(event, TextDelta)]))
