"""An example that was launched through the API and has ended, and what the product shows of it."""

from __future__ import annotations

import hashlib
import math
import tarfile
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from tests.end_to_end.product import Product

EXAMPLES = Path(__file__).parents[2] / "examples"
Curve = list[list[float]]


class Examples:
    """Launches the scripts of `examples/`, one after the other."""

    def __init__(self, product: Product) -> None:
        self.product = product

    def run(self, script: str, *args: str, timeout_s: float = 240, **spec: Any) -> Trained:
        """Launch it on two ranks, unless the spec says otherwise, and wait until it has succeeded."""
        spec = {"gpus_per_node": 2, "args": list(args)} | spec
        run_id = self.product.launch(EXAMPLES / script, **spec)
        run = self.product.wait_state(run_id, timeout_s=timeout_s)
        trained = Trained(self.product, run)
        assert run["state"] == "succeeded", (run["message"], trained.log("err"), trained.log("out"))
        trained.assert_nothing_is_found_wrong()
        return trained


class Trained:
    """One run that has succeeded."""

    def __init__(self, product: Product, run: dict[str, Any]) -> None:
        self.product, self.run, self.id = product, run, run["id"]
        self.work = product.data / "runs" / self.id / "attempts" / "1" / "node0" / "work"

    def log(self, stream: str, rank: int | str = 0) -> str:
        """What a rank printed."""
        path = f"/api/runs/{self.id}/logs?rank={rank}&stream={stream}"
        return self.product.request("GET", path).text

    def curves(self, source: str = "events") -> dict[str, Curve]:
        """Every series: [[step, value, wall time], …]."""
        return dict(self.product.get(f"/api/runs/{self.id}/metrics?source={source}"))

    def assert_nothing_is_found_wrong(self) -> None:
        """No false alarm of the probe."""
        answer = self.product.request("GET", f"/api/runs/{self.id}/findings")
        assert answer.status_code == 200, answer.text
        assert answer.json() == []

    def assert_tensorboard_reads_the_same(self) -> dict[str, Curve]:
        """Each scalar of each event file, point by point; returns the curves."""
        curves = self.curves()
        theirs = {name: points for _, name, points in _tensorboard_scalars(self.work)}
        folders = {folder for folder, _, _ in _tensorboard_scalars(self.work)}
        assert folders and theirs, "the example wrote no event files"
        assert {name.rpartition(":")[2] for name in curves} == set(theirs)
        for folder, tag, points in _tensorboard_scalars(self.work):
            ours = curves.get(tag) if len(folders) == 1 else _of_folder(curves, folder, tag)
            assert ours == points, (folder, tag)
        return curves

    def assert_learns(self, curve: Curve, below: float) -> None:
        """It has fallen, and its last value is plausible."""
        values = [value for _, value, _ in curve]
        assert all(math.isfinite(value) for value in values)
        assert values[-1] < below and sum(values[-5:]) < sum(values[:5]), values

    def checkpoints(self) -> dict[str, dict[str, Any]]:
        """The complete ones by name, `work/` taken off."""
        listed = self.product.get(f"/api/runs/{self.id}/checkpoints")
        assert all(each["complete"] for each in listed), listed
        return {each["name"].removeprefix("work/"): each for each in listed}

    def download(self, name: str, folder: Path) -> Path:
        """Fetch a checkpoint, check its SHA-256, unpack it if it is a folder's archive."""
        checkpoint = self.checkpoints()[name]
        answer = self.product.request("GET", f"/api/checkpoints/{checkpoint['id']}/file")
        assert answer.status_code == 200, answer.text
        assert len(answer.content) == checkpoint["size_bytes"]
        assert hashlib.sha256(answer.content).hexdigest() == checkpoint["sha256"]
        path = folder / Path(name).name
        path.write_bytes(answer.content)
        if not tarfile.is_tarfile(path):
            return path
        with tarfile.open(path) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        return folder / "unpacked"


def _tensorboard_scalars(root: Path) -> list[tuple[Path, str, Curve]]:
    """(folder, tag, points) as TensorBoard itself reads them."""
    curves = []
    for folder in sorted({path.parent for path in root.rglob("*tfevents*")}):
        reader = EventAccumulator(str(folder), size_guidance={SCALARS: 0, "tensors": 0})
        reader.Reload()
        for tag in reader.Tags()["scalars"]:
            points = [[event.step, event.value, event.wall_time] for event in reader.Scalars(tag)]
            curves.append((folder.relative_to(root), tag, points))
    return curves


def _of_folder(curves: dict[str, Curve], folder: Path, tag: str) -> Curve | None:
    """Of several writers one keeps the plain tags; the others' begin with the end of their folder."""
    named = [name for name in curves if name.endswith(f":{tag}") and f"/{folder}".endswith(_folder_of(name))]
    return curves[named[0]] if named else curves.get(tag)


def _folder_of(name: str) -> str:
    return "/" + name.rpartition(":")[0]
