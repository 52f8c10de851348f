"""Is each framework's progress read, in SI? The lines have the frameworks' forms and numbers made up here."""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from typing import Any

import pytest

from tests.fakes.progress_logs import megatron_line, read_log

GIB = float(1 << 30)

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "megatron of 2020, without batch": (
        "megatron-lm",
        " iteration       20/    1000 | elapsed time per iteration (ms): 1500.0 | learning rate: 1.000E-04 | "
        "lm loss: 3.500000E+00 | loss scale: 1024.0 | number of skipped iterations:   0 |\n",
        {"iteration": 20, "total_iterations": 1000, "step_s": 1.5, "lr": 1e-4, "loss": 3.5, "samples_per_s": None},
    ),
    "megatron core, with TFLOP/s and a stamp": (
        "megatron-lm",
        megatron_line(100, step_ms=4000, batch=256, tflops=412.5, stamp="[2026-08-22 15:22:22.500000]") + "\n",
        {"iteration": 100, "step_s": 4.0, "tflops_per_gpu": 412.5, "samples_per_s": 64.0, "at_unix_s": 1787412142.5},
    ),
    "megatron of AMD, now and mean": (
        "megatron-lm",
        " iteration      100/    5000 | consumed samples: 12800 | elapsed time per iteration (ms): "
        "2500.0/2600.0 | hip mem "
        "usage/free/total/usage_ratio: 153.50GB/102.50GB/256.00GB/60.0% | throughput per GPU "
        "(TFLOP/s/GPU): 500.0/490.0 "
        "| tokens per GPU (tokens/s/GPU): 9000.5/8900.0 | learning rate: 1.0E-05 | global batch size: 128 | lm loss: "
        "6.5E+00 | mtp_1 loss: 7.0E+00 | load_balancing_loss: 1.0E+00 | grad norm: 0.061 |\n",
        {
            "step_s": 2.5,
            "tflops_per_gpu": 500.0,
            "tokens_per_s_per_gpu": 9000.5,
            "memory_bytes": 153.5 * GIB,
            "loss": 6.5,
            "samples_per_s": 51.2,
        },
    ),
    "megatron-deepspeed, seconds and tgs": (
        "megatron-deepspeed",
        "[default7]: iteration 200/ 1000 | consumed samples: 9216 | consumed tokens: 18874368 | elapsed time per "
        "iteration (s): 20.50 | global batch size: 1536 | lm loss: 1.1E+01 | actual seqlen:  2048 | "
        "samples per second: "
        "75.000 | tokens per gpu per second (tgs): 140.5 | TFLOPs: 153.38 |\n",
        {
            "step_s": 20.5,
            "samples_per_s": 75.0,
            "tokens_per_s_per_gpu": 140.5,
            "tflops_per_gpu": 153.38,
            "tokens_per_s": 1536 * 2048 / 20.5,
            "rank": 7,
        },
    ),
    "megatron-bridge, speed on the line before": (
        "megatron-bridge",
        "Step Time : 9.50s GPU utilization: 431.5MODEL_TFLOP/s/GPU\n" + megatron_line(3, step_ms=9500) + "\n",
        {"step_s": 9.5, "tflops_per_gpu": 431.5},
    ),
    "gpt-neox": (
        "gpt-neox",
        " samples/sec: 51.200 | iteration       10/      50 | elapsed time per iteration (ms): "
        "10000.0 | learning rate: "
        "1.2E-04 | approx flops per GPU: 150.5TFLOPS | lm_loss: 7.5E+00 | number of nan iterations:   0 |\n",
        {"iteration": 10, "step_s": 10.0, "samples_per_s": 51.2, "tflops_per_gpu": 150.5, "loss": 7.5},
    ),
    "nemo 2": (
        "nemo",
        "0: Training epoch 0, iteration 45/99 | lr: 6.9e-06 | global_batch_size: 128 | global_step: 45 | "
        "max_memory_allocated: 115000000000 | reduced_train_loss: 11.5 | train_step_timing in s: 6.4 | TFLOPS_per_GPU: "
        "1.25e+03 | consumed_samples: 5888 | val_loss: 4.1\n",
        {
            "iteration": 45,
            "total_iterations": 100,
            "step_s": 6.4,
            "tflops_per_gpu": 1250.0,
            "memory_bytes": 115e9,
            "loss": 11.5,
            "samples_per_s": 20.0,
            "rank": 0,
        },
    ),
    "nemo 1, a bar": (
        "nemo",
        "\rEpoch 0:   1%|1   | 795/77225 [9:07:58<878:01:48, 41.50s/it, loss=3.1, v_num=, reduced_train_loss=3.250, "
        "global_step=794.0, consumed_samples=1.63e+6]\r",
        {"iteration": 794, "step_s": 41.5, "loss": 3.25},
    ),
    "torchtitan, coloured": (
        "torchtitan",
        "[rank3]:2025-03-04 00:44:44,500 - root - INFO - \x1b[31mstep: 1,990  \x1b[32mloss:  3.5000 "
        " \x1b[33mgrad_norm:  "
        "0.2500  \x1b[38mmemory: 68.50GiB(86.69%)  \x1b[34mtps: 6,785  \x1b[36mtflops: 401.25  "
        "\x1b[35mmfu: 40.57%\x1b[39m\n",
        {
            "iteration": 1990,
            "loss": 3.5,
            "grad_norm": 0.25,
            "memory_bytes": 68.5 * GIB,
            "tokens_per_s_per_gpu": 6785.0,
            "tflops_per_gpu": 401.25,
            "rank": 3,
            "tokens_per_s": None,
        },
    ),
    "nanotron": (
        "nanotron",
        "[default0]:07/01/2026 10:00:00 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: 10 / 1000 | consumed_tokens: 41.9M | "
        "time_per_iteration_ms: 1.25K | tokens_per_sec: 32K | tokens_per_sec_per_gpu: 4K | global_batch_size: 40K | "
        "lm_loss: 9.5 | lr: 3e-05 | model_tflops_per_gpu: 210 | hardware_tflops_per_gpu: 220 | "
        "grad_norm: 1.5 | eta: 3:02:01\n",
        {
            "iteration": 10,
            "total_iterations": 1000,
            "step_s": 1.25,
            "tokens_per_s": 32e3,
            "tokens_per_s_per_gpu": 4e3,
            "tflops_per_gpu": 210.0,
            "grad_norm": 1.5,
        },
    ),
    "picotron": (
        "picotron",
        "[rank 0] Step: 5     | Loss: 10.5000 | Global batch size:   1.05M | Tokens/s:  105K | Tokens/s/GPU:   13.1K | "
        "Tokens:   5.24M | MFU: 38.20% | Memory usage:  12.30GB\n",
        {
            "iteration": 5,
            "loss": 10.5,
            "tokens_per_s": 105e3,
            "tokens_per_s_per_gpu": 13.1e3,
            "step_s": 10.0,
            "memory_bytes": 12.3e9,
        },
    ),
    "maxtext": (
        "maxtext",
        "completed step: 10, seconds: 1.250, TFLOP/s/device: 412.500, Tokens/s/device: 12345.500, "
        "total_weights: 65536, "
        "loss: 9.125\n",
        {"iteration": 10, "step_s": 1.25, "tflops_per_gpu": 412.5, "tokens_per_s_per_gpu": 12345.5, "loss": 9.125},
    ),
    "torchtune": (
        "torchtune",
        "Step 33 | loss:1.5 lr:9.9e-05 tokens_per_second_per_gpu:1012.5 peak_memory_alloc:4.5 "
        "peak_memory_active:4.0 \n",
        {"iteration": 33, "loss": 1.5, "lr": 9.9e-5, "tokens_per_s_per_gpu": 1012.5, "memory_bytes": 4.5 * GIB},
    ),
    "fms-fsdp": (
        "fms-fsdp",
        "step: 100\nloss: 5.25\nLR: 0.0003\ntokens seen: 209715200\ngradient norm: 0.5\nreserved memory: 70000000000\n"
        "allocated memory: 60000000000\ncurrent step time: 1.5\noverall step time: 1.6\ncurrent token per gpu per sec: "
        "10922.5\noverall token per gpu per sec: 10000\noverall token per day: 1000\n",
        {
            "iteration": 100,
            "loss": 5.25,
            "lr": 3e-4,
            "step_s": 1.5,
            "tokens_per_s_per_gpu": 10922.5,
            "memory_bytes": 60e9,
        },
    ),
    "composer": (
        "composer",
        "[batch=100/4800]:\n\t Train time/batch: 99\n\t Train loss/train/total: 7.2500\n\t Train "
        "throughput/batches_per_sec: 0.5000\n\t Train throughput/samples_per_sec: 128.0000\n\t Train "
        "throughput/device/tokens_per_sec: 16384.0\n\t Train throughput/tokens_per_sec: 262144.0\n\t Train "
        "throughput/device/flops_per_sec: 400000000000000.0\n\t Train memory/peak_allocated_mem: 40.5\n\t Train "
        "lr-DecoupledAdamW/group0: 0.0001\n",
        {
            "iteration": 100,
            "total_iterations": 4800,
            "step_s": 2.0,
            "samples_per_s": 128.0,
            "tokens_per_s": 262144.0,
            "tokens_per_s_per_gpu": 16384.0,
            "tflops_per_gpu": 400.0,
            "memory_bytes": 40.5e9,
            "loss": 7.25,
        },
    ),
    "olmo": (
        "olmo",
        "[2024-04-17 09:42:38] INFO     [olmo.train:816, rank=0] [step=2/739328]\n    train/CrossEntropyLoss=10.75\n"
        "    train/Perplexity=46,600\n    throughput/total_tokens=8,388,608\n    throughput/device/tokens_per_second="
        "45,538\n    throughput/device/batches_per_second=0.0800\n    System/Peak GPU Memory (MB)=43,309\n",
        {
            "iteration": 2,
            "total_iterations": 739328,
            "step_s": 12.5,
            "tokens_per_s_per_gpu": 45538.0,
            "memory_bytes": 43309e6,
            "loss": 10.75,
        },
    ),
    "AWS's FSDP": (
        "pytorch-fsdp",
        "0: 2025-06-17 16:24:55 I [train.py:103] Batch 1 Loss: 11.64398, Speed: 10.90 samples/sec, lr: 0.000100\n",
        {"iteration": 1, "loss": 11.64398, "samples_per_s": 10.9, "lr": 1e-4, "rank": 0, "at_unix_s": 1750177495.0},
    ),
    "deepspeed's timer": (
        "deepspeed",
        "[2026-08-22 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05, 1e-05], "
        "mom=[(0.9, 0.999)]\n[2026-08-22 10:00:00,123] [INFO] [timer.py:264:stop] "
        "epoch=0/micro_step=40/global_step=10, "
        "RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.5, MemAllocated=3.2GB, MaxMemAllocated=20.5GB\n",
        {"iteration": 10, "samples_per_s": 12.5, "memory_bytes": 20.5 * GIB, "lr": 1e-5},
    ),
    "deepspeed's pipeline engine": (
        "deepspeed",
        "steps: 10 loss: 2.1250 iter time (s): 1.250 samples/sec: 204.800\n",
        {"iteration": 10, "loss": 2.125, "step_s": 1.25, "samples_per_s": 204.8},
    ),
    "huggingface, dict behind the bar": (
        "hf-trainer",
        "  1%|1         | 12/1000 [00:30<41:10,  2.50s/it]\r\n{'loss': 2.25, 'grad_norm': 1.5, "
        "'learning_rate': 4.9e-05, "
        "'epoch': 0.12}\n",
        {"iteration": 12, "total_iterations": 1000, "step_s": 2.5, "loss": 2.25, "grad_norm": 1.5, "lr": 4.9e-5},
    ),
    "huggingface, quoted numbers and no bar": (
        "hf-trainer",
        "{'loss': '2.25', 'grad_norm': 'nan', 'learning_rate': '4.9e-05', 'epoch': '0.12'}\n",
        {"iteration": None, "loss": 2.25, "step_s": None},
    ),
    "trl, dict on the line of the bar": (
        "trl",
        " 10%|#  | 10/100 [00:31<03:44,  4.00it/s]{'loss': 0.5, 'learning_rate': 1e-06, 'num_tokens': 81920.0, "
        "'mean_token_accuracy': 0.8, 'epoch': 0.1}\n 11%|#  | 11/100 [00:31<03:44,  4.00it/s]\r",
        {"iteration": 10, "loss": 0.5, "step_s": 0.25},
    ),
    "llama-factory's own log": (
        "llama-factory",
        '{"current_steps": 10, "total_steps": 100, "loss": 0.75, "lr": 0.0001, "epoch": 0.1, "percentage": 10.0, '
        '"elapsed_time": "0:01:10", "remaining_time": "0:10:00", "throughput": 1234.5, "total_tokens": 86400}\n',
        {"iteration": 10, "total_iterations": 100, "loss": 0.75, "tokens_per_s": 1234.5, "lr": 1e-4},
    ),
    "verl": (
        "verl",
        "(TaskRunner pid=1234) step:3 - actor/pg_loss:0.125 - actor/grad_norm:0.5 - perf/max_memory_allocated_gb:60.5 "
        "- timing_s/gen:40.0 - timing_s/step:93.5 - perf/throughput:1234.5\n",
        {"iteration": 3, "step_s": 93.5, "tokens_per_s_per_gpu": 1234.5, "loss": 0.125, "memory_bytes": 60.5 * GIB},
    ),
    "a bar of an accelerate script": (
        "progress-bar",
        "Steps:  10%|#         | 100/1000 [00:50<07:30,  2.00it/s, step_loss=0.1, loss=0.125, lr=1e-5]\r",
        {"iteration": 100, "total_iterations": 1000, "step_s": 0.5, "loss": 0.125, "lr": 1e-5},
    ),
    "nanoGPT": (
        "nanogpt",
        "iter 120: loss 3.2500, time 250.00ms, mfu 38.20%\n",
        {"iteration": 120, "loss": 3.25, "step_s": 0.25},
    ),
    "llm.c": (
        "llm.c",
        "step  120/18865 | loss 7.500000 (+1.20z)| norm 1.2500 (+0.10z)| lr 1.03e-04 | 250.00 ms | 55.1% bf16 MFU | "
        "2097152 tok/s\n",
        {
            "iteration": 120,
            "total_iterations": 18865,
            "loss": 7.5,
            "grad_norm": 1.25,
            "step_s": 0.25,
            "tokens_per_s": 2097152.0,
        },
    ),
    "modded-nanogpt": (
        "modded-nanogpt",
        "step:120/5100 train_loss:3.2500 train_time:13200ms step_avg:120.50ms\n",
        {"iteration": 120, "total_iterations": 5100, "loss": 3.25, "step_s": 0.1205},
    ),
    "nanochat": (
        "nanochat",
        "step 00120/21400 (0.56%) | loss: 3.250000 | grad norm: 0.5000 | lrm: 1.00 | dt: 520.25ms | tok/sec: 1,007,614 | "
        "mfu: 45.10 | total time: 1.04m\n",
        {"iteration": 120, "total_iterations": 21400, "loss": 3.25, "step_s": 0.52025, "tokens_per_s": 1007614.0},
    ),
    "fairseq": (
        "fairseq",
        "2026-01-05 10:00:00 | INFO | train_inner | epoch 001:    450 / 1891 loss=11.521, nll_loss=10.881, ppl=1886.05, "
        "wps=50000, ups=0.5, wpb=100000, bsz=5000, num_updates=445, lr=8.90889e-05, gnorm=1.543, clip=0, loss_scale=2, "
        "train_wall=84, wall=882\n",
        {
            "iteration": 445,
            "loss": 11.521,
            "tokens_per_s": 50000.0,
            "step_s": 2.0,
            "samples_per_s": 2500.0,
            "lr": 8.90889e-5,
            "grad_norm": 1.543,
        },
    ),
    "fairseq of 2018, without updates": (
        "fairseq",
        "| epoch 011  1000 / 8223 loss=1.89 (1.38), wps=1000, wpb=500, bsz=32, lr=0.001, clip=100%, gnorm=2.0860\n",
        {"iteration": 83230, "loss": 1.89, "tokens_per_s": 1000.0, "step_s": 0.5, "grad_norm": 2.086},
    ),
    "fairseq, JSON": (
        "fairseq",
        '{"epoch": 27, "update": 26.267, "loss": "8.206", "ppl": "132.47", "wps": "1200", "ups": "1.62", "wpb": "600", '
        '"bsz": "46.4", "num_updates": "33700", "lr": "0.00017", "gnorm": "1.833", "train_wall": "61", "wall": "30542"}\n',
        {"iteration": 33700, "loss": 8.206, "tokens_per_s": 1200.0, "step_s": 0.5},
    ),
    "levanter": (
        "levanter",
        "2026-01-05T10:00:00 - 0 - tqdm_loggable.tqdm_logging - tqdm_logging.py:145 - INFO :: Progress on:train "
        "130it/10.0kit rate:1.25s/it remaining:3:01:22 elapsed:02:24 postfix:loss=10.5\n",
        {"iteration": 130, "total_iterations": 10000, "step_s": 1.25, "loss": 10.5},
    ),
    "levanter, beyond 999": (
        "levanter",
        "INFO - Progress on:train 1.23kit/10.0kit rate:2.0it/s remaining:3:01:22 elapsed:02:24 postfix:loss=3.5\n",
        {"iteration": 1230, "step_s": 0.5, "loss": 3.5},
    ),
    "paddlenlp": (
        "paddlenlp",
        "[2024-03-03 18:06:33,568] [    INFO] - loss: 1.08, learning_rate: 4e-08, global_step: 10, interval_runtime: 4.87, "
        "interval_samples_per_second: 6.5, interval_steps_per_second: 0.25, progress_or_epoch: 0.0008\n",
        {"iteration": 10, "loss": 1.08, "step_s": 4.0, "samples_per_s": 6.5, "lr": 4e-8},
    ),
    "swin": (
        "swin",
        "[2022-03-14 09:05:16 swin_tiny] (main.py 226): INFO Train: [14/300][250/1251]\teta 0:10:52 lr 0.000710\t"
        "time 0.6408 (0.6516)\tloss 6.5584 (6.3074)\tgrad_norm 6.5613 (10.6225)\tmem 14764MB\n",
        {
            "iteration": 14 * 1251 + 250,
            "total_iterations": 300 * 1251,
            "step_s": 0.6408,
            "loss": 6.5584,
            "lr": 7.1e-4,
            "grad_norm": 6.5613,
            "memory_bytes": 14764 * GIB / 1024,
        },
    ),
    "timm": (
        "timm",
        "Train: 2 [  50/1251 (  4%)]  Loss: 6.93 (6.94)  Time: 0.405s, 2529.18/s  (0.428s, 2392.78/s)  LR: 1.000e-06  "
        "Data: 0.013 (0.038)\n",
        {"iteration": 2552, "loss": 6.93, "step_s": 0.405, "samples_per_s": 2529.18, "lr": 1e-6},
    ),
    "DeiT, MAE, torchvision": (
        "torchvision",
        "Epoch: [1]  [  10/1251]  eta: 0:20:12  lr: 0.000001  loss: 6.9231 (6.9350)  time: 0.8912  data: 0.0003  "
        "max mem: 9123\n",
        {"iteration": 1261, "loss": 6.9231, "step_s": 0.8912, "lr": 1e-6, "memory_bytes": 9123 * GIB / 1024},
    ),
    "lerobot": (
        "lerobot",
        "INFO 2026-01-05 10:00:00 ts/train.py:232 step:200 smpl:2K ep:3 epch:0.16 loss:7.490 grdn:154.502 lr:1.0e-05 "
        "updt_s:0.047 data_s:0.002\n",
        {"iteration": 200, "loss": 7.49, "grad_norm": 154.502, "lr": 1e-5, "step_s": pytest.approx(0.049)},
    ),
    "lerobot, rounded": (
        "lerobot",
        "INFO 2026-01-05 10:00:00 ot_train.py:488 step:30K smpl:120K ep:134 epch:2.23 loss:0.019 grdn:0.637 lr:2.5e-06 "
        "updt_s:1.697 data_s:0.005\n",
        {"iteration": None, "loss": 0.019},
    ),
    "openpi": (
        "openpi",
        "Step 100: grad_norm=1.0014, loss=0.0785, param_norm=1379.7463\n",
        {"iteration": 100, "loss": 0.0785, "grad_norm": 1.0014},
    ),
    "openpi in PyTorch": (
        "openpi",
        "12:00:00.123 [I] step=100 loss=0.0512 lr=2.50e-05 grad_norm=0.31 time=41.3s\n",
        {"iteration": 100, "loss": 0.0512, "step_s": None},
    ),
    "corenet": (
        "corenet",
        "2026-01-05 10:00:00 - LOGS    - Epoch:   1 [     124/10000000], loss: {'classification': 15.6791, 'total_loss': "
        "16.0816}, LR: [1.3e-05], Avg. batch load time: 0.899, Elapsed time:  1.07\n",
        {"iteration": 124, "total_iterations": 10000000, "loss": 16.0816},
    ),
    "PyTorch's ImageNet example": (
        "pytorch-imagenet",
        "Epoch: [0][  10/5005]\tTime  0.345 ( 0.567)\tData  0.000 ( 0.123)\tLoss 6.9321e+00 (7.0001e+00)\t"
        "Acc@1   0.00 (  0.09)\tAcc@5   0.39 (  0.46)\n",
        {"iteration": 10, "step_s": 0.345, "loss": 6.9321},
    ),
    "detectron2": (
        "detectron2",
        "[12/20 18:16:09 d2.utils.events]:  eta: 19:46:55  iter: 4959  total_loss: 10.31  loss_ce: 0.8514  time: 0.2815  "
        "data_time: 0.0115  lr: 2.5e-05  max_mem: 5418M\n",
        {"iteration": 4959, "loss": 10.31, "step_s": 0.2815, "lr": 2.5e-5, "memory_bytes": 5418 * GIB / 1024},
    ),
    "mmengine": (
        "mmengine",
        "01/05 10:00:00 - mmengine - INFO - Epoch(train)  [2][  50/1250]  lr: 1.0000e-02  eta: 1:20:10  time: 0.3100  "
        "data_time: 0.0500  memory: 3401  loss: 1.2500\n",
        {"iteration": 1300, "loss": 1.25, "step_s": 0.31, "lr": 1e-2, "memory_bytes": 3401 * GIB / 1024},
    ),
    "after mmcv, with the number of epochs": (
        "mmengine",
        "2025-01-05 10:00:00,000 - INFO - Epoch [2/70][50/1250]  lr: 0.0001, eta: 3 days, 8:13:59, data_time: 0.04, "
        "iter_time: 1.44, mask_loss: 0.0740, loss: 0.5122\n",
        {"iteration": 1300, "total_iterations": 87_500, "loss": 0.5122, "step_s": 1.44, "lr": 1e-4},
    ),
    "mmcv, by iteration": (
        "mmengine",
        "2022-01-05 10:00:00,000 - mmseg - INFO - Iter [50/160000]\tlr: 9.997e-03, eta: 1 day, 1:20:10, time: 0.310, "
        "data_time: 0.050, memory: 3401, loss: 1.2500\n",
        {"iteration": 50, "total_iterations": 160000, "loss": 1.25, "step_s": 0.31},
    ),
    "keras 3": (
        "keras",
        "Epoch 2/10\n 100/1250 ━━━━━━━━━━━━━━━━━━━━ 11s 10ms/step - accuracy: 0.9000 - loss: 0.2500\r",
        {"iteration": 1350, "total_iterations": 12500, "step_s": 0.01, "loss": 0.25},
    ),
    "keras 2, an epoch that is done": (
        "keras",
        "Epoch 1/10\n1250/1250 [==============================] - 12s 10ms/step - loss: 0.2500 - val_loss: 0.4\n",
        {"iteration": 1250, "step_s": 0.01, "loss": 0.25},
    ),
    "ms-swift": (
        "ms-swift",
        "{'loss': 0.25, 'grad_norm': 0.5, 'learning_rate': 6.8e-07, 'memory(GiB)': 63.5, 'train_speed(iter/s)': 0.0125, "
        "'rewards/chosen': 4.8, 'epoch': 0.89, 'global_step/max_steps': '78/176', 'percentage': '44.32%', "
        "'elapsed_time': '1h 54m 53s', 'remaining_time': '2h 24m 21s'}\n",
        {"iteration": 78, "loss": 0.25, "step_s": 80.0, "memory_bytes": 63.5 * GIB},
    ),
    "a bar of Lightning": (
        "lightning",
        "Epoch 0:  10%|█         | 100/1000 [00:50<07:30,  2.00it/s, v_num=0, train_loss=0.125]\r",
        {"iteration": 100, "step_s": 0.5, "loss": 0.125},
    ),
    "a bar of torchtune": (
        "torchtune",
        "1|33|Loss: 1.5:   2%|2         | 33/1617 [00:50<40:30,  2.00it/s]\r",
        {"iteration": 33, "step_s": 0.5, "loss": 1.5},
    ),
    "a bar of OpenRLHF": (
        "openrlhf",
        "Train epoch [1/2]:  10%|#         | 100/1000 [00:50<07:30,  2.00s/it, gpt_loss=0.25, loss_mean=0.3, lr=1e-5]\r",
        {"iteration": 100, "step_s": 2.0, "loss": 0.25, "lr": 1e-5},
    ),
    "key=value": (
        "generic",
        "INFO step=7 loss=1.5 step_time=0.75s tokens_per_sec=1.2K lr=1e-3\n",
        {"iteration": 7, "loss": 1.5, "step_s": 0.75, "tokens_per_s": 1200.0, "lr": 1e-3},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_line_of_a_framework(name: str) -> None:
    framework, text, expected = CASES[name]
    reader, steps, _ = read_log(text)
    assert reader.framework == framework
    found = {key: getattr(steps[0], key) for key in expected}
    assert found == {key: value if value is None else pytest.approx(value) for key, value in expected.items()}
