#!/usr/bin/env python3
"""What too few bits do: the tables and pictures of docs/low-bit-limits.md.

  low_bit_limits.py --jobs 64 --results DIR --docs docs     runs everything on 64 cores and writes the page's tables and pictures
  low_bit_limits.py --jobs 64 --results DIR                 goes on where a stopped run was: each cell that is done has a file in DIR
  low_bit_limits.py --jobs 0 --results DIR --docs docs      the page of what is done
  low_bit_limits.py --only /protected/ --jobs 2 --results DIR --docs docs --tables "facts protected" "training protected"
                                                            one group, and its tables alone

Newton-Schulz in INT4, INT8 and FP8; Muon's momentum in 8 to 2 bits, and in 4 with its leading directions apart; AdamW's state in 8 to 2
bits with linear and logarithmic v; weights in IQ2. On a two-layer toy and on hearth-tiny, which reads the project's own text as bytes.
numpy alone; every random number comes from a seed that is printed. One machine gives the same bits each time; another BLAS rounds sums
differently, which moves losses in the third digit.
"""
import argparse
import glob
import hashlib
import json
import math
import multiprocessing
import os
import platform
import sys

# One thread a process, whatever the environment says: the cells run side by side.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import low_bit_formats as f  # noqa: E402
import low_bit_models as models  # noqa: E402
import low_bit_page as page  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
# Past it a step of the iteration makes a singular value larger instead of smaller.
BLOWN_UP = 1.5

# Format of the iteration's matrices -> rounding.
PRODUCTS = {
    "fp32": f.same,
    "bf16": f.bf16,
    "fp8": f.e4m3_tensor,
    "int8, one scale": f.int_tensor(8),
    "int8, blocks of 256": f.Blocks(f.linear_signed(8), 256),
    "int4, one scale": f.int_tensor(4),
    "int4, blocks of 128": f.Blocks(f.linear_signed(4), 128),
}


def stored(name):
    return lambda u: models.newton_schulz(u, operand=PRODUCTS[name], store=PRODUCTS[name])


def operands(name):
    return lambda u: models.newton_schulz(u, operand=PRODUCTS[name])


def momentum(rounding):
    return {"optimizer": "muon", "formats": {"momentum": rounding}}


def adam(m=None, v=None):
    return {"optimizer": "adamw", "formats": {k: x for k, x in (("m", m), ("v", v)) if x}}


def blocks(values):
    return f.Blocks(values, 128)


def weights(write, **more):
    return {"optimizer": "adamw", "formats": {}, "write": write, **more}


def ignoring_random(rounded):
    return lambda x, rng: rounded(x)


iq2 = f.Iq2()


def protected(rank, scales="blocks", rounding="nearest", factors="bf16", **more):
    return f.Protected(rank, {"blocks": f.BlockScales(), "lines": f.RowColumnScales(), "16": f.SignedScales()}[scales],
                       {"nearest": f.Nearest(f.linear_signed(4)), "mu-law": f.Nearest(f.mu_law(4, 255)), "eighths": f.Eighths(),
                        "stochastic": f.Stochastic(f.linear_signed(4)), "dithered": f.Dithered()}[rounding], factors, **more)

