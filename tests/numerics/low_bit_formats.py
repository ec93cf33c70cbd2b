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

    def bits(self, m, n):
        """What a matrix of m x n takes."""
        return m * n * (np.ceil(np.log2(len(self.values))) + 32 / self.block)

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


# ---- A momentum in 4 bits with its leading directions apart ----------------------------------------------------------

def mu_law(bits, mu):
    """Values that lie closer together towards 0: (1 + mu)^x - 1 over mu of evenly spaced x, and their negatives."""
    half = np.expm1(np.arange(2**(bits - 1)) / (2**(bits - 1) - 1) * np.log1p(mu)) / mu
    return np.concatenate([-half[:0:-1], half]).astype(np.float32)


class BlockScales:
    """For each element the largest magnitude of its block; x has whole blocks."""

    def __init__(self, block=128):
        self.block = block

    def __call__(self, x):
        return np.abs(x).reshape(-1, self.block).max(axis=1).repeat(self.block).reshape(x.shape)

    def bits(self, m, n):
        return 32 * m * n / self.block


class RowColumnScales:
    """The largest magnitude of an element's row or of its column, whichever is smaller."""

    def __call__(self, x):
        magnitude = np.abs(x)
        return np.minimum(magnitude.max(axis=1, keepdims=True), magnitude.max(axis=0, keepdims=True))

    def bits(self, m, n):
        return 32 * (m + n)


class SignedScales:
    """The largest value of 16, with its sign turned, as in ggml's Q4_0; or a scale near it that gives a smaller square error. Each is an
    e4m3 number times one FP32 number for the matrix."""

    SHARES = (1, 8 / 7.4, 8 / 8.6, 8 / 9.4)

    def __call__(self, x):
        rows = x.reshape(-1, 16)
        unit = max(np.abs(rows).max() / np.float32(448), LEAST_SCALE)
        largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], 1) / -unit
        scales = np.stack([e4m3(largest * np.float32(share)) * unit for share in self.SHARES])
        y = np.divide(rows, scales, out=np.zeros_like(scales * rows), where=scales != 0)
        best = ((Eighths()(y, None) * scales - rows)**2).sum(axis=2).argmin(axis=0)
        return scales[best, np.arange(len(rows)), 0].repeat(16).reshape(x.shape)

    def bits(self, m, n):
        return 8 * m * n / 16


class Eighths:
    """Codes -8 to 7 over 8, to nearest."""

    def __call__(self, y, rng):
        return np.clip(np.round(y * np.float32(8)), -8, 7) / np.float32(8)


class Nearest:
    def __init__(self, values):
        self.values, self.middles = values, ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)

    def __call__(self, y, rng):
        return self.values[np.searchsorted(self.middles, y)]  # at least the first, at most the last


class Stochastic:
    """One of the two values next to y, so that the mean of many draws is y."""

    def __init__(self, values):
        self.values = values

    def __call__(self, y, rng):
        above = np.clip(np.searchsorted(self.values, y), 1, len(self.values) - 1)
        low, high = self.values[above - 1], self.values[above]
        return np.where(rng.random(y.shape, np.float32) * (high - low) < y - low, high, low)


class Dithered:
    """Codes -8 to 7 over 7. A random number of half a step at most is added before rounding and taken off after decoding, which a
    counter can make twice: the error is as small as that of rounding to nearest, and has the mean 0 whatever y is."""

    def __call__(self, y, rng):
        noise = rng.random(y.shape, np.float32) - np.float32(0.5)
        return (np.clip(np.round(y * np.float32(7) + noise), -8, 7) - noise) / np.float32(7)


class Protected:
    """P R^T of rank `rank`, its factors in `factors`, and what is left of the matrix in few bits. One power iteration a step finds P and R,
    from the R of the step before (`warm`) or from the same random matrix each time."""

    FACTORS = {"bf16": (16, bf16), "int8": (8 + 32 / 128, Blocks(linear_signed(8), 128))}  # bits of a value, rounding

    def __init__(self, rank, scales, rounding, factors="bf16", warm=True):
        self.rank, self.scales, self.rounding, self.warm = rank, scales, rounding, warm
        self.factor_bits, self.factors = self.FACTORS[factors]

    def bits(self, m, n):
        """What a matrix of m x n takes."""
        return 4 * m * n + self.scales.bits(m, n) + self.factor_bits * self.rank * (m + n)

    def of_matrix(self, number):
        """A rounding for matrix `number`, which remembers what its format keeps."""
        return ProtectedMatrix(self, number)


class ProtectedMatrix:
    def __init__(self, form, number):
        self.form, self.rng, self.right = form, np.random.default_rng(4000 + number), None

    def _leading(self, x):
        rank = min(self.form.rank, *x.shape)
        if rank == 0 or not x.any():
            return np.zeros_like(x)
        right = self.right
        if right is None or not self.form.warm:
            right = np.random.default_rng(5).standard_normal((x.shape[1], rank)).astype(np.float32)
        left = np.linalg.qr(x @ right)[0]
        left, self.right = self.form.factors(left), self.form.factors(x.T @ left)
        return left @ self.right.T

    def __call__(self, x):
        if not np.isfinite(x).all():
            return np.full(x.shape, np.nan, np.float32)
        leading = self._leading(x)
        rest = x - leading
        scales = self.form.scales(rest)
        y = np.divide(rest, scales, out=np.zeros_like(rest), where=np.abs(scales) >= LEAST_SCALE)
        return leading + self.form.rounding(y, self.rng) * scales


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
