"""Open the web pages in a browser: sessions, search, costs, and running sessions.

If a server of the store runs ('opensesh web' or 'opensesh serve' in another terminal), its pages are opened. If not, a
server is started on 127.0.0.1 and runs until it is interrupted. The address has a code that signs in one browser, once,
within two minutes; the command prints a new one each time.

Over SSH, forward the port from your own machine and open the address there:

  ssh -L 4096:127.0.0.1:4096 HOST
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from ..tools.browser import open_browser
from . import output
from .command_arguments import CommandParser, port
from .logfile import show_warnings

if TYPE_CHECKING:
    from ..server.web.browsers import Browsers


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="port (default: 4096, or a free one if that is taken)"
    )
    parser.add_argument("--no-open", action="store_true", help="print the address, and open no browser")


def run(options: Namespace) -> int:
    """Open the pages of a running server, or serve until interrupted."""
    from ..server.http_server import serve
    from ..server.state import ServerOptions
    from ..server.web.server_file import request_ticket

    running = request_ticket(options.store)
    if running is not None:
        url, ticket = running
        if options.port and url.rpartition(":")[2] != str(options.port):
            print(f"! a server of this store runs at {url}; --port has no effect", file=sys.stderr)
        _announce(options, url, ticket, is_started=False)
        return 0
    # Without a password, every program and every page of another local port could use the API.
    generated = secrets.token_urlsafe(18)
    server_options = ServerOptions(
        port=options.port,
        password=os.environ.get("OPENCODE_SERVER_PASSWORD") or generated,
        username=os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode",
        store=options.store,
        directory=os.getcwd(),
    )

    def on_ready(url: str, browsers: Browsers) -> None:
        _announce(options, url, browsers.issue_ticket(), is_started=True)
        if not options.json:
            if server_options.password == generated:
                print(f"For OpenCode: OPENCODE_SERVER_PASSWORD={generated} opencode attach {url}", file=sys.stderr)
            print("Ctrl-C stops the server.", file=sys.stderr)

    with show_warnings():
        serve(server_options, on_ready)
    return 0


def _announce(options: Namespace, url: str, ticket: str, *, is_started: bool) -> None:
    address = f"{url}/ui/enter#{ticket}"
    is_opened = not options.no_open and _open_browser(address)
    if options.json:
        output.print_json({"url": f"{url}/ui/", "enter": address, "opened": is_opened, "started": is_started})
        return
    print(address, flush=True)
    hint = "The address signs in one browser, within two minutes."
    if not is_opened:
        port = url.rpartition(":")[2]
        hint += f" From another machine, first run: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
    print(hint, file=sys.stderr)


def _open_browser(address: str) -> bool:
    """Open an address; return whether a browser was started.

    Programs can read each other's arguments, so that the browser gets the name of a file that leads to the address.
    """
    from ..server.web.server_file import write_redirect

    return open_browser(f"file://{write_redirect(address)}")
