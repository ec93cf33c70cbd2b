#!/usr/bin/python3
"""`hearth-trainer eval` on a GPU against the same on the CPU, for a machine with a GPU:

  HEARTH_BIN_DIR=build/release/bin /usr/bin/python3 tests/numerics/evaluate_gpu.py [--device cuda:0] [--preset hearth-112m]

Trains a small model (or the preset, which takes a while on the CPU) on the device, then asks 200 items of each task and measures the loss,
in bf16 on both. Exit status 1 when something is out of its bounds. The last lines are the speed on the device."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "integration")]
import evaluate_reference as reference  # noqa: E402  (needs the path)
import harness  # noqa: E402

SEED, ITEMS, LENGTH = 20, 200, 192
# Both round activations to bf16 (2^-9 relative), in another order of sums: a log-likelihood of some tens of tokens moves by less than
# 1 %, the mean over thousands of tokens by less than 0.2 %.
LL_RELATIVE, LL_ABSOLUTE, LOSS_RELATIVE, GREEDY_SHARE = 0.01, 0.05, 2e-3, 0.98
SMALL = {"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn_hidden": 256, "vocab": 257, "qk_norm": True}


def run(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))} exited {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(folder, device, preset):
    texts, data, job, out = (os.path.join(folder, name) for name in ("texts.jsonl", "data", "job.yaml", "run"))
    reference.write_items(texts, [{"text": i["text"]} for i in reference.make_items("lambada", 2000, SEED + 1)])
    run(harness.program("jobctl"), "dataset", "build", "--input", texts, "--field", "text", "--tokenizer", "bytes", "--out", data)
    spec = harness.tiny_job(data, steps=100, workers=1, data={"train": data, "sequence_length": LENGTH},
                            batch={"micro_batch_size": 16, "global_batch_tokens": 16 * LENGTH}, precision={"recipe": "bf16"},
                            checkpoint={"every_steps": 0}, resources={"device": device.split(":")[0]})
    spec["model"] = {"preset": preset} if preset else SMALL
    with open(job, "w") as f:
        json.dump(spec, f)
    run(harness.program("hearth-trainer"), "run", job, "--out", out, "--device", device)
    return os.path.join(out, "checkpoints", max(os.listdir(os.path.join(out, "checkpoints")))), data


def evaluate(model, device, *args):
    return json.loads(run(harness.program("hearth-trainer"), "eval", model, "--device", device, "--recipe", "bf16", "-o", "json", *args))


def details(folder, model, device, task, path):
    out = os.path.join(folder, "details.jsonl")
    result = evaluate(model, device, "--task", task, "--items", path, "--details", out)
    with open(out) as f:
        return result, [json.loads(line) for line in f]


def compare(folder, model, device, task):
    """Texts of what is out of bounds."""
    path = os.path.join(folder, task + ".jsonl")
    reference.write_items(path, reference.make_items(task, ITEMS, SEED))
    (cpu, cpu_rows), (gpu, gpu_rows) = (details(folder, model, where, task, path) for where in ("cpu", device))
    a, b = (np.concatenate([row["log_likelihoods"] for row in rows]) for rows in (cpu_rows, gpu_rows))
    greedy = np.mean(np.concatenate([row["greedy"] for row in cpu_rows]) == np.concatenate([row["greedy"] for row in gpu_rows]))
    excess = np.max(np.abs(a - b) - LL_RELATIVE * np.abs(a))
    print(f"{task:10} acc {cpu['acc']['value']:.4f} on the CPU, {gpu['acc']['value']:.4f} on {device}; log-likelihoods differ by "
          f"{np.max(np.abs(a - b) / np.abs(a)):.2%} at most, {np.median(np.abs(a - b) / np.abs(a)):.3%} in the median; greedy alike {greedy:.1%}")
    problems = []
    if excess > LL_ABSOLUTE:
        problems.append(f"{task}: log-likelihoods differ by {excess:.4f} more than {LL_RELATIVE:.0%}")
    if greedy < GREEDY_SHARE:
        problems.append(f"{task}: only {greedy:.1%} of the greedy flags agree")
    if cpu["cut_items"] != gpu["cut_items"]:
        problems.append(f"{task}: {cpu['cut_items']} and {gpu['cut_items']} items are cut")
    # An item may change sides only if its two best choices are within the bounds of one another.
    for x, y in zip(cpu_rows, gpu_rows):
        p, q = np.array(x["log_likelihoods"]), np.array(y["log_likelihoods"])
        if p.argmax() != q.argmax() and p.max() - p[q.argmax()] > 2 * (LL_ABSOLUTE + LL_RELATIVE * np.abs(p).max()):
            problems.append(f"{task}: {x['item']} is answered otherwise though its choices are far apart")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--preset", help="a model of this preset instead of a small one")
    args = parser.parse_args()
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        model, data = train(folder, args.device, args.preset)
        for task in reference.TASKS:
            problems += compare(folder, model, args.device, task)
        cpu, gpu = (evaluate(model, where, "--data", data, "--batches", 20)["all"] for where in ("cpu", args.device))
        print(f"loss {cpu['loss']:.6f} on the CPU, {gpu['loss']:.6f} on {args.device}; {gpu['bits_per_byte']:.4f} bits a byte")
        if abs(gpu["loss"] / cpu["loss"] - 1) > LOSS_RELATIVE or gpu["bytes"] != cpu["bytes"]:
            problems.append("the losses or bytes of the data differ")
        path = os.path.join(folder, "many.jsonl")
        reference.write_items(path, reference.make_items("hellaswag", 10000, SEED))
        for batch in ([], ["--batch", 1]):
            begin = time.monotonic()
            evaluate(model, args.device, "--task", "hellaswag", "--items", path, *batch)
            seconds = time.monotonic() - begin
            chosen = " ".join(map(str, batch)) or "batch chosen"
            print(f"10000 items of hellaswag, {chosen}: {seconds:.1f} s with loading, {10000 / seconds:.0f} items/s")
    print("\n".join(problems) or "all within bounds")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
