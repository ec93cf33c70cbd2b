"""Number formats of 2 to 8 bits for low_bit_limits.py, in numpy and float32.

The rows `int8` and `int4` of STATE are those of common/formats/state_blocks.h: data/state_blocks.txt has recorded blocks that both
sides are tested with. The others follow the same construction with fewer bits, or are formats that the engine refuses.
"""
import numpy as np

LEAST_SCALE = np.float32(2.0**-126)


def dynamic_map(signed, bits):
    """bitsandbytes' create_dynamic_map: decades below 1, each with twice as many values as the one below it, and 0 and 1."""
    decades = bits - 1
    values = [0.0, 1.0]
    for e in range(decades):
        n = 2**e if signed else 2**(e + 1)
        decade = [10.0**(e + 1 - decades) * (0.1 + 0.9 * (j + 0.5) / n) for j in range(n)]
        values += decade + ([-x for x in decade] if signed else [])
    return np.array(sorted(values), np.float32)


def linear_signed(bits):
    most = 2**(bits - 1) - 1
    return np.arange(-most, most + 1).astype(np.float32) / np.float32(most)


def linear_unsigned(bits):
    """No zero: 1 / 2^bits to 1."""
    return (np.arange(2**bits) + 1).astype(np.float32) / np.float32(2**bits)


def linear_with_zero(bits):
    return np.arange(2**bits).astype(np.float32) / np.float32(2**bits - 1)


def log_unsigned(bits, ratio):
    """Each value is `ratio` times the one below it; the largest is 1."""
    return np.float32(ratio) ** -np.arange(2**bits - 1, -1, -1).astype(np.float32)


class Blocks:
    """A value is map[code] * scale; the scale of `block` consecutive elements is their largest magnitude."""

    CELLS = 4096  # of [-1, 1], for the search

    def __init__(self, values, block):
        self.values, self.block = values, block
        self.middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
        # The codes that a cell's values have at least and at most; a hundredth of a cell more, for the rounding of where a value lies.
        edges = np.arange(self.CELLS + 1) * (2 / self.CELLS) - 1
        slack = 0.01 * 2 / self.CELLS
        self.least = np.searchsorted(self.middles, edges[:-1] - slack)
        self.unclear = self.least != np.searchsorted(self.middles, edges[1:] + slack)

    def encode(self, x):
        """Codes (places in the sorted map) as [blocks, block] and the scales. The last block is filled up with zeros."""
        flat = np.ascontiguousarray(x, np.float32).reshape(-1)
        rows = np.concatenate([flat, np.zeros(-flat.size % self.block, np.float32)]).reshape(-1, self.block)
        scale = np.abs(rows).max(axis=1)
        scale[scale < LEAST_SCALE] = 0
        inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
        return self._search(rows * inverse[:, None]), scale

    def _search(self, x):
        """np.searchsorted(self.middles, x) of values from -1 to 1, faster: it searches only those near the middle of two codes."""
        cells = np.clip(((x + np.float32(1)) * np.float32(self.CELLS / 2)).astype(np.int32), 0, self.CELLS - 1)
        codes = self.least[cells]
        unclear = self.unclear[cells]
        codes[unclear] = np.searchsorted(self.middles, x[unclear])
        return codes

    def decode(self, codes, scale, shape):
        return (self.values[codes] * scale[:, None]).reshape(-1)[:int(np.prod(shape))].reshape(shape)

    def __call__(self, x):
        if not np.isfinite(x).all():
            return np.full(x.shape, np.nan, np.float32)
        return self.decode(*self.encode(x), x.shape)


def same(x):
    return x


# m, v of AdamW and the momentum of Muon. `int8` and `int4` are the engine's formats of optimizer.state; Muon's int4 it refuses.
STATE = {
    "int8": {"m": Blocks(dynamic_map(True, 8), 256), "v": Blocks(dynamic_map(False, 8), 256), "momentum": Blocks(linear_signed(8), 256)},
    "int4": {"m": Blocks(dynamic_map(True, 4), 128), "v": Blocks(linear_unsigned(4), 128), "momentum": Blocks(linear_signed(4), 128)},
}


# ---- Formats of matrix products -------------------------------------------------------------------------------------

def bf16(x):
    """Nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def e4m3(x):
    """Nearest, ties to even; saturates at 448."""
    magnitude = np.minimum(np.abs(x), np.float32(448))
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, -6)
    step = np.ldexp(np.float32(1), exponent - 3)
    return np.copysign(np.minimum(np.round(magnitude / step) * step, np.float32(448)), x).astype(np.float32)


def e4m3_tensor(x):
    """One scale for the matrix, as in the engine's per-tensor FP8 recipes: its largest magnitude becomes 448."""
    most = np.abs(x).max()
    scale = np.float32(448) / most if most > 0 else np.float32(1)
    return e4m3(x * scale) / scale


def int_tensor(bits):
    most = 2**(bits - 1) - 1

    def rounded(x):
        scale = np.abs(x).max() / np.float32(most)
        return (np.round(x / scale) * scale).astype(np.float32) if scale > 0 else x

    return rounded


# ---- Stored weights --------------------------------------------------------------------------------------------------

