"""Run a server for shared sessions: OpenCode's share protocol, and a page for each session.

To share sessions on it, set {"enterprise": {"url": "http://127.0.0.1:4097"}} in the configuration of opensesh or
OpenCode. Other machines can connect only with --allow-remote. In that case, put a proxy with TLS in front of it, give
its public address with --url, and the address it connects from with --trusted-proxy. Every client that can connect can
store sessions.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from ..sharing.share_server import PORT, ShareServerOptions, default_folder, serve
from . import output
from .command_arguments import CommandParser, port


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=PORT, metavar="N", help=f"port (default: {PORT}; 0 = any)")
    parser.add_argument("--data", metavar="DIR", help="folder for shares (default: opensesh/shares in the data folder)")
    parser.add_argument("--url", default="", metavar="URL", help="public address, with which links begin")
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a proxy whose X-Forwarded-For header identifies clients; repeatable",
    )
    parser.add_argument("--allow-remote", action="store_true", help="allow connections from other machines")


def run(options: Namespace) -> int:
    """Serve until interrupted."""
    folder = os.path.abspath(os.path.expanduser(options.data)) if options.data else default_folder()
    proxies = tuple(options.trusted_proxy)
    server_options = ShareServerOptions(
        folder, options.host, options.port, options.url, remote=options.allow_remote, proxies=proxies
    )

    def announce(url: str) -> None:
        if options.json:
            output.print_json({"url": url, "data": folder})
            return
        print(url, flush=True)
        config = f'{{"enterprise": {{"url": "{url}"}}}}'
        print(f"Shares are stored in {folder}. To share sessions here, configure {config}", file=sys.stderr)

    serve(server_options, announce)
    return 0
