"""The settings of a configuration file.

The field names are OpenCode's. Settings of its terminal interface, and those newer than 1.1.65, are accepted as they
are. ``None`` always means not set.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

Action = Literal["allow", "deny", "ask"]
Permission: TypeAlias = Action | dict[str, Action | dict[str, Action]]
"""One action for everything, an action for each permission, or patterns with an action each. The order in the file is
the order of the rules."""
Anything: TypeAlias = dict[str, Any]
Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Color = Annotated[str, Meta(pattern="^(#[0-9a-fA-F]{6}|primary|secondary|accent|success|warning|error|info)$")]


class Section(Struct, frozen=True, kw_only=True):
    """A section of the configuration. Unknown keys stay in the plain document only."""


class AgentConfig(Section, frozen=True, kw_only=True):
    """``agent.<name>``. Keys that are not here are options for the provider."""

    name: str | None = None
    description: str | None = None
    mode: Literal["subagent", "primary", "all"] | None = None
    model: str | None = None
    variant: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    steps: Positive | None = None
    max_steps: Positive | None = field(default=None, name="maxSteps")
    """The former name of ``steps``."""
    permission: Permission | None = None
    tools: dict[str, bool] | None = None
    """The former ``permission``."""
    options: Anything = {}
    color: Color | None = None
    hidden: bool | None = None
    disable: bool | None = None


class CommandConfig(Section, frozen=True, kw_only=True):
    """``command.<name>``."""

    template: str
    name: str | None = None
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    subtask: bool | None = None


class SkillsConfig(Section, frozen=True, kw_only=True):
    """``skills``: additional sources of skills."""

    paths: list[str] = []
    urls: list[str] = []


class CompactionConfig(Section, frozen=True, kw_only=True):
    """``compaction``: what happens when the context is full."""

    auto: bool = True
    prune: bool = True
    reserved: Count | None = None
    tail_turns: Count | None = None
    preserve_recent_tokens: Count | None = None


class CostConfig(Section, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    context_over_200k: CostConfig | None = None
    tiers: list[Anything] | None = None


class LimitConfig(Section, frozen=True, kw_only=True):
    """Tokens."""

    context: int
    output: int
    input: int | None = None


Modality = Literal["text", "audio", "image", "video", "pdf"]


class ModalitiesConfig(Section, frozen=True, kw_only=True):
    """Input and output modalities of a model."""

    input: list[Modality] = []
    output: list[Modality] = []


class ModelProviderConfig(Section, frozen=True, kw_only=True):
    """Another API for one model of a provider."""

    npm: str | None = None
    api: str | None = None


class ModelConfig(Section, frozen=True, kw_only=True):
    """``provider.<id>.models.<id>``."""

    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    attachment: bool | None = None
    reasoning: bool | None = None
    reasoning_options: list[Anything] | None = None
    temperature: bool | None = None
    tool_call: bool | None = None
    interleaved: bool | str | Anything | None = None
    cost: CostConfig | None = None
    limit: LimitConfig | None = None
    modalities: ModalitiesConfig | None = None
    experimental: bool | Anything | None = None
    status: Literal["active", "alpha", "beta", "deprecated"] | None = None
    options: Anything = {}
    headers: dict[str, str] = {}
    provider: ModelProviderConfig | None = None
    variants: dict[str, Anything] = {}


class ProviderConfig(Section, frozen=True, kw_only=True):
    """``provider.<id>``."""

    id: str | None = None
    name: str | None = None
    npm: str | None = None
    api: str | None = None
    env: list[str] | None = None
    models: dict[str, ModelConfig] = {}
    whitelist: list[str] | None = None
    blacklist: list[str] | None = None
    options: Anything = {}


class McpOAuthConfig(Section, frozen=True, kw_only=True, rename="camel"):
    """``mcp.<name>.oauth``."""

    client_id: str | None = None
    """The id of the client. Without one, a client is registered with the authorization server."""
    client_secret: str | None = None
    scope: str | None = None
    callback_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    redirect_uri: str | None = None

    def __repr__(self) -> str:
        return f"McpOAuthConfig(client_id={self.client_id!r}, ...)"


class McpConfig(Section, frozen=True, kw_only=True):
    """``mcp.<name>``; ``enabled`` alone disables a server that another file defines."""

    type: Literal["local", "remote"] | None = None
    enabled: bool = True
    timeout: Positive | None = None
    command: list[str] | None = None
    cwd: str | None = None
    environment: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    oauth: bool | McpOAuthConfig | None = None
    """``false``: no login is made or sent."""

    @property
    def is_remote(self) -> bool:
        """Whether the server is an address rather than a program."""
        return self.type == "remote" or (self.type is None and bool(self.url))

    @property
    def uses_oauth(self) -> bool:
        """Whether a login to the server can be made. One that the configuration gives a token needs none."""
        has_token = any(header.lower() == "authorization" for header in self.headers)
        return self.is_remote and self.oauth is not False and not has_token


class ExperimentalConfig(Section, frozen=True, kw_only=True):
    """``experimental``."""

    disable_paste_summary: bool | None = None
    batch_tool: bool = False
    open_telemetry: bool = field(default=False, name="openTelemetry")
    primary_tools: list[str] = []
    """Tools that subagents do not have."""
    continue_loop_on_deny: bool = False
    mcp_timeout: Positive | None = None
    policies: list[Anything] | None = None


class WatcherConfig(Section, frozen=True, kw_only=True):
    """``watcher``."""

    ignore: list[str] = []


class EnterpriseConfig(Section, frozen=True, kw_only=True):
    """``enterprise``."""

    url: str | None = None


class ToolOutputConfig(Section, frozen=True, kw_only=True):
    """``tool_output``: how much of a tool's output is included in requests."""

    max_lines: Positive | None = None
    max_bytes: Positive | None = None


