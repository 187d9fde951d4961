"""What a script saves comes home whole, in the form people need, and what it left half written is told."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import torch

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parent / "scripts" / "wrapped_saves.py"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.long
def test_a_wrapped_model_comes_home_without_its_wrapper(product: Product, tmp_path: Path) -> None:
    plain = tmp_path / "plain.pt"
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=[str(plain)])
    ended = product.wait_state(run_id)
    assert ended["state"] == "failed"  # it ends with a kill in mid-save
    by_name = {each["name"]: each for each in product.get(f"/api/runs/{run_id}/checkpoints")}
    whole = {"work/last.pt", "work/old_style.pth", "work/sharded/step_30.tar"}
    assert whole <= set(by_name) and not [name for name in by_name if "cut" in name]
    assert all(each["complete"] for each in by_name.values())
    prefixes = {name: by_name[name]["prefix"] for name in whole}
    assert prefixes == {
        "work/last.pt": "module.",
        "work/old_style.pth": "module.",
        "work/sharded/step_30.tar": None,
    }
    expected = torch.load(plain, weights_only=True)
    for name in sorted(whole):
        state = merged(product, by_name[name]["id"])
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[key], expected[key]) for key in expected)
    unpack_and_load(fetch(product, by_name["work/sharded/step_30.tar"]["id"]), tmp_path, expected)
    (finding,) = [f for f in product.get(f"/api/runs/{run_id}/findings") if f["kind"] == "checkpoint not whole"]
    assert "work/cut.pt: " in finding["evidence"] and "its end record is missing" in finding["evidence"]
    assert "work/cut_old.pt: " in finding["evidence"] and "it ends too early" in finding["evidence"]


def fetch(product: Product, checkpoint_id: int) -> bytes:
    response = product.request("GET", f"/api/checkpoints/{checkpoint_id}/file")
    assert response.status_code == 200, response.text
    return response.content


def merged(product: Product, checkpoint_id: int) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint as its node merges it."""
    from safetensors.torch import load

    asked = product.request("POST", f"/api/checkpoints/{checkpoint_id}/merge", json={"format": "safetensors"})
    address = asked.headers["Location"]
    wait_for(lambda: product.get(address)["ended_at"], "the merge")
    task = product.get(address)
    assert task["state"] == "succeeded", task["message"]
    content = fetch(product, task["merged_id"])
    if tarfile.is_tarfile(io.BytesIO(content)):
        with tarfile.open(fileobj=io.BytesIO(content)) as members:
            (member,) = [one for one in members if one.name.endswith(".safetensors")]
            content = members.extractfile(member).read()  # type: ignore[union-attr]
    return dict(load(content))


def unpack_and_load(archive: bytes, folder: Path, expected: dict[str, torch.Tensor]) -> None:
    """As somebody does who downloaded it."""
    import torch.distributed.checkpoint as dcp  # takes a second to import, and a long test alone needs it

    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        members.extractall(folder, filter="data")
    loaded = {"model": {name: torch.zeros_like(value) for name, value in expected.items()}, "step": 0}
    dcp.load(loaded, checkpoint_id=folder / "step_30", no_dist=True)
    assert loaded["step"] == 30
    assert all(torch.equal(loaded["model"][name], value) for name, value in expected.items())  # type: ignore[index]
