"""Agents and models by name, and the ones to use where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..config import agents as configured_agents
from ..config import default_agent, evaluate
from ..errors import NotFoundError
from ..models import choice, options
from ..records import EXTENSION_KEY, object_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..config import Agent, Config
    from ..models.auth import Keyring
    from ..models.catalogue import Catalogue
    from ..models.connect import Connections
    from ..models.model import Model
    from ..records import Document, ModelRef, Rule


class Agents:
    """The agents of one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.by_name: dict[str, Agent] = configured_agents(config)
        sections = config.settings.agent.items()
        self._keys = {section.name: key for key, section in sections if section.name and key in self.by_name}
        """Agents that have another name in their section. Under that name OpenCode stores their messages."""

    def get(self, name: object = None) -> Agent:
        """Return an agent by name, or the default one. Raises :class:`~opensesh.errors.NotFoundError`.

        The name may come from a record: one that is not text counts as none.
        """
        if not isinstance(name, str):
            return default_agent(self._config, self.by_name)
        name = name if name in self.by_name else self._keys.get(name, name)
        if name not in self.by_name:
            shown = ", ".join(agent.name for agent in self.by_name.values() if not agent.hidden)
            raise NotFoundError(f"there is no agent {name!r}; the agents are: {shown}", agent=name)
        return self.by_name[name]


def subagents(agents: Iterable[Agent], rules: Sequence[Rule] = ()) -> list[Agent]:
    """Return the agents that the task tool can start under these rules."""
    return [
        agent
        for agent in agents
        if agent.mode != "primary" and not agent.hidden and evaluate("task", agent.name, tuple(rules)) != "deny"
    ]


class Models(NamedTuple):
    """The models of one configuration, and the connections to their providers."""

    config: Config
    catalogue: Catalogue
    keyring: Keyring
    connections: Connections

    def of_prompt(self, prompt: Document) -> Model:
        """Return the model that a stored prompt asks for."""
        model = object_at(prompt, "model")
        return self.catalogue.model(str(model.get("providerID", "")), str(model.get("modelID", "")))

    def of_session(self, session: Document) -> Model | None:
        """Return the model that a client chose when it created the session, if it did."""
        model = object_at(session, "model") or object_at(session, EXTENSION_KEY, "model")
        return self.catalogue.model(str(model.get("providerID", "")), str(model.get("id", ""))) if model else None

    def of_reference(self, reference: ModelRef) -> Model:
        """Return the model that an agent or a record names."""
        return self.catalogue.model(reference.provider_id, reference.model_id)

    def default(self) -> Model:
        """Return the model for prompts that name none."""
        return choice.default_model(self.catalogue, self.keyring, self.config.document, choice.recent_models())

    def small(self, agent: Agent, main: Model) -> Model:
        """Return a fast, cheap model for side work of ``main``: the agent's, the configured one, one of the same
        provider, or ``main`` itself."""
        if agent.model is not None:
            return self.of_reference(agent.model)
        small = choice.small_model(self.catalogue, self.keyring, self.config.document, main.provider_id)
        # What was said to one provider is not sent to another unless the user configured it.
        may_leave = self.config.settings.small_model
        return small if small is not None and (may_leave or small.provider_id == main.provider_id) else main

    def call_options(self, model: Model, session_id: str) -> options.Options:
        """Return the options of an ordinary call."""
        section = self.config.settings.provider.get(model.provider_id)
        return options.options(model, session_id, section.options if section is not None else {})

    def max_output_tokens(self, model: Model) -> int:
        """Return the output limit for requests to ``model``."""
        return options.max_output_tokens(model, self.config.flags.output_token_max)