class SandboxConfig(Section, frozen=True, kw_only=True):
    """``opensesh.sandbox``: whether the kernel confines the commands of the ``bash`` tool."""

    enabled: bool = False
    network: bool = True
    writable: list[str] = []
    """Folders that may be changed, besides the project and the folder for temporary files."""


class OwnConfig(Section, frozen=True, kw_only=True):
    """``opensesh``: settings that OpenCode does not have."""

    sandbox: SandboxConfig = SandboxConfig()


class ConfigSettings(Section, frozen=True, kw_only=True):
    """A whole configuration file, or all of them merged."""

    schema: str | None = field(default=None, name="$schema")
    model: str | None = None
    """``provider/model``."""
    small_model: str | None = None
    default_agent: str | None = None
    username: str | None = None
    agent: dict[str, AgentConfig] = {}
    mode: dict[str, AgentConfig] = {}
    """The former name of ``agent``."""
    command: dict[str, CommandConfig] = {}
    skills: SkillsConfig = SkillsConfig()
    instructions: list[str] = []
    permission: Permission | None = None
    tools: dict[str, bool] = {}
    provider: dict[str, ProviderConfig] = {}
    disabled_providers: list[str] = []
    enabled_providers: list[str] | None = None
    mcp: dict[str, McpConfig] = {}
    compaction: CompactionConfig = CompactionConfig()
    snapshot: bool | None = None
    share: Literal["manual", "auto", "disabled"] | None = None
    autoshare: bool | None = None
    """The former name of ``share``."""
    experimental: ExperimentalConfig = ExperimentalConfig()
    watcher: WatcherConfig = WatcherConfig()
    enterprise: EnterpriseConfig = EnterpriseConfig()
    formatter: bool | Anything | None = None
    lsp: bool | Anything | None = None
    plugin: list[str | list[Any]] = []
    log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] | None = field(default=None, name="logLevel")
    autoupdate: bool | Literal["notify"] | None = None
    server: Anything = {}
    theme: str | None = None
    keybinds: Anything = {}
    tui: Anything = {}
    layout: str | None = None
    # Newer than 1.1.65.
    shell: str | None = None
    subagent_depth: Count | None = None
    tool_output: ToolOutputConfig = ToolOutputConfig()
    attachment: Anything = {}
    reference: Anything = {}
    references: Anything = {}
    policies: list[Any] | Anything | None = None
    # Settings that OpenCode does not have.
    opensesh: OwnConfig = OwnConfig()
