#!/usr/bin/env python3
"""The SHA-256 of the weights after a short run, of every recipe, four model families, one rank and two, on the CPU: shows that a change
of the engine that is meant to change no number changed none.

  /usr/bin/python3 tests/numerics/weights.py --out before.json              (programs of build/dev, or of $HEARTH_BIN_DIR)
  /usr/bin/python3 tests/numerics/weights.py --out after.json --compare before.json

Exit status: 0; 1 when a weight differs or a run is missing. The hashes belong to one machine: the order of sums depends on the CPU."""

import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import harness  # noqa: E402  (needs the path)

STEPS = 20
SHAPE = {"layers": 4, "hidden": 128, "heads": 4, "ffn_hidden": 256, "vocab": 64}
FAMILIES = {
    "llama": {"kv_heads": 2},
    "qwen2": {"kv_heads": 2, "attention_bias": "qkv"},
    "qwen3": {"kv_heads": 2, "qk_norm": True, "tied": False},
    "gpt2": {"norm": "layernorm", "position": "learned", "activation": "gelu_tanh", "attention_bias": "all", "mlp_bias": True, "dropout": 0.1},
}
# Beyond the recipes themselves: the FP8 head, and a run that falls back and has remedies.
EXTRA = {"fp8+head": {"recipe": "fp8", "lm_head": "fp8"}, "fp8+wide": {"recipe": "fp8", "narrow_activations": False},
         "nvfp4+tail": {"recipe": "nvfp4", "warmup_steps": 3, "bf16_tail": 0.2}}


def recipes(cluster):
    """As the program lists them."""
    run = cluster.jobctl("submit", "-f", "-", "--dry-run", "client", "--set", "precision.recipe=unknown", check=False,
                         stdin=json.dumps(harness.tiny_job("/nowhere")))
    return re.search(r"one of ([^)]*)\)", run.stderr).group(1).split(", ")


def job(data, family, precision, workers):
    return harness.tiny_job(data, STEPS, workers, model={"kv_heads": 4, **SHAPE, **FAMILIES[family]}, precision=precision,
                            data={"train": data, "sequence_length": 64},
                            batch={"micro_batch_size": 2, "global_batch_tokens": 512}, checkpoint={"every_steps": 0})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--compare", help="JSON file of an earlier call")
    args = parser.parse_args()
    cluster = harness.Cluster()
    hashes = {}
    try:
        cluster.start(2)
        data = os.path.join(cluster.dir, "tokens.bin")
        harness.write_tokens(data)
        precisions = {name: {"recipe": name} for name in recipes(cluster)} | EXTRA
        ids = {f"{name}/{family}/{workers}": cluster.submit(job(data, family, precision, workers))
               for name, precision in precisions.items() for family in FAMILIES for workers in (1, 2)}
        for key, job_id in ids.items():
            cluster.wait_state(job_id, "SUCCEEDED", timeout=900)
            hashes[key] = harness.weights_sha256(cluster.final_checkpoint(job_id))
    finally:
        cluster.close()
    with open(args.out, "w") as f:
        json.dump(hashes, f, indent=1, sort_keys=True)
    print(f"{len(hashes)} runs of {STEPS} steps, {len(set(hashes.values()))} different weights")
    if not args.compare:
        return 0
    with open(args.compare) as f:
        before = json.load(f)
    differing = [key for key in sorted(before | hashes) if before.get(key) != hashes.get(key)]
    for key in differing:
        print(f"{key}: {before.get(key)} -> {hashes.get(key)}")
    print(f"{len(differing)} of {len(before | hashes)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
