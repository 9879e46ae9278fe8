"""``python -m cli.demo``: run the demo; the exit code says whether all compared equal."""

from __future__ import annotations

import sys

from cli.demo.demo import main

sys.exit(main())