def stochastic_int8(x, rng):
    """Blocks of 256, linear; up with the probability of the part that is cut off."""
    rows = x.reshape(-1, 256)
    scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127) + np.float32(1e-30)
    return (np.clip(np.floor(rows / scale + rng.random(rows.shape, np.float32)), -127, 127) * scale).reshape(x.shape)


def stochastic_q4_0(x, rng):
    """ggml's Q4_0: 32 weights, d = (the value of largest magnitude) / -8 in FP16, codes 0 to 15; rounded stochastically."""
    rows = x.reshape(-1, 32)
    signed_max = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], 1)
    d = (signed_max / np.float32(-8)).astype(np.float16).astype(np.float32)
    d[d == 0] = np.float32(1e-7)
    codes = np.clip(np.floor(rows / d + 8 + rng.random(rows.shape, np.float32)), 0, 15)
    return ((codes - 8) * d).astype(np.float32).reshape(x.shape)


class Iq2:
    """Weights of 2.0625 bits, laid out as ggml's IQ2_XXS: 256 weights share an FP16 scale d, each 32 of them a scale of 4 bits
    (d (1/2 + l) / 4), each 8 one of 256 tuples of magnitudes in {8, 25, 43} and 7 signs; the eighth makes the number of minus signs even.

    The table of tuples is made here, by clustering magnitudes of normal values; ggml's own table differs. No importance matrix.
    """

    LEVELS = np.array([8, 25, 43], np.float32)

    def __init__(self, seed=5):
        rng = np.random.default_rng(seed)
        samples = np.abs(rng.standard_normal((6000, 8))).astype(np.float32) * np.float32(16)
        centres = samples[:256].copy()
        for _ in range(8):
            near = self._nearest(samples, centres)
            for k in np.unique(near):
                centres[k] = samples[near == k].mean(axis=0)
        tuples = np.unique(np.abs(centres[:, :, None] - self.LEVELS).argmin(axis=2), axis=0)
        # What rounded to the same tuple leaves room: the most frequent of the samples' own tuples fill it.
        own, counts = np.unique(np.abs(samples[:, :, None] - self.LEVELS).argmin(axis=2), axis=0, return_counts=True)
        have = {tuple(t) for t in tuples}
        extra = [t for t in own[np.argsort(-counts, kind="stable")] if tuple(t) not in have]
        self.table = self.LEVELS[np.concatenate([tuples, extra[:256 - len(tuples)]])]
        assert self.table.shape == (256, 8)
        self.squares = (self.table**2).sum(axis=1)

    @staticmethod
    def _nearest(x, table):
        return ((table**2).sum(axis=1) - 2 * x @ table.T).argmin(axis=1)

    def _codes(self, products, scale):
        """The nearest tuple to each 8, with the scale of their 32. products [n, 256] are twice the magnitudes times
        tuples."""
        errors = scale[:, None] * self.squares
        errors -= products
        return errors.argmin(axis=1)

    def __call__(self, x):
        out = np.empty(x.size, np.float32)
        flat = x.reshape(-1, 256)
        for begin in range(0, len(flat), 64):
            part = flat[begin:begin + 64]
            out[begin * 256:begin * 256 + part.size] = self._rounded(part).reshape(-1)
        return out.reshape(x.shape)

    def _rounded(self, rows):
        eights = rows.reshape(-1, 8)
        sign = np.where(eights < 0, np.float32(-1), np.float32(1))
        odd = np.flatnonzero((sign < 0).sum(axis=1) % 2)
        sign[odd, np.abs(eights[odd]).argmin(axis=1)] *= -1
        magnitude = eights * sign
        products = 2 * (magnitude @ self.table.T)
        most = np.abs(rows).reshape(-1, 32).max(axis=1)
        best, best_error = most / 43, np.full(len(most), np.inf, np.float32)
        for share in (0.6, 0.75, 0.9, 1.05):
            scale = np.repeat(most * np.float32(share / 43), 4)
            grid = self.table[self._codes(products, scale)]
            along = (magnitude * grid).sum(axis=1).reshape(-1, 4).sum(axis=1)
            squares = (grid**2).sum(axis=1).reshape(-1, 4).sum(axis=1)
            fitted = np.maximum(along / squares, 0)
            error = -2 * fitted * along + fitted**2 * squares
            better = error < best_error
            best, best_error = np.where(better, fitted, best), np.where(better, error, best_error)
        d = (best.reshape(-1, 8).max(axis=1) / np.float32(15.5 * 0.25)).astype(np.float16).astype(np.float32)
        unit = np.maximum(np.repeat(d, 8), np.float32(1e-12)) * np.float32(0.25)
        scale = np.repeat((np.clip(np.round(best / unit - 0.5), 0, 15) + np.float32(0.5)) * unit, 4)
        return self.table[self._codes(products, scale)] * sign * scale[:, None]


def dithered(rounded):
    """Random noise as wide as the typical step is added before rounding, so that small updates count on average; a table of tuples has
    no two neighbours between which one could round stochastically."""

    def write(x, rng):
        rows = x.reshape(-1, 32)
        step = np.abs(rows).max(axis=1, keepdims=True) * np.float32(17 / 43)
        return rounded((rows + step * (rng.random(rows.shape, np.float32) - np.float32(0.5))).reshape(x.shape))

    return write
