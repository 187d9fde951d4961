"""The recipes import their siblings by bare name, so their folder must be on the path, as when they run."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parents[1] / "worker" / "recipes"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
