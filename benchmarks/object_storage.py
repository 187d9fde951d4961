"""A large checkpoint on its way up and down: by the directory of files, and by a bucket (moto's server).

    .venv/bin/python benchmarks/object_storage.py --mib 1024

Uploads are made by the worker's own code, downloads without the hash that `rankzero download` computes at the end. The
memory is the dashboard's own: the most it had during a transfer, and by how much that is more than before. moto keeps
objects in memory and is slower than a real server: the ratio says what the way costs, not what a bucket does.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx
import psutil
from botocore.session import get_session

from domain.messages import CheckpointOffer, Device, NodeFacts
from tests.end_to_end.product import free_port, wait_for
from worker.checkpoints.multipart import BucketUpload, part_digests
from worker.checkpoints.upload import send_through_server
from worker.checkpoints.watching import CheckpointCopy
from worker.session.client import Client, TaskRef

MIB = 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    size = parser.parse_args().mib * MIB
    with tempfile.TemporaryDirectory() as folder, bucket() as environment:
        where = Path(folder)
        print(f"{size // MIB} MiB, part by part", flush=True)
        for number, (name, way) in enumerate(
            (("directory", "disk"), ("bucket, directly", "direct"), ("bucket, through", "through"))
        ):
            env = {} if way == "disk" else environment
            with Dashboard(where / f"data{number}", env) as dashboard:
                snapshot = written(where / f"{way}.bin", size)
                up = dashboard.measured(lambda d=dashboard, s=snapshot, w=way: upload(d, s, w))
                down = dashboard.measured(lambda d=dashboard: download(d, "server"))
                print(f"{name:<18} up   {up}\n{'':<18} down {down}", flush=True)
                if way == "direct":
                    print(
                        f"{'':<18} down, redirected {dashboard.measured(lambda d=dashboard: download(d, 'bucket'))}"
                    )
                snapshot.path.unlink()


class Dashboard:
    """A dashboard in a process of its own, with a run on a node that is spoken for here."""

    def __init__(self, data: Path, env: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        argv = [sys.executable, "-P", "-m", "cli.main", "dashboard", "--data", str(data)]
        argv += ["--port", self.url.rpartition(":")[2]]
        self._log = data.with_suffix(".log").open("wb")
        self._process = subprocess.Popen(argv, env=os.environ | env, stdout=self._log, stderr=self._log)
        wait_for(lambda: (data / "server.json").exists(), "the dashboard")
        self.http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {(data / 'token').read_text().strip()}"},
            timeout=600,
            trust_env=False,
        )
        self.client = Client(self.url)
        facts = NodeFacts(
            name="n0",
            instance_id="n0",
            hostname="n0",
            address="127.0.0.1",
            devices=[Device(id="cpu:0", kind="cpu", name="c")],
        )
        self.client.register(facts, None, (data / "join-token").read_text().strip())
        self.http.post(
            "/api/runs", json={"target": "image_classifier", "gpus_per_node": 1}
        ).raise_for_status()
        (assignment,) = self.client.desired_state(None, 5).assignments
        self.part = TaskRef(assignment.fence, 0)
        self.checkpoint_id = 0

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.client.close()
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def measured(self, transfer: Callable[[], int]) -> str:
        """Rate, and the dashboard's memory meanwhile."""
        process = psutil.Process(self._process.pid)
        before, most, is_over = process.memory_info().rss, 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not is_over.wait(0.02):
                most = max(most, process.memory_info().rss)

        watching = threading.Thread(target=watch)
        watching.start()
        began = time.perf_counter()
        try:
            size = transfer()
        finally:
            spent = time.perf_counter() - began
            is_over.set()
            watching.join()
        return f"{size / spent / 1e6:5.0f} MB/s, memory {most / MIB:4.0f} MiB ({(most - before) / MIB:+.0f})"


def upload(dashboard: Dashboard, snapshot: CheckpointCopy, way: str) -> int:
    offer = CheckpointOffer(
        path="work/large.bin",
        size_bytes=snapshot.size_bytes,
        sha256=snapshot.sha256,
        written_at=snapshot.written_at,
    )
    client = dashboard.client
    place = client.offer_checkpoint(dashboard.part, offer)
    dashboard.checkpoint_id = place.checkpoint_id
    sums = None
    if place.part_bytes:
        sums = part_digests(snapshot.path, place.part_bytes, snapshot.sha256, lambda: True)
    if way == "direct":
        assert place.part_bytes and sums
        BucketUpload(client).send(snapshot, place, place.part_bytes, sums, lambda: True)
    else:
        send_through_server(client, snapshot, place, lambda: True)
    client.complete_checkpoint(place.checkpoint_id, parts=sums)
    return snapshot.size_bytes


def download(dashboard: Dashboard, via: str) -> int:
    url, size = f"/api/checkpoints/{dashboard.checkpoint_id}/file", 0
    with dashboard.http.stream("GET", url, params={"via": via}, follow_redirects=True) as answer:
        answer.raise_for_status()
        for piece in answer.iter_raw():
            size += len(piece)
    return size


def written(path: Path, size: int) -> CheckpointCopy:
    """A file like a checkpoint's copy in the outbox."""
    hashing, block = hashlib.sha256(), os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(size // MIB):
            piece = number.to_bytes(8, "big") + block[8:]
            file.write(piece)
            hashing.update(piece)
    return CheckpointCopy(path.name, path, None, size, hashing.hexdigest(), time.time(), (0, 0, 0), None)


@contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """moto's server in a process of its own; yields the environment of a dashboard that uses it."""
    port = free_port()
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            names = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret"}
            url = f"http://127.0.0.1:{port}"
            client = get_session().create_client(
                "s3", "us-east-1", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b"
            )
            wait_for(lambda: reachable(url), "moto's server")
            client.create_bucket(Bucket="checkpoints")
            yield names | {"AWS_ENDPOINT_URL": url, "RANKZERO_CHECKPOINTS_URL": "s3://checkpoints/runs"}
        finally:
            server.terminate()
            server.wait(30)


def reachable(url: str) -> bool:
    try:
        return httpx.get(url).status_code < 500
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    main()
