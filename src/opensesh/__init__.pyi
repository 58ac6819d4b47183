from . import errors, events, plugins
from .engine.components import Settings
from .engine.engine import Engine
from .engine.engine import open_engine as open  # noqa: A004
from .engine.loop import Outcome
from .engine.prompt import Prompt
from .errors import OpenseshError
from .tools.custom import tool

__all__ = [
    "Engine",
    "OpenseshError",
    "Outcome",
    "Prompt",
    "Settings",
    "__version__",
    "errors",
    "events",
    "open",
    "plugins",
    "tool",
]

__version__: str
