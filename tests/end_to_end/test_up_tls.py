"""`rankzero up` with a certificate: its worker, its commands and a training work over TLS, whatever the name in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.certificates import self_signed
from tests.end_to_end.product import Product

pytestmark = pytest.mark.real

SCRIPT = """
import os
assert not [name for name in os.environ if name.startswith("RANKZERO_TLS")]
open("result.txt", "w").write("done")
"""


@pytest.mark.training
def test_up_serves_https_and_trains(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, names="DNS:gpu-1.lab.example")
    files = {"RANKZERO_TLS_CERT": str(pair.certificate), "RANKZERO_TLS_KEY": str(pair.key)}
    product = Product(tmp_path / "data", env=files)
    product.url = product.url.replace("http:", "https:")
    (tmp_path / "train.py").write_text(SCRIPT)
    try:
        product.start()
        assert f"Open      {product.url}/" in product.tail()
        run_id = product.launch(tmp_path / "train.py", strategy="single", gpus_per_node=1)
        assert product.wait_state(run_id)["state"] == "succeeded"
        command = [sys.executable, "-P", "-m", "cli.main", "doctor", "--json", "--data", str(product.data)]
        checks = json.loads(subprocess.run(command, env=product.env, capture_output=True, text=True).stdout)
        assert [check["ok"] for check in checks if check["check"] == "dashboard"] == [True]
        assert product.stop() == 0
    finally:
        product.clean_up()