# Group -> row -> how to train. The first row of a group is what the others are held against. A name with "engine:" is a format that the
# engine has, with the engine's own rounding.
TRAINING = {
    "momentum": {
        "fp32": momentum(None),
        "engine: int8": momentum(f.STATE["int8"]["momentum"]),
        "4 bits, linear": momentum(f.STATE["int4"]["momentum"]),
        "4 bits, dynamic": momentum(f.STATE["int4"]["m"]),
        "3 bits, linear": momentum(blocks(f.linear_signed(3))),
        "3 bits, dynamic": momentum(blocks(f.dynamic_map(True, 3))),
        "2 bits, linear": momentum(blocks(f.linear_signed(2))),
    },
    # 4 bits and P R^T. "lines": scales of rows and columns; "16": of 16 values.
    "protected": {
        "fp32": momentum(None),
        "engine: int8": momentum(f.STATE["int8"]["momentum"]),
        "linear": momentum(protected(0)),
        "linear, dithered": momentum(protected(0, rounding="dithered")),
        "16": momentum(protected(0, "16", "eighths")),
        "rank 4, 16": momentum(protected(4, "16", "eighths", "int8")),
        "rank 8, linear": momentum(protected(8)),
        "rank 8, linear, new start": momentum(protected(8, warm=False)),
        "rank 8, mu-law": momentum(protected(8, rounding="mu-law")),
        "rank 8, stochastic": momentum(protected(8, rounding="stochastic")),
        "rank 8, lines, dithered": momentum(protected(8, "lines", "dithered", "int8")),
        "rank 8, 16": momentum(protected(8, "16", "eighths", "int8")),
        "rank 16, linear": momentum(protected(16)),
        "rank 16, 16": momentum(protected(16, "16", "eighths", "int8")),
        "rank 32, 16": momentum(protected(32, "16", "eighths", "int8")),
    },
    "iteration": {
        "fp32": momentum(None),
        "bf16": dict(momentum(None), orthogonal=stored("bf16")),
        "fp8": dict(momentum(None), orthogonal=stored("fp8")),
        "fp8, operands only": dict(momentum(None), orthogonal=operands("fp8")),
        "int8": dict(momentum(None), orthogonal=stored("int8, blocks of 256")),
        "int4": dict(momentum(None), orthogonal=stored("int4, blocks of 128")),
        "int4, operands only": dict(momentum(None), orthogonal=operands("int4, blocks of 128")),
    },
    "adam": {
        "fp32": adam(),
        "engine: int8": adam(f.STATE["int8"]["m"], f.STATE["int8"]["v"]),
        "engine: int4": adam(f.STATE["int4"]["m"], f.STATE["int4"]["v"]),
        "int4, v with a zero": adam(f.STATE["int4"]["m"], blocks(f.linear_with_zero(4))),
        "3 bits, v linear": adam(blocks(f.dynamic_map(True, 3)), blocks(f.linear_unsigned(3))),
        "3 bits, v log": adam(blocks(f.dynamic_map(True, 3)), blocks(f.log_unsigned(3, 4))),
        "only v, 3 bits linear": adam(None, blocks(f.linear_unsigned(3))),
        "only v, 3 bits log": adam(None, blocks(f.log_unsigned(3, 4))),
        "2 bits, v log": adam(blocks(f.dynamic_map(True, 2)), blocks(f.log_unsigned(2, 16))),
    },
    "weights": {
        "fp32": weights(None),
        "int8, stochastic": weights(f.stochastic_int8),
        "Q4_0, stochastic": weights(f.stochastic_q4_0),
        "IQ2, nearest": weights(ignoring_random(iq2)),
        "IQ2, dithered": weights(f.dithered(iq2)),
        "IQ2 with fp32 masters": weights(ignoring_random(iq2), master=True),
        "IQ2 after training": weights(None, export=iq2),
    },
}

# Where a format's bits a value are shown: matrices.
BITS_OF = {"hearth-tiny": [(128, 128), (64, 128), (64, 128), (128, 128), (352, 128), (352, 128), (128, 352)], "2048 x 768": [(2048, 768)]}

MODELS = {"toy": dict(lr=3e-3, decay=0.0), "hearth-tiny": dict(lr=3e-3, decay=0.1)}


# ---- Newton-Schulz ---------------------------------------------------------------------------------------------------

def normal_matrix(seed, m, n):
    return (np.random.default_rng(seed).standard_normal((m, n)) * 0.25).astype(np.float32)


