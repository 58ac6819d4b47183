"""List the providers whose keys or logins OpenCode keeps, store an API key, or remove one.

They are kept in auth.json of OpenCode's data folder, which only its owner can read, and both programs use them. A key
is read from the terminal without being shown, or from standard input; it is never printed.
"""

from __future__ import annotations

import getpass
import sys
from argparse import Namespace

from ..errors import UsageError
from ..models.auth import store_entry, stored_types
from . import output
from .command_arguments import CommandParser
from .terminal import escape_control


def configure(parser: CommandParser) -> None:
    """Declare the actions and their arguments."""
    parser.add_action("list", "list the providers with a stored key or login")
    for action, summary in (("login", "store the API key of a provider"), ("logout", "remove what is stored")):
        leaf = parser.add_action(action, summary)
        leaf.add_argument("provider", metavar="PROVIDER", help="its id, as in 'opensesh models'")


def run(options: Namespace) -> int:
    """Run the action."""
    types = stored_types()
    if options.action == "list":
        if options.json:
            output.print_json({"providers": [{"provider": name, "type": kind} for name, kind in types.items()]})
        elif types:
            output.table(("PROVIDER", "TYPE"), [(escape_control(name), kind) for name, kind in types.items()])
        else:
            print("No keys or logins are stored.")
        return 0
    is_login = options.action == "login"
    store_entry(options.provider, {"type": "api", "key": _read_key(options.provider)} if is_login else None)
    changed = is_login or options.provider in types
    if options.json:
        output.print_json({"provider": options.provider, "stored" if is_login else "removed": changed})
    else:
        name = escape_control(options.provider)
        done = f"The key of {name} is stored." if is_login else f"Logged out of {name}."
        print(done if changed else f"Nothing is stored for {name}.")
    return 0


def _read_key(provider: str) -> str:
    key = getpass.getpass(f"API key of {escape_control(provider)}: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not key.strip():
        raise UsageError("there is no key; type it, or send it to standard input")
    return key.strip()
