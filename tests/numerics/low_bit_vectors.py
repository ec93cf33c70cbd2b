#!/usr/bin/env python3
"""Writes data/state_blocks.txt: blocks of optimizer state as low_bit_formats.py rounds them, in the formats that the engine has too.

state_blocks_test.cc encodes the same numbers and must find the same codes and scales, so the script's rows `int8` and `int4` are the engine's.
A line a codec: its number in StateCodec, then inputs, scales (bits of fp32) and codes, all in hexadecimal and separated by blanks.

data/leading_blocks.txt, for leading_blocks_test.cc, has blocks of 16 as the rows "rank 8, 16" round what their factors leave: the number of
values, the matrix's number, then values, scales and codes in the same way.
"""
import os

import numpy as np

import low_bit_formats as f

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
PATH = os.path.join(DATA, "state_blocks.txt")
LEADING_PATH = os.path.join(DATA, "leading_blocks.txt")
# Number in StateCodec, rounding, whether the values have both signs, and what to add to a place in the sorted map to get the code.
CODECS = [(1, f.STATE["int8"]["m"], True, 0), (2, f.STATE["int8"]["v"], False, 0), (3, f.STATE["int8"]["momentum"], True, -127),
          (4, f.STATE["int4"]["m"], True, 0), (5, f.STATE["int4"]["v"], False, 0)]


def inputs(seed, blocks, signed):
    """Two whole blocks and part of a third over six decades, none within 1e-5 of the middle between two values of the map, where the
    engine may round either way."""
    rng = np.random.default_rng(seed)
    count = 2 * blocks.block + 37
    x = (10.0 ** rng.uniform(-6, 0, count) * (rng.choice([-1, 1], count) if signed else 1)).astype(np.float32)
    x[[3, blocks.block + 3]] = 1.5, 0.7
    for _ in range(100):
        places, scale = blocks.encode(x)
        scaled = x.astype(np.float64) / np.repeat(scale, blocks.block)[:count]
        near = np.abs(scaled[:, None] / blocks.middles[None, :].astype(np.float64) - 1).min(axis=1) < 1e-5
        if not near.any():
            return x
        x[near] *= np.float32(1.001)
    raise ValueError("inputs stay near middles")


def text():
    lines = []
    for number, blocks, signed, offset in CODECS:
        x = inputs(number, blocks, signed)
        places, scale = blocks.encode(x)
        codes = (places.reshape(-1)[:x.size] + offset) & 0xFF
        lines.append(" ".join([str(number), str(x.size), str(scale.size)] + [f"{b:08x}" for b in x.view(np.uint32)] +
                              [f"{b:08x}" for b in scale.view(np.uint32)] + [f"{c:02x}" for c in codes]))
    return "\n".join(lines) + "\n"


def leading_text(blocks=64):
    rng = np.random.default_rng(6)
    # Blocks of sizes over five decades: the scales of the smallest are below the least normal number of e4m3, or zero.
    x = (rng.standard_normal((blocks, 16)) * 10.0 ** rng.uniform(-5, 0, (blocks, 1))).astype(np.float32)
    scales = f.SignedScales()(x)
    unit = np.abs(x).max() / np.float32(448)
    y = np.divide(x, scales, out=np.zeros_like(x), where=np.abs(scales) >= f.LEAST_SCALE)
    codes = (f.Eighths()(y, None) * 8).astype(np.int64) & 0xF
    of_blocks = f.e4m3(scales[:, 0] / unit)
    assert np.array_equal(of_blocks * unit, scales[:, 0])
    return " ".join([str(x.size)] + [f"{b:08x}" for b in np.concatenate([[unit], x.reshape(-1), of_blocks]).astype(np.float32).view(np.uint32)] +
                    [f"{c:x}" for c in codes.reshape(-1)]) + "\n"


if __name__ == "__main__":
    for path, content in ((PATH, text()), (LEADING_PATH, leading_text())):
        with open(path, "w") as file:
            file.write(content)
