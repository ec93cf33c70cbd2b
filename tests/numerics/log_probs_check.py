#!/usr/bin/env python3
"""Compares the log-probabilities that `hearth-trainer sample` gives with training's losses of the same tokens.

  tests/numerics/log_probs_check.py CHECKPOINT --bin build/release/bin [--device cuda:0] [--texts 8] [--micro-batch 8 --sequence-length 1024]

Writes texts that fill a sequence of training, a prompt of the end token alone, with --log-probs generation and training. Each text becomes a
dataset of one sample, whose mean loss `hearth-trainer eval` measures in the same shape. Prints
  - generation, training: mean and largest |difference| of a token's two values;
  - eval: the largest |difference| of a text's mean loss and its mean log-probability of each setting, and for training the most that it may
    be: eval adds losses in double, before they are rounded to the floats that `sample` prints. 0 where it is no more than that.

The shape is that of the checkpoint's job unless it is given. Needs no packages. Exit 0: training's difference is 0; else 1. (trainer_generate_test
compares the bits of each token.)
"""

import argparse
import array
import json
import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def shape_of(args):
    meta = args.checkpoint / "state" / "meta.json"
    job = json.loads(meta.read_text()) if meta.exists() else {}
    shape = args.micro_batch or job.get("micro_batch_size"), args.sequence_length or job.get("sequence_length")
    if None in shape:
        sys.exit(f"{args.checkpoint} is no checkpoint: give --micro-batch and --sequence-length")
    return shape


def end_token(args):
    recorded = args.checkpoint / "hearth_tokenizer.json"
    return max(json.loads(recorded.read_text())["eos"] if recorded.exists() else args.eos, 0)


def sample(args, source, shape, prompts):
    out = run(args.bin / "hearth-trainer", "sample", args.checkpoint, "--prompts", prompts, "--tokens", shape[1], "--temperature", 1,
              "--top-k", 0, "--seed", args.seed, "--device", args.device, "--log-probs", source, "--micro-batch", shape[0],
              "--sequence-length", shape[1], "-o", "json")
    return [json.loads(line) for line in out.splitlines()]


def loss_of(args, shape, tokens, folder):
    data = folder / "text.bin"
    with open(data, "wb") as file:
        array.array("H", tokens).tofile(file)
    out = run(args.bin / "hearth-trainer", "eval", args.checkpoint, "--data", data, "--batch", shape[0], "--sequence-length", shape[1],
              "--batches", 1, "--device", args.device, "-o", "json")
    measured = json.loads(out)["all"]
    if measured["tokens"] != shape[1]:
        sys.exit(f"eval counted {measured['tokens']} tokens of a text of {shape[1]}")
    return measured["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--sequence-length", type=int)
    parser.add_argument("--eos", type=int, default=0, help="the prompt's token, where the folder does not record its tokenizer")
    args = parser.parse_args()
    shape = shape_of(args)
    worst = {"generation": 0.0, "training": 0.0}
    allowed, compared = 0.0, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "prompts.txt").write_text("\n" * args.texts)
        generation, training = (sample(args, source, shape, folder / "prompts.txt") for source in ("generation", "training"))
        apart = []
        for a, b in zip(generation, training):
            assert a["tokens"] == b["tokens"], "the two runs wrote different texts"
            apart += [abs(x - y) for x, y in zip(a["log_prob"], b["log_prob"])]
            if len(b["tokens"]) < shape[1]:
                continue  # ended early: eval would count more than its tokens
            loss = loss_of(args, shape, [end_token(args), *b["tokens"]], folder)
            for name, line in (("generation", a), ("training", b)):
                off = abs(loss + sum(line["log_prob"]) / len(line["tokens"]))
                rounding = 2.0**-24 * sum(map(abs, line["log_prob"])) / len(line["tokens"])
                worst[name] = max(worst[name], off if off > rounding else 0.0)
                allowed = max(allowed, rounding)
            compared += 1
    if compared == 0:
        sys.exit("all texts ended early: more --texts, or another --seed")
    print(f"{args.texts} texts, passes of {shape[0]} x {shape[1]} tokens on {args.device}")
    print(f"generation, training: mean {sum(apart) / len(apart):.2e}, largest {max(apart):.2e} of {len(apart)} tokens")
    for name, difference in worst.items():
        print(f"{name}, eval: largest difference of a text's mean {difference:.2e} of {compared} texts (0: less than {allowed:.1e}, of floats)")
    return 0 if worst["training"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
