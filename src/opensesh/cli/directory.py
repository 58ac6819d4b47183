"""Which directory a command is about: this one, or the one that ``--dir`` names."""

from __future__ import annotations

import os

from ..errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from ..project import ProjectLocation
    from .arguments import Parser


def declare(parser: Parser) -> None:
    """Declare the option."""
    parser.add_argument("--dir", metavar="D", help="for this directory (default: here)")


def place_of(options: Namespace) -> ProjectLocation:
    """The directory, and the project it belongs to."""
    from ..project import resolve

    if options.dir is not None and not os.path.isdir(options.dir):
        raise UsageError(f"there is no directory {options.dir}")
    return resolve(options.dir or os.getcwd())
