"""Models, optimizers and the Newton-Schulz iteration of low_bit_limits.py, in numpy alone.

`Llama` has the shape of the presets hearth-* (common/spec/model/presets.cc) with gradients written out by hand; q, k and v share one
tensor, and so do gate and up, as in the engine, because blocks of states run through whole tensors. low_bit_limits_test.py holds it
against PyTorch's recorded losses and against the engine.
"""
import math

import numpy as np

# kernels/newton_schulz/newton_schulz.cc
NEWTON_SCHULZ = {
    "tuned": [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
              (2.8366, -3.0525, 1.2012)],
    "standard": [(1.5, -0.5, 0.0)] * 5,
}


def newton_schulz(u, rows="tuned", operand=None, store=None, steps=5, each=None):
    """The orthogonal factor of u. `operand` rounds what enters a product, `store` also what comes out of one; each(X) sees X after
    every step. Steps beyond the fifth repeat the last coefficients."""
    operand = operand or (lambda x: x)
    store = store or (lambda x: x)
    x = u / (np.linalg.norm(u) + 1e-7)
    transposed = x.shape[0] > x.shape[1]
    x = store(np.ascontiguousarray(x.T if transposed else x))
    for i in range(steps):
        a, b, c = (x.dtype.type(k) for k in NEWTON_SCHULZ[rows][min(i, 4)])
        xo = operand(x)
        gram = store(xo @ xo.T)
        go = operand(gram)
        poly = store(b * gram + c * (go @ go)) if c else store(b * gram)
        x = store(a * x + operand(poly) @ xo)
        if each is not None:
            each(x)
        if not np.isfinite(x).all():
            break
    return x.T if transposed else x


# ---- Models ----------------------------------------------------------------------------------------------------------

class TwoLayers:
    """y = W2 tanh(W1 x), which learns such a network with other weights; the inputs' deviations span two decades."""

    def __init__(self, inputs=64, hidden=256, seed=0):
        rng = np.random.default_rng(1000 + seed)
        self.deviation = np.logspace(0, -2, inputs).astype(np.float32)
        self.teacher = self._weights(rng, inputs, hidden, 3.0)
        self.weights = self._weights(rng, inputs, hidden, 1.0)
        self.matrices = {name: [(0, w.shape[0])] for name, w in self.weights.items()}
        self.rng = np.random.default_rng(2000 + seed)

    @staticmethod
    def _weights(rng, inputs, hidden, gain):
        def normal(rows, columns):
            return (rng.standard_normal((rows, columns)) * gain / math.sqrt(columns)).astype(np.float32)
        return {"in": normal(hidden, inputs), "out": normal(inputs, hidden)}

    def batch(self):
        return self.rng.standard_normal((128, len(self.deviation))).astype(np.float32) * self.deviation

    def loss_and_gradients(self, x):
        """The squared error over that of always answering 0."""
        want = np.tanh(x @ self.teacher["in"].T) @ self.teacher["out"].T
        h = np.tanh(x @ self.weights["in"].T)
        off = h @ self.weights["out"].T - want
        whole = (want**2).sum()
        dy = 2 * off / whole
        dh = dy @ self.weights["out"] * (1 - h * h)
        return float((off**2).sum() / whole), {"in": dh.T @ x, "out": dy.T @ h}


def rms(x, w, eps):
    r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return x * r * w, (x * r, r, w)


def rms_backward(dy, kept):
    xn, r, w = kept
    d = dy * w
    return r * (d - xn * (d * xn).mean(axis=-1, keepdims=True)), (dy * xn).reshape(-1, len(w)).sum(axis=0)


