"""`python -m abscli` is `abs`, where the command is not on PATH."""

from __future__ import annotations

import sys

from abscli.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
