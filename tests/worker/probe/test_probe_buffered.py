"""What a script logs can be read at once, whichever writer it logs with. Real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from domain.launch import plan
from tests.end_to_end.product import wait_for
from worker.streams.events import EventTail, find_event_files

pytestmark = pytest.mark.real

PROBE = plan.PROBE_FOLDER
LIMIT_S = 60.0
"""Far below the two minutes that writers take by themselves, far above what it takes."""
LOG_AND_WAIT = """
writer.add_scalar("loss", 3.0, 0)
writer.flush() # as after a first epoch: the next flush would be two minutes away
for step in (1, 2):
    writer.add_scalar("loss", 1.0, step)
print("logged", flush=True)
sys.stdin.readline()
"""
# tensorboard's writer as it is where TensorFlow is installed: its files have a buffer.
WITH_TENSORFLOW = """
from tensorboard.compat import tf

class GFile:
    def __init__(self, name, mode):
        self.file = open(name, mode, buffering=1 << 20)
        self.write, self.flush, self.close = self.file.write, self.file.flush, self.file.close
    closed = property(lambda self: self.file.closed)

tf.io.gfile.GFile = GFile
"""
# tensorboardX before 1.8: its thread waits for an event, and only then looks at the clock.
OLD = """
import os, queue, threading, time

class Writer:
    def __init__(self, path):
        os.makedirs(path, exist_ok=True)
        self.file = open(path + "/events.out.tfevents.1", "wb")
        self.flush = self.file.flush

class EventFileWriter:
    def __init__(self, logdir, max_queue=10, flush_secs=120, filename_suffix=""):
        self._event_queue = queue.Queue(max_queue)
        self._ev_writer = Writer(logdir)
        self.flush_secs = flush_secs
        Thread(self._event_queue, self._ev_writer, flush_secs).start()

class Thread(threading.Thread):
    def __init__(self, queue, writer, flush_secs):
        super().__init__(daemon=True)
        self.queue, self.writer, self.flush_secs, self.next = queue, writer, flush_secs, 0
    def run(self):
        while True:
            self.writer.file.write(self.queue.get())
            if time.time() > self.next:
                self.writer.flush()
                self.next = time.time() + self.flush_secs
"""


class Script:
    """A process with the probe, or without it, that waits for a line when it has logged."""

    def __init__(self, folder: Path, text: str, with_probe: bool = True, library: Path | None = None) -> None:
        self.folder = folder
        (folder / "train.py").write_text(textwrap.dedent(text))
        paths = [str(path) for path in (PROBE if with_probe else None, library) if path]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "RANKZERO_PROBE_DIR": str(folder / "probe")}
        self.process = subprocess.Popen(
            [sys.executable, "train.py"], cwd=folder, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def hears(self, word: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said == word, self.process.communicate()

    def says(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def steps(self) -> list[int]:
        """What a reader finds in the event files."""
        sizes: list[int] = []
        for path in find_event_files(self.folder):
            sizes += [step for points in EventTail(path).read().series.values() for step, _, _ in points]
        return sizes

    def errors(self) -> list[str]:
        """What the probe says of itself."""
        lines = [line for path in (self.folder / "probe").glob("*.jsonl") for line in path.read_text().splitlines()]
        events = [event for line in lines for event in json.loads(line).get("events", [])]
        return [event["message"] for event in events if event["kind"] == "error"]


TORCH = "from torch.utils.tensorboard import SummaryWriter\nimport sys\n"
X = "from tensorboardX import SummaryWriter\nimport sys\n"
WRITERS = {
    "torch's where TensorFlow is installed": WITH_TENSORFLOW + TORCH + "writer = SummaryWriter('runs/a')\n",
    "torch's, told to wait": WITH_TENSORFLOW + TORCH + "writer = SummaryWriter('runs/a', flush_secs=300)\n",
    "tensorboardX": X + "writer = SummaryWriter('runs/a')\n",
    "tensorboardX, told to wait": X + "writer = SummaryWriter('runs/a', flush_secs=300)\n",
    "tensorboardX's file writer": X + """
from tensorboardX.event_file_writer import EventFileWriter
from tensorboardX.proto import event_pb2, summary_pb2
class Mine(EventFileWriter):
    def __init__(self): super().__init__("runs/a", 10, 300, ".mine")
    def add_scalar(self, tag, value, step):
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value)]
        self.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=values)))
