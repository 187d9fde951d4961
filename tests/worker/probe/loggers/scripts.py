"""For each logger a script of two ranks, and one that reads with the package what it wrote: {name: [[step, value]]}."""

MLFLOW = """
import mlflow
if IS_FIRST:
    mlflow.set_tracking_uri("file:./mlruns")
    mlflow.start_run(tags={"kind": "short"})
    mlflow.log_params({"lr": 0.05, "width": 4})
for step, loss in losses(5):
    if IS_FIRST:
        mlflow.log_metric("train/loss", loss.item(), step=10 * step)
        mlflow.log_metrics({"lr": 0.1 / (step + 1), "epoch": step}, step=step)
if IS_FIRST:
    mlflow.log_metric("final", 1)
    mlflow.log_metric("final", 2)
    mlflow.end_run()
dist.destroy_process_group()
"""
MLFLOW_READER = """
import json, mlflow
mlflow.set_tracking_uri("file:./mlruns")
client = mlflow.MlflowClient()
(run,) = client.search_runs(["0"])
curves = {key: [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, key)] for key in run.data.metrics}
print(json.dumps({"curves": curves, "config": run.data.params}))
"""
TRACKIO = """
import trackio
if IS_FIRST:
    run = trackio.init(project="tests", name="two-ranks", config={"lr": "0.05", "width": "4"})
for step, loss in losses(5):
    if IS_FIRST:
        trackio.log({"train/loss": loss.item(), "lr": 0.1 / (step + 1)})
if IS_FIRST:
    trackio.log({"late": 1.0}, step=20)
    trackio.log({"late": 2.0})
    trackio.finish()
dist.destroy_process_group()
"""
TRACKIO_READER = """
import json
from trackio.sqlite_storage import SQLiteStorage
curves = {}
for row in SQLiteStorage.get_logs("tests", "two-ranks"):
    step = row.pop("step")
    for name, value in row.items():
        if isinstance(value, int | float):
            curves.setdefault(name, []).append([step, value])
config = {k: v for k, v in SQLiteStorage.get_run_config("tests", "two-ranks").items() if k[0] != "_"}
print(json.dumps({"curves": curves, "config": config}))
"""
COMET = """
import comet_ml
if IS_FIRST:
    quiet = dict(log_code=False, log_env_details=False, auto_metric_logging=False)
    experiment = comet_ml.OfflineExperiment(offline_directory="comet", **quiet)
    experiment.log_parameters({"lr": "0.05", "width": "4"})
    experiment.add_tag("short")
for step, loss in losses(5):
    if IS_FIRST:
        experiment.log_metric("loss", loss.item(), step=10 * step)
        experiment.log_metrics({"lr": 0.1 / (step + 1)}, step=10 * step)
if IS_FIRST:
    with experiment.validate():
        experiment.log_metric("loss", 0.5, step=60)
    experiment.end()
dist.destroy_process_group()
"""
COMET_READER = """
import glob, json, zipfile
(archive,) = glob.glob("comet/*.zip")
curves, config = {}, {}
for line in zipfile.ZipFile(archive).read("messages.json").splitlines():
    message = json.loads(line)
    payload = message["payload"]
    if message["type"] == "metric_msg":
        metric = payload["metric"]
        name = "_".join(filter(None, [payload.get("context"), metric["metricName"]]))
        curves.setdefault(name, []).append([metric["step"], float(metric["metricValue"])])
    if message["type"] == "parameter_msg" and payload.get("param") and payload["param"]["paramName"] != "curr_step":
        config[payload["param"]["paramName"]] = payload["param"]["paramValue"]
print(json.dumps({"curves": curves, "config": config}))
"""
CLEARML = """
import clearml
if IS_FIRST:
    clearml.Task.set_offline(True)
    task = clearml.Task.init("tests", "two-ranks", auto_connect_frameworks=False, auto_resource_monitoring=False)
    task.connect({"lr": "0.05", "width": "4"})
    logger = task.get_logger()
for step, loss in losses(5):
    if IS_FIRST:
        logger.report_scalar("loss", "train", loss.item(), step)
        logger.report_scalar("lr", "lr", 0.1 / (step + 1), step)
if IS_FIRST:
    task.close()
dist.destroy_process_group()
"""
CLEARML_READER = """
import glob, json, os, zipfile
(archive,) = glob.glob(os.path.expanduser("~/.clearml/**/*.zip"), recursive=True)
curves = {}
for line in zipfile.ZipFile(archive).read("metrics.jsonl").splitlines():
    for event in json.loads(line):
        name = event["metric"] if event["metric"] == event["variant"] else event["metric"] + "/" + event["variant"]
        curves.setdefault(name, []).append([event["iter"], event["value"]])
print(json.dumps({"curves": curves, "config": {"lr": "0.05", "width": "4"}}))
"""
SWANLAB = """
import swanlab
if IS_FIRST:
    swanlab.init(project="tests", mode="offline", config={"lr": "0.05", "width": "4"}, tags=["short"])
for step, loss in losses(5):
    if IS_FIRST:
        swanlab.log({"train": {"loss": loss.item()}, "lr": 0.1 / (step + 1)})
if IS_FIRST:
    swanlab.log({"late": 1.0}, step=20)
    swanlab.log({"late": 2.0})
    swanlab.finish()
dist.destroy_process_group()
"""
SWANLAB_READER = """
import glob, json
from swanlab.proto.swanlab.record.v1.record_pb2 import Record
from swanlab.sdk.internal.core_python.store import DataStoreReader
reader, curves = DataStoreReader(), {}
reader.open(glob.glob("swanlog/run*/run*.swanlab")[0])
for data in reader:
    record = Record.FromString(data)
    if record.WhichOneof("record_type") == "scalar" and not record.scalar.key.startswith("__swanlab__"):
        curves.setdefault(record.scalar.key, []).append([record.scalar.step, record.scalar.value.number])
print(json.dumps({"curves": curves, "config": {"lr": "0.05", "width": "4"}}))
"""
AIM = """
import aim
if IS_FIRST:
    run = aim.Run(system_tracking_interval=1)
    run["hparams"] = {"lr": 0.05, "model": {"width": 4}}
    run.add_tag("short")
for step, loss in losses(5):
    if IS_FIRST:
        run.track(loss, name="loss", step=10 * step, context={"subset": "train"})
        run.track({"lr": 0.1 / (step + 1), "epoch": 0})
if IS_FIRST:
    run.track(0.5, name="loss", context={"subset": "val", "head": 2})
    run.track(aim.Text("no curve"), name="words")
    run["late"] = True
    run.close()
dist.destroy_process_group()
"""
AIM_READER = """
import json
from aim import Repo
repo = Repo(".")
repo._recreate_index()  # as `aim storage reindex`, and Aim's page while it runs
(run,) = repo.iter_runs()
curves = {}
for metric in run.metrics():
    context = metric.context.to_dict()
    if not metric.name.startswith("__"):
        others = [f"{key}={value}" for key, value in context.items() if key != "subset"]
        subset = [context["subset"]] if "subset" in context else []
        steps, (values, _, _) = metric.data.items_list()
        points = [[int(step), float(value)] for step, value in zip(steps, values)]
        curves["/".join([*subset, *others, metric.name])] = points
config = {name: value for name, value in run[...].items() if name[:2] != "__"}
print(json.dumps({"curves": curves, "config": config}))
"""
LIGHTNING_MODEL = """
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, WandbLogger
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Model(LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(4, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

quiet = dict(enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, log_every_n_steps=3)
ranks = dict(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2)
data = DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=4)
"""
LIGHTNING = (
    LIGHTNING_MODEL
    + """
loggers = [CSVLogger("csv", name="", version=""), WandbLogger(project="tests", offline=True)]
Trainer(**ranks, **quiet, logger=loggers).fit(Model(lr=0.05), data)
"""
)
AUTOLOG = (
    LIGHTNING_MODEL
    + """
import mlflow
mlflow.set_tracking_uri("file:./mlruns")
mlflow.pytorch.autolog(log_models=False)
Trainer(**ranks, **quiet, logger=False).fit(Model(lr=0.05), data)
"""
)
"""What MLflow logs by itself of Lightning's Trainer."""
AUTOLOG_READER = MLFLOW_READER.replace(
    '(run,) = client.search_runs(["0"])',
    '(run,) = [run for run in client.search_runs(["0"]) if run.data.metrics]',
)
"""MLflow begins a run in each rank; only that of rank 0 gets anything."""
LIGHTNING_READER = """
import csv, json
curves = {}
for row in csv.DictReader(open("csv/metrics.csv")):
    step = int(row.pop("step"))
    for name, value in row.items():
        if value:
            curves.setdefault(name, []).append([step, float(value)])
curves["trainer/global_step"] = [[index, float(step)] for index, (step, _) in enumerate(curves["train_loss"])]
print(json.dumps({"curves": curves, "config": {"lr": 0.05}}))
"""
"""Both loggers get the same values: one series each. W&B's step metric is its own."""
LOGGERS = {
    "mlflow": (MLFLOW, MLFLOW_READER),
    "trackio": (TRACKIO, TRACKIO_READER),
    "comet_ml": (COMET, COMET_READER),
    "lightning": (LIGHTNING, LIGHTNING_READER),
    "swanlab": (SWANLAB, SWANLAB_READER),
    "clearml": (CLEARML, CLEARML_READER),
    "aim": (AIM, AIM_READER),
    "mlflow.pytorch": (AUTOLOG, AUTOLOG_READER),
}
