"""``opensesh``, and ``python -m opensesh``."""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # Python puts the current folder first, and nothing of a project may be imported: not even its "msgspec.py".
    del sys.path[0]


def main() -> None:
    """Run the command line."""
    # Importing makes hardly any garbage, but so many objects that searching it would take a tenth of a short command.
    gc.set_threshold(50_000)
    try:
        from .cli.main import run  # here, so that an interruption while it is imported is handled

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
