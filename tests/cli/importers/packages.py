"""For each logger a script that writes runs with the package, and one that reads with the package what it wrote.

The reader prints {name of the run: {"curves": {series: [[step, value]]}, "config", "state"}}."""

WANDB = """
import wandb
run = wandb.init(project="tests", name="first", mode="offline", config={"lr": 0.05, "width": 4})
for step in range(300):
    run.log({"train": {"loss": 1 / (step + 1)}, "lr": 0.1})
run.log({"late": float("nan")}, step=400)
run.finish()
"""
WANDB_READER = """
import json, pathlib
from tests.worker.probe.loggers import wandb_files
(file,) = pathlib.Path("wandb").glob("offline-run-*/*.wandb")
curves = {name: [[s, v if v == v else "NaN"] for s, v in points] for name, points in wandb_files.curves(file).items()}
print(json.dumps({"first": {"curves": curves, "config": wandb_files.config(file), "state": "succeeded"}}))
"""
MLFLOW = """
import mlflow
mlflow.set_tracking_uri("{uri}")
mlflow.set_experiment("tests")
with mlflow.start_run(run_name="first", tags={{"kind": "short"}}):
    mlflow.log_params({{"lr": 0.05, "width": 4}})
    for step in range(30):
        mlflow.log_metric("train/loss", 1 / (step + 1), step=10 * step)
    mlflow.log_metric("nan", float("nan"), step=1)
    mlflow.log_metric("final", 1)
    mlflow.log_metric("final", 2)
try:
    with mlflow.start_run(run_name="second"):
        mlflow.log_metric("a", 1)
        raise ValueError
except ValueError:
    pass
"""
MLFLOW_READER = """
import json, mlflow
mlflow.set_tracking_uri("{uri}")
client = mlflow.MlflowClient()
(experiment,) = client.search_experiments(filter_string="name = 'tests'")
runs = {{}}
for run in client.search_runs([experiment.experiment_id]):
    histories = {{key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}}
    curves = {{
        key: [[point.step, point.value if point.value == point.value else "NaN"] for point in history]
        for key, history in histories.items()
    }}
    state = {{"FINISHED": "succeeded", "FAILED": "failed"}}[run.info.status]
    runs[run.info.run_name] = {{"curves": curves, "config": run.data.params, "state": state}}
print(json.dumps(runs))
"""
TRACKIO = """
import trackio
trackio.init(project="tests", name="first", config={"lr": 0.05, "width": 4})
for step in range(300):
    trackio.log({"train/loss": 1 / (step + 1), "text": "no curve"})
trackio.log({"late": 1.0}, step=400)
trackio.log({"late": float("nan")})
trackio.finish()
"""
TRACKIO_READER = """
import json
from trackio.sqlite_storage import SQLiteStorage
curves = {}
for row in SQLiteStorage.get_logs("tests", "first"):
    step = row.pop("step")
    for name, value in row.items():
        if isinstance(value, int | float):
            curves.setdefault(name, []).append([step, value if value == value else "NaN"])
config = {k: v for k, v in SQLiteStorage.get_run_config("tests", "first").items() if k[0] != "_"}
print(json.dumps({"first": {"curves": curves, "config": config, "state": "stopped"}}))
"""
FILES, DATABASE = "file:./mlruns", "sqlite:///mlflow.db"
PACKAGES = {
    "wandb": ("wandb", WANDB, WANDB_READER),
    "mlflow": ("mlflow", MLFLOW.format(uri=FILES), MLFLOW_READER.format(uri=FILES)),
    "mlflow in SQLite": ("mlflow", MLFLOW.format(uri=DATABASE), MLFLOW_READER.format(uri=DATABASE)),
    "trackio": ("trackio", TRACKIO, TRACKIO_READER),
}
"""Package, writer and reader."""
