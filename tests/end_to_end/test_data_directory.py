"""The data directory of a used installation: each entry of it is documented, with who writes and reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.end_to_end.product import Product

pytestmark = pytest.mark.real

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "docs" / "RUN-DIRECTORY.md"


def documented() -> set[str]:
    """The entries that the table names, folders with what they hold."""
    table = DOCUMENT.read_text().partition("| in the server's data directory |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    assert all(len(row) == 4 and all(row) for row in rows), "an entry without writer or reader"
    names = set()
    for entry, content, *_ in rows:
        own = re.findall(r"`([^`]+)`", entry)
        names |= {name.rstrip("/") for name in own}
        names |= {f"{own[0]}{inner}" for inner in re.findall(r"`(?:files/)?(\w+/)`", content)}
    return names | {"rankzero.db-wal", "rankzero.db-shm"}


def entries(data: Path) -> set[str]:
    """The entries of the data directory, and the folders of the files and wheels."""
    inner = {f"{path.relative_to(data)}/" for name in ("files", "wheels") for path in (data / name).glob("*/")}
    return {path.name for path in data.iterdir()} | inner


def test_every_entry_of_a_used_installation_is_documented(product: Product, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.save({'w': torch.zeros(2)}, 'last.pt')\nprint('saved')\n")
    run_id = product.launch(tmp_path, entry="train.py", gpus_per_node=1)
    assert product.wait_state(run_id, "succeeded", "failed")["state"] == "succeeded", product.run(run_id)
    assert product.request("POST", "/api/backup", json={}).is_success
    assert product.request("PUT", "/api/secrets/KEY", json={"value": "hunter22hunter22"}).is_success
    there = entries(product.data)
    assert {"backups", "files/checkpoints/", "files/snapshots/", "secret-key", "node", "runs"} <= there
    assert there - documented() == set()
