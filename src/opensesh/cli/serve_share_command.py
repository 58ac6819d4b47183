"""Serve shared sessions: OpenCode's share protocol, and a page to read for each session.

Name it in the configuration of whoever shares, opensesh or OpenCode: {"enterprise": {"url": "http://127.0.0.1:4097"}}.
Others than this machine reach it only with --allow-remote; then put a server with TLS in front of it, and give the
address that people use with --url, and the one that server asks from with --trusted-proxy. Whoever can reach it can
store sessions on it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import UsageError
from .arguments import count

if TYPE_CHECKING:
    from argparse import Namespace

    from .arguments import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="the address to listen at (127.0.0.1)")
    parser.add_argument("--port", type=count, default=4097, metavar="N", help="the port, 0 for any (4097)")
    parser.add_argument("--data", metavar="DIR", help="where shares are kept (the data folder, opensesh/shares)")
    parser.add_argument("--url", default="", metavar="URL", help="the address that links begin with")
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a server in front of this one, or a network of them: count its clients by its X-Forwarded-For",
    )
    parser.add_argument("--allow-remote", action="store_true", help="let others than this machine in")


def run(options: Namespace) -> int:
    """Serve until interrupted."""
    from ..sharing.share_server import ShareServerOptions, default_folder, serve

    if options.port > 65535:
        raise UsageError(f"{options.port} is no port")
    folder = os.path.abspath(os.path.expanduser(options.data)) if options.data else default_folder()
    proxies = tuple(options.trusted_proxy)
    how = ShareServerOptions(
        folder, options.host, options.port, options.url, remote=options.allow_remote, proxies=proxies
    )
    serve(how, lambda url: _tell(url, folder, options))
    return 0


def _tell(url: str, folder: str, options: Namespace) -> None:
    if options.json:
        from . import output

        output.print_json({"url": url, "data": folder})
        return
    print(url, flush=True)
    print(f'Shares are kept in {folder}. To share there: {{"enterprise": {{"url": "{url}"}}}}', file=sys.stderr)