class Llama:
    HEARTH_TINY = dict(layers=4, hidden=128, heads=4, kv=2, head_dim=32, ffn=352, vocab=256, eps=1e-5, theta=10000.0, tied=True)

    def __init__(self, shape, weights=None, seed=0, dtype=np.float32):
        self.shape, self.dtype = shape, dtype
        if weights is None:
            weights = self._random(np.random.default_rng(1000 + seed))
        self.weights = {name: np.array(w, dtype) for name, w in weights.items()}
        s = shape
        q, kv = s["heads"] * s["head_dim"], s["kv"] * s["head_dim"]
        # Rows [first, last) of each logical matrix.
        parts = {"qkv": [(0, q), (q, q + kv), (q + kv, q + 2 * kv)], "o": [(0, s["hidden"])], "gate_up": [(0, s["ffn"]),
                 (s["ffn"], 2 * s["ffn"])], "down": [(0, s["hidden"])]}
        self.matrices = {f"{i}.{name}": rows for i in range(s["layers"]) for name, rows in parts.items()}
        self.ropes = {}

    def _random(self, rng):
        s = self.shape
        q, kv, c = s["heads"] * s["head_dim"], s["kv"] * s["head_dim"], s["hidden"]
        narrow = 0.02 / math.sqrt(2 * s["layers"])

        def normal(rows, columns, deviation=0.02):
            return rng.standard_normal((rows, columns)) * deviation
        w = {"embedding": normal(s["vocab"], c), "norm": np.ones(c)}
        for i in range(s["layers"]):
            w.update({f"{i}.norm1": np.ones(c), f"{i}.qkv": normal(q + 2 * kv, c), f"{i}.o": normal(c, q, narrow),
                      f"{i}.norm2": np.ones(c), f"{i}.gate_up": normal(2 * s["ffn"], c), f"{i}.down": normal(c, s["ffn"], narrow)})
        if not s["tied"]:
            w["head"] = normal(s["vocab"], c)
        return w

    def _rope(self, x, back=False):
        t, d = x.shape[-2:]
        if t not in self.ropes:
            angle = np.arange(t)[:, None] * self.shape["theta"] ** (-np.arange(0, d, 2) / d)
            self.ropes[t] = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        cos, sin = self.ropes[t]
        sin = -sin if back else sin
        a, b = x[..., :d // 2], x[..., d // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def _split(self, y, b, t, count):
        return y.reshape(b, t, count, -1).transpose(0, 2, 1, 3)

    def _attention(self, qkv, b, t):
        s = self.shape
        groups, q_rows, kv_rows = s["heads"] // s["kv"], s["heads"] * s["head_dim"], s["kv"] * s["head_dim"]
        q = self._rope(self._split(qkv[:, :q_rows], b, t, s["heads"]))
        k = self._rope(self._split(qkv[:, q_rows:q_rows + kv_rows], b, t, s["kv"])).repeat(groups, axis=1)
        v = self._split(qkv[:, q_rows + kv_rows:], b, t, s["kv"]).repeat(groups, axis=1)
        scores = q @ k.transpose(0, 1, 3, 2) / self.dtype(math.sqrt(s["head_dim"]))
        scores[..., np.triu(np.ones((t, t), bool), 1)] = -np.inf
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return (p @ v).transpose(0, 2, 1, 3).reshape(b * t, -1), (q, k, v, p)

    def _attention_backward(self, dy, kept, b, t):
        s = self.shape
        q, k, v, p = kept
        groups = s["heads"] // s["kv"]
        dy = self._split(dy, b, t, s["heads"])
        dp = dy @ v.transpose(0, 1, 3, 2)
        ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / self.dtype(math.sqrt(s["head_dim"]))

        def merged(x):
            return x.transpose(0, 2, 1, 3).reshape(b * t, -1)

        def shared(x):
            return x.reshape(b, s["kv"], groups, t, -1).sum(axis=2)
        dq, dk = self._rope(ds @ k, True), self._rope(shared(ds.transpose(0, 1, 3, 2) @ q), True)
        return np.concatenate([merged(dq), merged(dk), merged(shared(p.transpose(0, 1, 3, 2) @ dy))], axis=1)

    def loss_and_gradients(self, rows, gradients=True):
        """rows [B, T + 1] of tokens."""
        w, s = self.weights, self.shape
        b, t = rows.shape[0], rows.shape[1] - 1
        tokens, targets = rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1)
        x, kept = w["embedding"][tokens], []
        for i in range(s["layers"]):
            n1, r1 = rms(x, w[f"{i}.norm1"], s["eps"])
            mixed, att = self._attention(n1 @ w[f"{i}.qkv"].T, b, t)
            x = x + mixed @ w[f"{i}.o"].T
            n2, r2 = rms(x, w[f"{i}.norm2"], s["eps"])
            gate, up = np.split(n2 @ w[f"{i}.gate_up"].T, 2, axis=1)
            sig = 1 / (1 + np.exp(-gate))
            act = gate * sig * up
            x = x + act @ w[f"{i}.down"].T
            kept.append((n1, r1, mixed, att, n2, r2, gate, up, sig, act))
        last, r = rms(x, w["norm"], s["eps"])
        head = "embedding" if s["tied"] else "head"
        logits = last @ w[head].T
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=1, keepdims=True)
        at = np.arange(len(targets))
        loss = float((np.log(total[:, 0]) - logits[at, targets]).mean(dtype=np.float64))
        if not gradients:
            return loss, {}
        p /= total
        p[at, targets] -= 1
        p /= self.dtype(len(targets))
        g = {head: p.T @ last}
        dx, g["norm"] = rms_backward(p @ w[head], r)
        for i in reversed(range(s["layers"])):
            n1, r1, mixed, att, n2, r2, gate, up, sig, act = kept[i]
            g[f"{i}.down"] = dx.T @ act
            da = dx @ w[f"{i}.down"]
            dgu = np.concatenate([da * up * sig * (1 + gate * (1 - sig)), da * gate * sig], axis=1)
            g[f"{i}.gate_up"] = dgu.T @ n2
            d, g[f"{i}.norm2"] = rms_backward(dgu @ w[f"{i}.gate_up"], r2)
            dx = dx + d
            g[f"{i}.o"] = dx.T @ mixed
            dqkv = self._attention_backward(dx @ w[f"{i}.o"], att, b, t)
            g[f"{i}.qkv"] = dqkv.T @ n1
            d, g[f"{i}.norm1"] = rms_backward(dqkv @ w[f"{i}.qkv"], r1)
            dx = dx + d
        if s["tied"]:
            np.add.at(g["embedding"], tokens, dx)
        else:
            g["embedding"] = np.zeros_like(w["embedding"])
            np.add.at(g["embedding"], tokens, dx)
        return loss, g


