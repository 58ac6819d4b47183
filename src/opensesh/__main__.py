"""``opensesh``, and ``python -m opensesh``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .cli.main import run  # here, so that an interruption while it is imported is handled

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
