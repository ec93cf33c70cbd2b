#!/usr/bin/python3
"""Whether the largest model that `jobctl plan --largest` names for each memory_tier trains on a GPU of that memory, and the next one of
its family is refused.

usage: largest_models.py [--bin DIR] [--job FILE] [--gpu NAME] [--steps N] [--sequence T] [--tiers 1,2,3] [--out FILE]

The GPU of the machine plays one of NAME: HEARTH_MEMORY_BYTES caps its memory. A step has one micro-batch of one text. The optimizer is
left to the tier, and blocks are recomputed, as --largest measures models. For each
tier a line: parameters, planned and measured bytes, tokens/s, what was said of the next model. --out gets the same as a JSON line each.
The exit status is 1 if a model did not train, took 2 % more or less than planned, or a model too large was not refused.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 0.02


def run(command, **env):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env={**os.environ, **env})


def sets(fields):
    return [part for field in fields for part in ("--set", field)]


def common_fields(sequence):
    """What plans and runs share."""
    return ["batch.micro_batch_size=1", f"batch.global_batch_tokens={sequence}", f"data.sequence_length={sequence}",
            "resources.workers=1", "optimizer.name=null", "train.deterministic=false"]


def model_fields(model):
    """In place of those of the job's preset."""
    return [f"model.{name}={model[name]}" for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden")]


def plan(options):
    done = run([options.bin / "jobctl", "plan", options.job, "--largest", "--gpu", options.gpu, "-o", "json",
                *sets(common_fields(options.sequence))])
    if done.returncode != 0:
        sys.exit(f"jobctl plan: {done.stderr.strip()}")
    return json.loads(done.stdout)["gpus"][0]


def bench(options, model, tier, memory):
    """Returns (its JSON, None) or (None, why it was refused)."""
    fields = [*common_fields(options.sequence), *model_fields(model), tier.replace(": ", "="), "recompute=block"]
    done = run([options.bin / "hearth-trainer", "bench", options.job, "--device", "cuda:0", "--no-floor", "-o", "json",
                "--steps", options.steps, *sets(fields)], HEARTH_MEMORY_BYTES=str(memory))
    if done.returncode != 0:
        return None, (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    return json.loads(done.stdout), None


def judge(options, row, memory):
    """A line of the table, as a dict with `problems`."""
    result = {"tier": row["tier"], "problems": []}
    model = row["largest"]
    if model is None:
        return {**result, "problems": ["no model of the family fits"]}
    result |= {"parameters": model["parameters"], "layers": model["layers"], "hidden": model["hidden"],
               "planned_bytes": model["total_bytes"]}
    measured, refused = bench(options, model, row["tier"], memory)
    if measured is None:
        return {**result, "problems": [f"the largest did not train: {refused}"]}
    result |= {"measured_bytes": measured["measured_bytes"], "tok_s": measured["tok_s"]}
    off = measured["measured_bytes"] / model["total_bytes"] - 1
    if abs(off) > TOLERANCE:
        result["problems"].append(f"took {100 * off:+.1f} % of the plan")
    if row["too_large"] is not None:
        trained, result["next"] = bench(options, row["too_large"], row["tier"], memory)
        if trained is not None:
            result["problems"].append("the next larger model was not refused")
        elif "does not fit" not in result["next"] and "memory" not in result["next"]:
            result["problems"].append("the next larger model failed for another reason")
    return result


def line_of(result):
    if "tok_s" not in result:
        return f"{result['tier']}: {'; '.join(result['problems'])}"
    return (f"{result['tier']}: {result['parameters'] / 1e9:.2f}B, {result['layers']} layers of {result['hidden']}; planned "
            f"{result['planned_bytes'] / 1e9:.2f} GB, measured {result['measured_bytes'] / 1e9:.2f} GB; {result['tok_s']:,.0f} tok/s; next: "
            f"{result.get('next') or 'none'}" + "".join(f"; PROBLEM: {problem}" for problem in result["problems"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=TOP / "build/release/bin")
    parser.add_argument("--job", type=pathlib.Path, default=TOP / "configs/jobs/qwen2.5-1.5b-bf16.yaml")
    parser.add_argument("--gpu", default="RTX 5090")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--tiers", default="1,2,3")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    planned = plan(options)
    wanted = [f"memory_tier: {tier}" for tier in options.tiers.split(",")]
    rows = {row["tier"]: row for row in planned["formats"]}
    failed = False
    for tier in wanted:
        result = judge(options, rows[tier], planned["memory_bytes"]) if tier in rows else {"tier": tier, "problems": ["not in the plan"]}
        failed = failed or bool(result["problems"])
        print(line_of(result), flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