def decaying_matrix(seed, m, n):
    """Singular values from 1 to 1e-3, evenly on a log scale, as of a momentum that has a few strong directions."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((k, m)))[0] for k in (m, n))
    return ((left * np.logspace(0, -3, m)) @ right.T).astype(np.float32)


MATRICES = {"normal": normal_matrix, "decaying": decaying_matrix}


def orthogonality_error(x):
    x = x if x.shape[0] <= x.shape[1] else x.T
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(x.astype(np.float64) @ x.T.astype(np.float64) - np.eye(len(x))) / math.sqrt(len(x)))


def iteration(name, where, matrix, coefficients, seed, m, n, steps=10):
    """After every step: the largest singular value and the orthogonality error. blown_up: the first step with a larger one than
    BLOWN_UP, 0 if none of `steps` has."""
    largest, errors = [], []

    def each(x):
        finite = np.isfinite(x).all() and np.abs(x).max() < 1e15
        largest.append(float(np.linalg.norm(x.astype(np.float64), 2)) if finite else math.inf)
        errors.append(orthogonality_error(x) if finite else math.inf)
    rounding = PRODUCTS[name]
    with np.errstate(all="ignore"):
        models.newton_schulz(MATRICES[matrix](seed, m, n), coefficients, rounding, rounding if where == "stored" else None, steps, each)
    blown = next((i + 1 for i, s in enumerate(largest) if not s <= BLOWN_UP), 0)
    return {"largest": largest, "errors": errors, "blown_up": blown}


def directions(name, rounding, seed, m):
    """How much of each exact direction is left in the step made of a rounded momentum: the mean overlap over the strongest tenth of
    the singular vectors and over the weakest half. 1: all of it."""
    u = decaying_matrix(seed, m, m)
    left, _, right = np.linalg.svd(u.astype(np.float64))
    overlap = np.einsum("ik,ij,kj->k", left, models.newton_schulz(rounding(u)).astype(np.float64), right)
    error = np.linalg.norm(rounding(u) - u) / np.linalg.norm(u)
    return {"error": float(error), "strong": float(overlap[:m // 10].mean()), "weak": float(overlap[m // 2:].mean())}


DIRECTIONS = {"fp32": f.same, "engine: int8": f.STATE["int8"]["momentum"], "4 bits, linear": f.STATE["int4"]["momentum"],
              "4 bits, dynamic": f.STATE["int4"]["m"], "3 bits, linear": blocks(f.linear_signed(3)),
              "2 bits, linear": blocks(f.linear_signed(2))}


def after_steps(form, steps=5):
    """The format's rounding of a matrix that did not change for some steps, so that its factors had time to find the directions."""
    def rounded(u):
        rounding = form.of_matrix(0)
        return [rounding(u) for _ in range(steps)][-1]

    return rounded


DIRECTIONS.update({"4 bits, 16": after_steps(protected(0, "16", "eighths")),
                   **{f"4 bits, rank {rank}": after_steps(protected(rank)) for rank in (8, 16, 32)},
                   **{f"4 bits, rank {rank}, 16": after_steps(protected(rank, "16", "eighths", "int8")) for rank in (8, 16, 32)}})


# ---- Training --------------------------------------------------------------------------------------------------------

def text_files():
    """The project's own text, without what this script writes."""
    found = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")) + glob.glob(os.path.join(ROOT, "kernels", "*", "*.cc")) +
                   glob.glob(os.path.join(ROOT, "common", "*", "*.cc")))
    return [p for p in found if os.path.basename(p) != "low-bit-limits.md"]


def text():
    blob = b""
    for path in text_files():
        with open(path, "rb") as file:
            blob += file.read()
    tokens = np.frombuffer(blob, np.uint8).astype(np.int64)
    pieces = len(tokens) // 4096
    chunks = tokens[:pieces * 4096].reshape(pieces, 4096)
    held = np.arange(pieces) % 20 == 19
    return chunks[~held].reshape(-1), chunks[held].reshape(-1), hashlib.sha256(blob).hexdigest()


class TextModel(models.Llama):
    """hearth-tiny with batches of 8 sequences of 128 bytes."""

    def __init__(self, seed):
        super().__init__(self.HEARTH_TINY, seed=seed)
        self.train, self.held_out, _ = text()
        self.rng = np.random.default_rng(2000 + seed)

    @staticmethod
    def rows(tokens, starts):
        return tokens[starts[:, None] + np.arange(129)]

    def batch(self):
        return self.rows(self.train, self.rng.integers(0, len(self.train) - 129, 8))

    def evaluate(self):
        starts = np.linspace(0, len(self.held_out) - 130, 256).astype(int)
        return float(np.mean([self.loss_and_gradients(self.rows(self.held_out, starts[i:i + 16]), False)[0]
                              for i in range(0, 256, 16)]))


