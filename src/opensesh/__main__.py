"""``opensesh``, and ``python -m opensesh``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. ``--version`` is answered before anything is imported."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from . import __version__

        print(f"opensesh {__version__}")
        return
    try:
        from .cli.main import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before a command was begun
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