writer = Mine()
""",
}  # fmt: skip
COMMON_WRITERS = ("torch's where TensorFlow is installed", "tensorboardX, told to wait")


@pytest.mark.parametrize(
    "writer",
    [pytest.param(writer, marks=() if writer in COMMON_WRITERS else pytest.mark.long) for writer in WRITERS],
)
def test_logged_values_can_be_read_soon(writer: str, tmp_path: Path) -> None:
    with Script(tmp_path, WRITERS[writer] + LOG_AND_WAIT) as script:
        script.hears("logged")
        wait_for(lambda: script.steps() == [0, 1, 2], "the points", LIMIT_S)
        assert script.errors() == []


@pytest.mark.parametrize("writer", ["torch's where TensorFlow is installed", "tensorboardX"])
@pytest.mark.long
def test_without_the_probe_it_could_not(writer: str, tmp_path: Path) -> None:
    with Script(tmp_path, WRITERS[writer] + LOG_AND_WAIT, with_probe=False) as script:
        script.hears("logged")
        time.sleep(1.5)
        assert 2 not in script.steps()


def test_a_writer_that_waits_for_events_is_flushed_by_the_probe(tmp_path: Path) -> None:
    (tmp_path / "lib" / "tensorboardX").mkdir(parents=True)
    (tmp_path / "lib" / "tensorboardX" / "__init__.py").touch()
    (tmp_path / "lib" / "tensorboardX" / "event_file_writer.py").write_text(OLD)
    text = """
        import sys, threading, time
        from tensorboardX.event_file_writer import EventFileWriter
        writer = EventFileWriter("runs/a")
        gone = EventFileWriter("runs/b")
        gone._ev_writer.file.close()
        for number in range(3):
            writer._event_queue.put(b"x" * 10)
            print("logged", flush=True)
            sys.stdin.readline()
        print(sorted(t.name for t in threading.enumerate() if "rankzero" in t.name), flush=True)
        """
    file = tmp_path / "runs/a/events.out.tfevents.1"
    with Script(tmp_path, text, library=tmp_path / "lib") as script:
        for number in (1, 2, 3):
            script.hears("logged")
            wait_for(lambda size=10 * number: file.stat().st_size == size, "the event", LIMIT_S)
            script.says()
        script.hears("['rankzero-flush']")


def test_only_files_on_a_disk_are_flushed_more_often_and_nothing_strange_breaks_a_script(
    tmp_path: Path,
) -> None:
    text = """
        from pathlib import Path
        from tensorboardX import event_file_writer as module
        shown, module._EventLoggerThread = [], lambda queue, writer, flush_secs: shown.append(flush_secs) or Thread()
        module.directory_check = lambda path: None
        module.EventsWriter = lambda *arguments: None
        class Thread:
            def start(self): pass
        new = module.EventFileWriter
        for arguments in [("a",), ("a", 10, 120), ("a", 10, 0.1), (Path("a"),), ("s3://a/b",), ("gs://a", 10, 60)]:
            new(*arguments)
        new(logdir="a", flush_secs=7)
        new(flush_secs=7, logdir="s3://a")
        new("a", flush_secs="soon")
        try:
            new()
        except TypeError as error:
            shown.append("logdir" in str(error))
        print(shown, flush=True)
        """
    with Script(tmp_path, text) as script:
        script.hears("[0.5, 0.5, 0.1, 0.5, 120, 60, 0.5, 7, 'soon', True]")


def test_a_writer_that_looks_otherwise_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lib" / "tensorboardX").mkdir(parents=True)
    (tmp_path / "lib" / "tensorboardX" / "__init__.py").touch()
    (tmp_path / "lib" / "tensorboardX" / "event_file_writer.py").write_text("class EventFileWriter: pass\n")
    text = "from tensorboardX.event_file_writer import EventFileWriter; EventFileWriter(); print('done', flush=True)"
    with Script(tmp_path, text, library=tmp_path / "lib") as script:
        script.hears("done")
        assert script.process.wait(300) == 0


@pytest.mark.parametrize("start", [pytest.param("fork", marks=pytest.mark.long), "spawn"])
def test_a_process_started_later_logs_as_well(start: str, tmp_path: Path) -> None:
    text = f"""
        import multiprocessing, sys
        from tensorboardX import SummaryWriter
        def log():
            writer = SummaryWriter("runs/b")
            writer.add_scalar("loss", 1.0, 5)
            writer.flush()
            writer.add_scalar("loss", 1.0, 6)
            print("logged", flush=True)
            import time
            time.sleep(600)
        if __name__ == "__main__":
            child = multiprocessing.get_context("{start}").Process(target=log, daemon=True)
            child.start()
            sys.stdin.readline()
        """
    with Script(tmp_path, text) as script:
        script.hears("logged")
        wait_for(lambda: script.steps() == [5, 6], "the points", LIMIT_S)
        script.says()
        assert script.process.wait(300) == 0