class ToyModel(models.TwoLayers):
    def evaluate(self):
        """Fresh inputs, the same for every row."""
        self.rng = np.random.default_rng(77)
        return float(np.mean([self.loss_and_gradients(self.batch())[0] for _ in range(20)]))


def make_model(kind, seed):
    return ToyModel(seed=seed) if kind == "toy" else TextModel(seed)


def rate_at(step, steps):
    """Linear warm-up over 20 steps, then a cosine to a tenth."""
    if step <= 20:
        return step / 20
    return 0.55 + 0.45 * math.cos(math.pi * (step - 20) / max(1, steps - 20))


def write_back(model, row, rng):
    """Rounds the weights of the layers; returns what they were."""
    before = {name: model.weights[name].copy() for name in model.matrices}
    for name in model.matrices:
        model.weights[name][:] = row["write"](model.weights[name], rng)
    return before


def train(kind, row, seed, steps):
    """losses: of every step until one is not finite; held_out: after the last; diverged: the step after which nothing is finite."""
    model = make_model(kind, seed)
    options = MODELS[kind]
    optimizer = models.Optimizer(model, row["optimizer"] == "muon", row["formats"], options["lr"], options["decay"],
                                 orthogonal=row.get("orthogonal", models.newton_schulz))
    rng = np.random.default_rng(3000 + seed)
    write, master = row.get("write"), row.get("master", False)
    if write and not master:
        write_back(model, row, rng)
    losses = []
    with np.errstate(all="ignore"):
        for step in range(1, steps + 1):
            batch = model.batch()
            kept = write_back(model, row, rng) if master else None
            loss, gradients = model.loss_and_gradients(batch)
            if kept:
                for name, w in kept.items():
                    model.weights[name][:] = w
            losses.append(loss)
            if not math.isfinite(loss) or not math.isfinite(optimizer.norm(gradients)):
                return {"losses": losses, "held_out": math.inf, "diverged": step}
            optimizer.step(gradients, rate_at(step, steps))
            if write and not master:
                write_back(model, row, rng)
        if master:
            write_back(model, row, rng)
        if row.get("export"):
            write_back(model, {"write": ignoring_random(row["export"])}, rng)
        return {"losses": losses, "held_out": model.evaluate(), "diverged": 0}


# ---- All of it -------------------------------------------------------------------------------------------------------

def tasks(args):
    """(key, function, arguments) of every cell of the tables."""
    for name in PRODUCTS:
        for where in ("operands", "stored"):
            for matrix, coefficients in (("normal", "tuned"), ("decaying", "tuned"), ("normal", "standard")):
                yield (f"iteration/{name}/{where}/{matrix}/{coefficients}", iteration,
                       (name, where, matrix, coefficients, 1, args.size, args.size))
    for name, rounding in DIRECTIONS.items():
        yield f"directions/{name}", directions, (name, rounding, 1, args.size)
    for kind, steps, seeds in (("hearth-tiny", args.steps, args.seeds), ("toy", args.toy_steps, args.toy_seeds)):
        for group, rows in TRAINING.items():
            for name, row in rows.items():
                for seed in range(1, seeds + 1):
                    yield f"train/{kind}/{group}/{name}/{seed}", train, (kind, (group, name), seed, steps)


def run(task):
    key, function, arguments = task
    if function is train:
        group, name = arguments[1]
        arguments = (arguments[0], TRAINING[group][name], *arguments[2:])
    result = function(*arguments)
    print(key, {k: v for k, v in result.items() if k not in ("losses", "largest", "errors")}, flush=True)
    return key, result


def name_of(key):
    """The file of a cell in the folder of results."""
    return key.replace("/", "--").replace(" ", "_") + ".json"


