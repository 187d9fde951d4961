"""`python -P -m worker`: the worker as a program."""

from __future__ import annotations

import sys

from worker.program import main

sys.exit(main())
