#!/usr/bin/env python3
"""Lays Hearth's run beside PyTorch's (torch_gpu.py): loss of every step, and gradients of step 1 tensor by tensor.

  compare.py HEARTH/metrics.jsonl TORCH/metrics.jsonl [--gradients HEARTH TORCH]
             [--steps 200] [--loss 0.01] [--cosine 0.999]

Gradients are safetensors files, or folders with model.safetensors as `hearth-trainer run ... --dump-gradients FOLDER` makes: Hugging Face
names, fp32, before clipping. Exit status: 0 within
both bounds, 1 not, or steps or tensors are missing. Needs numpy.
"""
import argparse
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import metrics_file  # noqa: E402
import tensor_file  # noqa: E402


def read_gradients(path):
    return tensor_file.read(os.path.join(path, "model.safetensors") if os.path.isdir(path) else path)


def compare_losses(ours, theirs, steps, bound):
    missing = [s for s in range(1, steps + 1) if s not in ours or s not in theirs]
    if missing:
        print(f"loss: {len(missing)} of {steps} steps are missing, first {missing[0]}")
        return False
    gaps = {s: abs(ours[s]["loss"] - theirs[s]["loss"]) / abs(theirs[s]["loss"]) for s in range(1, steps + 1)}
    shown = sorted({1, 2, 5, 10, 20, 50, 100, steps} | {max(gaps, key=gaps.get)})
    print("step      hearth       torch     gap")
    for s in (s for s in shown if s <= steps):
        print(f"{s:4d}  {ours[s]['loss']:10.6f}  {theirs[s]['loss']:10.6f}  {100 * gaps[s]:6.3f} %")
    worst = max(gaps, key=gaps.get)
    # NaN compares false with everything, so a bound must be met, not "not exceeded".
    good = all(gap <= bound for gap in gaps.values())
    print(f"loss: largest gap {100 * gaps[worst]:.3f} % at step {worst}, mean {100 * sum(gaps.values()) / steps:.4f} %; "
          f"bound {100 * bound:g} %: {'ok' if good else 'FAILED'}")
    return good


def compare_gradients(ours, theirs, bound):
    if set(ours) != set(theirs):
        print("gradients: tensors differ: only in the first " + str(sorted(set(ours) - set(theirs))[:5]) + ", only in the second " +
              str(sorted(set(theirs) - set(ours))[:5]))
        return False
    rows = []
    for name in theirs:
        a, b = ours[name].astype(np.float64).ravel(), theirs[name].astype(np.float64).ravel()
        if a.shape != b.shape:
            print(f"gradients: {name} has shapes {ours[name].shape} and {theirs[name].shape}")
            return False
        norms = np.linalg.norm(a), np.linalg.norm(b)
        both_zero = norms[0] == 0 and norms[1] == 0
        rows.append((1.0 if both_zero else float(a @ b / (norms[0] * norms[1])) if all(norms) else 0.0,
                     1.0 if both_zero else norms[0] / norms[1] if norms[1] else float("inf"), name))
    rows.sort(key=lambda row: -2.0 if np.isnan(row[0]) else row[0])
    print("  cosine  norm ratio  tensor (the ten furthest)")
    for cosine, ratio, name in rows[:10]:
        print(f"{cosine:8.6f}  {ratio:10.6f}  {name}")
    good = all(cosine >= bound for cosine, _, _ in rows)
    print(f"gradients: {len(rows)} tensors, smallest cosine {rows[0][0]:.6f} ({rows[0][2]}); bound {bound}: {'ok' if good else 'FAILED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("hearth")
    parser.add_argument("torch")
    parser.add_argument("--gradients", nargs=2, metavar=("HEARTH", "TORCH"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--loss", type=float, default=0.01, help="largest relative gap of a step's loss")
    parser.add_argument("--cosine", type=float, default=0.999, help="smallest cosine of a tensor's gradients")
    args = parser.parse_args()
    good = compare_losses(metrics_file.read(args.hearth), metrics_file.read(args.torch), args.steps, args.loss)
    if args.gradients:
        good = compare_gradients(*(read_gradients(path) for path in args.gradients), args.cosine) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
