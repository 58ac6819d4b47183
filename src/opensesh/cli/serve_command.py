"""Run a server with OpenCode's HTTP API, for OpenCode's own clients and for scripts.

'opencode attach URL' and 'opencode run --attach URL' connect to it, and so do OpenCode's SDKs. The server listens on
127.0.0.1 only; for another address it needs a password, from --password or OPENCODE_SERVER_PASSWORD. Clients of the
server can execute commands with your rights. 'opensesh web' opens its web pages in a browser.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from .command_arguments import CommandParser, port
from .logfile import show_warnings

if TYPE_CHECKING:
    from ..server.web.browsers import Browsers


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--hostname", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="port (default: 4096, or a free one if that is taken)"
    )
    parser.add_argument(
        "--password",
        nargs="?",
        const="auto",
        metavar="WORD",
        help="password of clients; 'auto', or no word, generates one and prints it "
        "(default: $OPENCODE_SERVER_PASSWORD, or none)",
    )
    parser.add_argument(
        "--cors", action="append", default=[], metavar="ORIGIN", help="origin of web pages that may connect; repeatable"
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="HOST",
        help="further name of this server, such as that of a reverse proxy; repeatable",
    )
    parser.add_argument("--web-ui", metavar="FOLDER", help="serve a built copy of OpenCode's web interface")


def run(options: Namespace) -> int:
    """Serve until interrupted."""
    from ..server.http_server import serve
    from ..server.state import ServerOptions

    password = options.password or os.environ.get("OPENCODE_SERVER_PASSWORD", "")
    is_generated = options.password == "auto"  # noqa: S105
    if is_generated:
        import secrets

        password = secrets.token_urlsafe(18)
    server_options = ServerOptions(
        hostname=options.hostname,
        port=options.port,
        password=password,
        username=os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode",
        cors=tuple(options.cors),
        allowed_hosts=tuple(options.allowed_host),
        store=options.store,
        web_ui=options.web_ui,
        directory=os.getcwd(),
    )

    def announce(url: str, _browsers: Browsers) -> None:
        if is_generated:
            print(f"user {server_options.username}, password {password}", file=sys.stderr)
        elif not password:
            print("! no password is set; every program on this machine can use the server", file=sys.stderr)
        print("'opensesh web' in another terminal opens the web pages of this server", file=sys.stderr)
        # The SDKs of OpenCode wait for this line.
        print(f"opencode server listening on {url}", flush=True)

    with show_warnings():
        serve(server_options, announce)
    return 0
