"""Titles of sessions: first from the first prompt, then from the small model.

The first title is provisional. The record remembers it, so that the model's title replaces it, and so that a title that
the user or another program set in the meantime is kept. An error only means that the session keeps this title; the cost
of the call is recorded with the prompt.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from .. import ids
from ..errors import OpenseshError, OverBudgetError
from ..events import MessageUpdated
from ..models import options
from ..models.request import Request, System, Text, User
from ..records import EXTENSION_KEY, as_object, merged, object_at
from ..storage import keys
from .call_costs import add_side_call, call_record
from .cancellation import run_in_thread_uncancellable
from .model_call import read_text

if TYPE_CHECKING:
    from ..config import Agent
    from ..models.stream_events import FinishStep
    from ..records import Document, Session
    from ..storage.protocol import StoredMessage
    from .model_choice import Agents, Models
    from .plugin_hooks import PluginHooks
    from .session_history import History
    from .session_writer import SessionWriter

log = logging.getLogger("opensesh.engine")
_REQUEST = "Write a title for the conversation that begins like this:\n\n"
_THINKING = r"(?s)<think>.*?</think>\s*"
_MARKDOWN = r"^[\s#>*\-`_]+|[\s*`_]+$"
_MAX_PROVISIONAL = 50
_MAX_TITLE = 100


class TitleWriter(NamedTuple):
    """Writes the titles of an engine's sessions."""

    writer: SessionWriter
    agents: Agents
    models: Models
    hooks: PluginHooks
    provisional: bool = True
    """Whether to set a title from the prompt until the model has written one."""

    async def write(self, session: Session, prompt: StoredMessage) -> None:
        """Set the title from the first prompt, then the small model's. A title that is set meanwhile stays."""
        try:
            if self.provisional:
                await self._rename(session.id, provisional_title(prompt), provisional=True)
            agent = self.agents.by_name.get("title")
            if agent is not None:
                await self._rename(session.id, await self._ask(agent, prompt), provisional=False)
        except OverBudgetError as error:
            log.info("no title for %s: %s", session.id, error)  # the prompt itself fails with the same error
        except OpenseshError as error:
            log.warning("no title for %s: %s", session.id, error)
        except Exception:
            log.exception("no title for %s", session.id)

    async def _rename(self, session_id: str, title: str, *, provisional: bool) -> None:
        session = await self.writer.get(session_id)
        if not title or not (session.has_default_title or is_provisional(session)):
            return

        def change(info: Document) -> None:
            if info.get("title") != session.title:
                return  # it was set meanwhile
            extension = as_object(info.pop(EXTENSION_KEY, None)) or {}
            extension = {key: value for key, value in extension.items() if key != "title"}
            extension |= {"title": title} if provisional else {}
            info.update({"title": title} | ({EXTENSION_KEY: extension} if extension else {}))

        await self.writer.edit(session_id, change, touch=False)

    async def _ask(self, agent: Agent, prompt: StoredMessage) -> str:
        main = self.models.of_prompt(prompt.info)
        model = await self.hooks.small_model(prompt.info["sessionID"], agent, main)
        text = _REQUEST + _subject(prompt)[:4000]
        request = Request(
            model=model,
            messages=(System(text=agent.prompt or ""), User(content=(Text(text=text),))),
            max_output_tokens=self.models.max_output_tokens(model),
            temperature=agent.temperature if model.capabilities.temperature else None,
            options=merged(options.small_options(model), model.options, agent.options),
            headers=model.headers,
        )
        request = await self.hooks.side_request(prompt.info, agent.name, "title", request)
        started = ids.now_ms()

        async def record_cost(event: FinishStep) -> None:
            # With the prompt, since there is no answer to record it with.
            edit = partial(add_side_call, call=call_record("title", model, event.usage, started))
            key = keys.message(prompt.info["sessionID"], prompt.info["id"])
            info = await run_in_thread_uncancellable(self.writer.sessions.store.update, key, edit)
            self.writer.publish(MessageUpdated(info=info))

        answer = await read_text(self.models.connections.provider(model), request, record_cost)
        lines = [line.strip() for line in re.sub(_THINKING, "", answer).splitlines()]
        title = next((line for line in lines if line), "")
        return f"{title[: _MAX_TITLE - 3]}..." if len(title) > _MAX_TITLE else title


def needs_title(session: Session, history: History) -> bool:
    """Whether this is the first real prompt of a root session that has its default title."""
    if session.parent_id is not None or not session.has_default_title:
        return False
    return sum(message.info.get("role") == "user" and bool(_subject(message)) for message in history.messages) == 1


def is_provisional(session: Session) -> bool:
    """Whether the title is the one made from the first prompt."""
    extension = object_at(session.document, EXTENSION_KEY)
    return bool(session.title) and extension.get("title") == session.title


def provisional_title(prompt: StoredMessage) -> str:
    """Return a title from the first line of a prompt, cut between words."""
    lines = (re.sub(_MARKDOWN, "", line) for line in _subject(prompt).splitlines())
    line = " ".join(next((line for line in lines if line), "").split())
    if len(line) <= _MAX_PROVISIONAL:
        return line
    cut = line[: _MAX_PROVISIONAL + 1].rfind(" ")
    # Some languages have no spaces between words, and some words are long.
    return f"{line[: cut if cut > _MAX_PROVISIONAL // 2 else _MAX_PROVISIONAL].rstrip(' ,;:.')}…"


def _subject(message: StoredMessage) -> str:
    """Return what the user typed; or else the prompt of a subtask, or the name of an attached file."""
    texts = [part for part in message.parts if part.get("type") == "text" and not part.get("synthetic")]
    subject = "\n".join(str(part.get("text", "")) for part in texts).strip()
    for kind, field in (("subtask", "prompt"), ("file", "filename")):
        subject = subject or ", ".join(str(part.get(field) or "") for part in message.parts if part.get("type") == kind)
    return subject