def kept(folder):
    """The cells that a folder of results has."""
    cells = {}
    for path in glob.glob(os.path.join(folder, "*--*.json")):
        with open(path) as file:
            cells.update([json.load(file)])
    return cells


def keep(folder, name, content):
    # Renamed into place: a run that is stopped leaves whole files.
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        json.dump(content, file, sort_keys=True)
    os.rename(path + ".new", path)


def open_results(args):
    """The cells that `args.results` has already. The folder must be of the same sizes, text and programs."""
    if not args.results:
        return {}
    os.makedirs(args.results, exist_ok=True)
    path = os.path.join(args.results, "facts.json")
    if not os.path.exists(path):
        keep(args.results, "facts.json", facts(args))
    with open(path) as file:
        other = {name: value for name, value in json.load(file).items() if facts(args)[name] != value}
    if other:
        sys.exit(f"{args.results} has results of another run: {other}")
    return kept(args.results)


def named_task(key):
    cell = run(next(t for t in tasks(OPTIONS) if t[0] == key))
    if OPTIONS.results:
        keep(OPTIONS.results, name_of(key), cell)
    return cell


OPTIONS = None


def run_all(args):
    """Cells of the results and those that are missing there, each in a process of its own; with --jobs 0 none of the missing."""
    global OPTIONS
    OPTIONS = args
    cells = open_results(args)
    keys = [key for key, _, _ in tasks(args) if args.only in key and key not in cells]
    # The short cells without which there is no page; then hearth-tiny's, which are the longest, of them those that round most.
    keys.sort(key=lambda key: (key.startswith("train/"), "/hearth-tiny/" not in key, not any(slow in key for slow in ("/iteration/", "IQ2"))))
    if args.jobs and keys:
        with multiprocessing.get_context("fork").Pool(min(args.jobs, len(keys))) as pool:
            cells.update(pool.imap_unordered(named_task, keys, chunksize=1))
    return cells


def for_the_page(cells, args):
    """Leaves out training rows of which a seed is missing, or the row that they are held against."""
    keys = {}
    for key, function, arguments in tasks(args):
        if function is train:
            kind, (group, row) = arguments[0], arguments[1]
            keys.setdefault((kind, group, row), []).append(key)
        elif key not in cells and not args.tables:
            sys.exit(f"no page without {key}, which takes seconds")
    whole = {row for row, seeds in keys.items() if all(key in cells for key in seeds)}
    shown = [row for row in whole if (*row[:2], next(iter(TRAINING[row[1]]))) in whole]
    trained = {key for row in shown for key in keys[row]}
    return {key: cell for key, cell in cells.items() if not key.startswith("train/") or key in trained}


def facts(args):
    train_bytes, held_bytes, digest = text()
    return {"numpy": np.__version__, "python": platform.python_version(), "machine": platform.machine(), "size": args.size,
            "steps": args.steps, "toy_steps": args.toy_steps, "seeds": args.seeds, "toy_seeds": args.toy_seeds,
            "text_bytes": len(train_bytes), "held_out_bytes": len(held_bytes), "text_sha256": digest}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each; 0: run nothing")
    parser.add_argument("--size", type=int, default=512, help="rows of the matrices of the iteration")
    parser.add_argument("--steps", type=int, default=300, help="of hearth-tiny")
    parser.add_argument("--seeds", type=int, default=2, help="1 to this, of hearth-tiny")
    parser.add_argument("--toy-steps", type=int, default=600)
    parser.add_argument("--toy-seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--results", metavar="DIR", help="a file for each cell that is done; those that are there are not run again")
    parser.add_argument("--docs", help="folder of low-bit-limits.md, whose tables and pictures are written")
    parser.add_argument("--tables", nargs="+", default=[], help="of the page: these alone, and no pictures")
    args = parser.parse_args()
    print(facts(args), flush=True)
    whole = {"facts": facts(args), "cells": run_all(args)}
    if args.docs:
        rows = TRAINING, PRODUCTS, DIRECTIONS, BITS_OF
        page.write(args.docs, {**whole, "cells": for_the_page(whole["cells"], args)}, rows, args.tables)


if __name__ == "__main__":
    main()
