"""The printed formats that are certainly understood: of each an example, and what it gives. Documented in LOGGERS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Format(NamedTuple):
    """One family of lines; the rules that read them are general and know no family."""

    name: str
    example: str
    step: int
    """Of the example's last points."""
    gives: Mapping[str, float]
    """Series and their last values."""


FORMATS = (
    Format("key and value", "step 10: loss=2.31 lr=1e-4", 10, {"loss": 2.31, "lr": 1e-4}),
    Format("i/n", "[10/1000] loss: 0.5, acc: 71.2%", 10, {"loss": 0.5, "acc": 71.2}),
    Format("nanoGPT", "iter 10: loss 2.3100, time 95.12ms, mfu 1.02%", 10,
           {"loss": 2.31, "time_s": 0.09512, "mfu": 1.02}),
    Format("torch's examples", "Epoch: [2][ 20/391]\tTime  0.315 ( 0.372)\tLoss 6.98e+00 "
           "(7.08e+00)\tAcc@1   1.56 (  0.08)",
           802, {"time": 0.315, "loss": 6.98, "acc@1": 1.56}),
    Format("timm", "Train: 1 [  10/20 ( 50%)]  Loss: 0.9 (1.0)  Time: 0.060s,  533.33/s  (0.061s, "
           "524.6/s)  LR: 1.000e-03"
           "  Data: 0.001 (0.002)", 30, {"train/loss": 0.9, "train/time_s": 0.06, "train/lr": 1e-3,
            "train/data": 0.001}),
    Format("timm's validation", "Train: 1 [  19/20 (100%)]  Loss: 0.9 (1.0)\n"
           "Test: [   4/4]  Time: 0.050 (0.050)  Loss:  1.1000 (1.1000)  Acc@1:  41.000 ( 40.000)",
           39, {"val/loss": 1.1, "val/acc@1": 41.0}),
    Format("Swin", "Train: [3/300][20/1251]\teta 0:05:00 lr 0.000100\t time 0.5 (0.6)\tloss 6.9 "
           "(6.95)\tgrad_norm 1.2 (1.3)",
           3773, {"train/lr": 1e-4, "train/time": 0.5, "train/loss": 6.9, "train/grad_norm": 1.2}),
    Format("torchvision's references", "Epoch: [0]  [ 103/5005]  eta: 4:43:31  lr: 0.1  img/s: 13.62  "
           "loss: 6.8536 (6.9458)",
           103, {"lr": 0.1, "img/s": 13.62, "loss": 6.8536}),
    Format("mmcv", "Epoch [2][10/40]\tlr: 0.01000, eta: 1 day, 12:59:34, time: 0.080, memory: 3028, "
           "loss_cls: 0.2, loss: 0.5",
           50, {"lr": 0.01, "time": 0.08, "memory": 3028, "loss_cls": 0.2, "loss": 0.5}),
    Format("mmengine", "Epoch(train)  [4][100/100]  lr: 1.0000e-02  eta: 1 day, 1:02:03  loss: 0.4000\n"
           "Epoch(val)  [4][10/10]    coco/bbox_mAP: 0.4560  time: 0.0300", 400,
           {"train/loss": 0.4, "val/coco/bbox_map": 0.456}),
    Format("mmengine by iterations", "Iter(train) [ 100/1000]  lr: 1e-2  loss: 0.45\nIter(val) "
           "[50]\tmIoU: 0.5, mAcc: -1.0", 100,
           {"train/loss": 0.45, "val/miou": 0.5, "val/macc": -1.0}),
    Format("detectron2", "[11/25 07:00:00 d2.utils.events]:  eta: 0:01:14  iter: 19  total_loss: 1.23  "
           "loss_cls: 0.06028  "
           "time: 0.4619  data_time: 0.0326  lr: 0.0003  max_mem: 1962M", 19,
           {"total_loss": 1.23, "loss_cls": 0.06028, "time": 0.4619, "data_time": 0.0326, "lr": 3e-4,
            "max_mem": 1.962e9}),
    Format("torchtitan", "[titan] 2026-01-02 03:04:05,338 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.13000  "
           "\x1b[36mgrad_norm:  0.5010  \x1b[33mmemory:  1.50GiB(64.99%)  \x1b[34mtps: 7,282  "
           "\x1b[36mtflops: 0.52  mfu: 0.17%\x1b[39m",
           1, {"loss": 8.13, "grad_norm": 0.501, "memory_bytes": 1.5 * 1024**3, "tps": 7282, "tflops": 0.52,
            "mfu": 0.17}),
    Format("Transformers' Trainer", "{'loss': 2.3, 'grad_norm': 37.65, 'learning_rate': 5e-05, 'epoch': 0.1}", 100,
           {"loss": 2.3, "grad_norm": 37.65, "learning_rate": 5e-5}),
    Format("JSON", '{"step": 10, "loss": 1.5, "level": "INFO"}', 10, {"loss": 1.5}),
    Format("Lightning, tqdm", "Epoch 0:  50%|█████     | 10/20 [00:05<00:05,  2.00it/s, v_num=0, "
           "train_loss=0.512]", 10,
           {"train/loss": 0.512, "it_per_s": 2.0}),
    Format("Keras", "Epoch 2/5\n100/200 [======>.......] - ETA: 3s - loss: 0.5 - accuracy: 0.8", 300,
           {"loss": 0.5, "accuracy": 0.8}),
    Format("fairseq", "2026-01-02 03:04:05 | INFO | train_inner | epoch 001:    100 / 1103 loss=12.0, "
           "ppl=4100, wps=10000, "
           "num_updates=100, lr=1e-05", 100, {"loss": 12.0, "ppl": 4100, "wps": 10000, "lr": 1e-5}),
    Format("fairseq's JSON", '2026-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "update": 0.09, '
           '"loss": "12.0", '
           '"num_updates": "100", "lr": "1e-05"}', 100, {"loss": 12.0, "lr": 1e-5}),
    Format("Megatron-LM", " iteration       10/    1000 | consumed samples:  160 | elapsed time per "
           "iteration (ms): 123.4 | "
           "learning rate: 1.500E-04 | lm loss: 1.079E+01 | grad norm: 5.1 |", 10,
           {"elapsed_time_per_iteration_s": 0.1234, "learning_rate": 1.5e-4, "lm_loss": 10.79, "grad_norm": 5.1}),
    Format("DeepSpeed", "steps: 10 loss: 0.5123 iter time (s): 0.25 samples/sec: 512.0", 10,
           {"loss": 0.5123, "samples/sec": 512.0}),
    Format("fastai", "epoch     train_loss  valid_loss  accuracy  time\n0         0.512       0.421      "
           " 0.81      00:03", 0,
           {"train/loss": 0.512, "val/loss": 0.421, "accuracy": 0.81, "time": 3.0}),
    Format("YOLOv5", "     Epoch   gpu_mem       box       obj       cls    labels  img_size\n"
           "       1/2     3.36G   0.08937   0.05973   0.02212        35       640: 100%|██████| 20/20 "
           "[00:05<00:00,  4.50it/s]",
           1, {"gpu_mem": 3.36e9, "box": 0.08937, "obj": 0.05973, "cls": 0.02212}),
    Format("Ultralytics", "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
           "        1/5       1.2G        1.2        1.4       1.25         16        640: 100%|██████| "
           "20/20 [00:05<00:00,  4.5it/s]\n"
           "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): "
           "100%|██████| 4/4 [00:01<00:00]\n"
           "                   all        128        929      0.641      0.534      0.606      0.446", 1,
           {"box_loss": 1.2, "cls_loss": 1.4, "dfl_loss": 1.25, "val/precision": 0.641, "val/recall": 0.534,
            "val/map50": 0.606, "val/map50_95": 0.446}),
    Format("a table with lines", "| epoch | train_loss | valid_loss |\n|---|---|---|\n| 3 | 0.5 | 0.4 |", 3,
           {"train/loss": 0.5, "val/loss": 0.4}),
    Format("printed CSV", "step,epoch,loss\n10,0,0.5", 10, {"loss": 0.5}),
    Format("PaddleOCR", "[2026/01/02 03:04:05] ppocr INFO: epoch: [1/500], global_step: 10, lr: "
           "0.001000, acc: 0.1, loss: 25.1, "
           "avg_batch_cost: 0.5 s, ips: 128.00 samples/s, eta: 1 day, 2:03:04", 10,
           {"lr": 1e-3, "acc": 0.1, "loss": 25.1, "avg_batch_cost_s": 0.5, "samples_per_s": 128.0}),
    Format("torchtune", "\r2|57|Loss: 1.25:  35%|███       | 7/20 [00:05<00:05,  2.00it/s]", 7, {"loss": 1.25}),
    Format("open_clip", "2026-01-02,03:04:05 | INFO | Train Epoch: 0 [  640/1280 (50%)] Data (t): 0.010 "
           "Batch (t): 0.250, 128.0/s, 64.0/s/gpu LR: 0.000100 Logit Scale: 14.286 "
           "Contrastive_loss: 0.9 (0.95) Loss: 1.1 (1.2)", 640,
           {"train/data_t": 0.01, "train/batch_t": 0.25, "train/per_s": 128.0, "train/per_s_gpu": 64.0,
            "train/lr": 1e-4, "train/logit_scale": 14.286, "train/contrastive_loss": 0.9, "train/loss": 1.1}),
    Format("verl", "step:12 - train/loss:0.25 - train/lr(1e-3):0.0100 - critic/rewards/mean:0.5 - timing_s/step:1.5",
           12,
           {"train/loss": 0.25, "train/lr(1e-3)": 0.01, "critic/rewards/mean": 0.5, "timing_s/step": 1.5}),
    Format("ESPnet", "[gpu3:0/4] 2026-01-02 03:04:05,678 (trainer:737) INFO: 2epoch:train:6-10batch: "
           "iter_time=2.5e-04, loss_ctc=30.5, acc=0.25, loss=20.5, optim0_lr0=1.5e-05", 10,
           {"train/iter_time": 2.5e-4, "train/loss_ctc": 30.5, "train/acc": 0.25, "train/loss": 20.5,
            "train/optim0_lr0": 1.5e-5}),
    Format("icefall", "2026-01-02 03:04:05,678 INFO [train.py:907] (0/2) Epoch 1, batch 50, loss[loss=0.5, "
           "pruned_loss=0.2, over 493.00 frames. ], tot_loss[loss=0.6, pruned_loss=0.3, over 9000.05 frames. ], "
           "batch size: 9, lr: 3.5e-04",
           50, {"loss": 0.5, "loss/pruned_loss": 0.2, "tot_loss": 0.6, "tot_loss/pruned_loss": 0.3, "lr": 3.5e-4}),
    Format("DLLogger", "DLL 2026-01-02 03:04:05.678901 - Training Epoch: 1 Training Iteration: 40  average_loss : 2.5  "
           "step_loss : 2.25  learning_rate : 0.0004", 40,
           {"train/average_loss": 2.5, "train/step_loss": 2.25, "train/learning_rate": 4e-4}),
    Format("DeepSpeed's engine", "[2026-01-02 03:04:05,678] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, "
           "skipped=0, lr=[1e-05, 2e-05], mom=[[0.9, 0.95], [0.8, 0.85]]\n"
           "[2026-01-02 03:04:05,678] [INFO] [timer.py:215:stop] epoch=0/micro_step=20/global_step=10, "
           "RunningAvgSamplesPerSec=7.5, MemAllocated=1.50GB", 10,
           {"lr": 1e-5, "lr[1]": 2e-5, "mom": 0.9, "mom[1]": 0.95, "mom[3]": 0.85, "runningavgsamplespersec": 7.5,
            "memallocated_bytes": 1.5 * 1024**3}),
)  # fmt: skip