# ---- Optimizers ------------------------------------------------------------------------------------------------------

class Optimizer:
    """AdamW or Muon of the engine (docs/optimizers.md). `formats` names a rounding for "m", "v" and "momentum" that states go through
    after each step, in matrices of at least 4096 elements, as optimizer.state does it. One with `of_matrix` gives each logical matrix a
    rounding of its own."""

    def __init__(self, model, muon, formats, lr, decay=0.1, betas=(0.9, 0.95), eps=1e-8, mu=0.95, clip=1.0, orthogonal=newton_schulz):
        self.model, self.muon, self.formats, self.lr, self.decay = model, muon, formats, lr, decay
        self.betas, self.eps, self.mu, self.clip, self.orthogonal = betas, eps, mu, clip, orthogonal
        self.states = {name: {k: np.zeros_like(w) for k in ("m", "v", "momentum")} for name, w in model.weights.items()}
        self.by_matrix = {}  # (tensor, first row) -> its rounding
        self.step_number = 0

    def _rounded(self, name, kind, x):
        rounding = self.formats.get(kind)
        if rounding is None or name not in self.model.matrices or x.size < 4096:
            return x
        if not hasattr(rounding, "of_matrix"):
            return rounding(x).astype(x.dtype)
        out = np.empty_like(x)
        for first, last in self.model.matrices[name]:
            if (name, first) not in self.by_matrix:
                self.by_matrix[name, first] = rounding.of_matrix(len(self.by_matrix))
            out[first:last] = self.by_matrix[name, first](x[first:last])
        return out

    def norm(self, gradients):
        return math.sqrt(sum(float((g.astype(np.float64)**2).sum()) for g in gradients.values()))

    def step(self, gradients, scale):
        """`scale` times lr is the step's rate. Returns the gradients' norm."""
        self.step_number += 1
        norm = self.norm(gradients)
        factor = min(1.0, self.clip / norm) if norm > 0 else 1.0
        for name, w in self.model.weights.items():
            g = gradients[name] * w.dtype.type(factor)
            hidden = name in self.model.matrices
            decay = self.decay if w.ndim > 1 else 0.0
            update = self._muon(name, g) if self.muon and hidden else self._adam(name, g)
            lr = self.lr * scale
            w *= w.dtype.type(1 - lr * decay)
            w -= w.dtype.type(lr) * update
        return norm

    def _adam(self, name, g):
        s, (b1, b2), t = self.states[name], self.betas, self.step_number
        m = g.dtype.type(b1) * s["m"] + g.dtype.type(1 - b1) * g
        v = g.dtype.type(b2) * s["v"] + g.dtype.type(1 - b2) * g * g
        # The step uses what it has before that is rounded, as the engine does.
        s["m"], s["v"] = self._rounded(name, "m", m), self._rounded(name, "v", v)
        return m / g.dtype.type(1 - b1**t) / (np.sqrt(v) / g.dtype.type(math.sqrt(1 - b2**t)) + g.dtype.type(self.eps))

    def _muon(self, name, g):
        s, mu = self.states[name], g.dtype.type(self.mu)
        momentum = mu * s["momentum"] + g
        s["momentum"] = self._rounded(name, "momentum", momentum)
        u, out = g + mu * momentum, np.empty_like(g)
        for first, last in self.model.matrices[name]:
            part = u[first:last]
            out[first:last] = g.dtype.type(0.2 * math.sqrt(max(part.shape))) * self.orthogonal(part)
        return out
