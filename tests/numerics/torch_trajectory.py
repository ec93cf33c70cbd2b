#!/usr/bin/python3
"""Writes the reference trajectories of tests/numerics: 20 optimizer steps of four tiny models in PyTorch, float64.

For each of the Llama, Qwen2, Qwen3 and GPT-2 shapes a folder data/<shape>/ is made:
  model/            Hugging Face folder with the initial weights (fp32)
  gradients.safetensors   every gradient of step 1 before clipping, Hugging Face names (fp32)
  final/model.safetensors weights after the last step (fp32)
  trajectory.json   job settings, loss, gradient norm and learning rate of every step
and data/tokens.bin, headerless uint16, read front to back.

The models are written out below from the papers' formulas rather than taken from a library, so that they share no code with
either Hugging Face or Hearth. Run: /usr/bin/python3 tests/numerics/torch_trajectory.py (needs python3-torch, Debian 12)."""

import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

SEQ, MICRO, GLOBAL, STEPS = 16, 2, 4, 20
LR, WARMUP, BETA1, BETA2, EPS, DECAY, CLIP = 3e-3, 5, 0.9, 0.95, 1e-8, 0.1, 1.0
COMMON = dict(layers=2, hidden=32, heads=4, vocab=160, ffn=64)
SHAPES = {
    "llama": dict(COMMON, kv=2, head_dim=8, eps=1e-5, theta=10000.0, tied=False),
    "qwen2": dict(COMMON, kv=2, head_dim=8, eps=1e-6, theta=1000000.0, tied=True),
    "qwen3": dict(COMMON, kv=2, head_dim=16, eps=1e-6, theta=1000000.0, tied=True),
    "gpt2": dict(COMMON, kv=4, head_dim=8, eps=1e-5, ffn=128, tied=True),
}


def write_safetensors(path, tensors):
    header, offset, blobs = {}, 0, []
    for name, tensor in tensors.items():
        blob = tensor.detach().to(torch.float32).contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def init(shape, kind, gen):
    """Parameters by Hugging Face name, in float64 but exactly representable in fp32."""
    C, D, Hq, Hkv, Fh, V = shape["hidden"], shape["head_dim"], shape["heads"], shape["kv"], shape["ffn"], shape["vocab"]

    def normal(*size, std=0.08):
        return (torch.randn(*size, generator=gen, dtype=torch.float32) * std).double()

    def gain(n):
        return (1 + 0.1 * torch.randn(n, generator=gen, dtype=torch.float32)).double()

    p = {}
    if kind == "gpt2":
        p["transformer.wte.weight"] = normal(V, C)
        p["transformer.wpe.weight"] = normal(SEQ, C)
        for i in range(shape["layers"]):
            h = f"transformer.h.{i}."
            p[h + "ln_1.weight"], p[h + "ln_1.bias"] = gain(C), normal(C)
            p[h + "attn.c_attn.weight"], p[h + "attn.c_attn.bias"] = normal(C, 3 * C), normal(3 * C)
            p[h + "attn.c_proj.weight"], p[h + "attn.c_proj.bias"] = normal(C, C), normal(C)
            p[h + "ln_2.weight"], p[h + "ln_2.bias"] = gain(C), normal(C)
            p[h + "mlp.c_fc.weight"], p[h + "mlp.c_fc.bias"] = normal(C, Fh), normal(Fh)
            p[h + "mlp.c_proj.weight"], p[h + "mlp.c_proj.bias"] = normal(Fh, C), normal(C)
        p["transformer.ln_f.weight"], p["transformer.ln_f.bias"] = gain(C), normal(C)
        return p
    p["model.embed_tokens.weight"] = normal(V, C)
    for i in range(shape["layers"]):
        h = f"model.layers.{i}."
        p[h + "input_layernorm.weight"] = gain(C)
        for name, rows in (("q", Hq * D), ("k", Hkv * D), ("v", Hkv * D)):
            p[h + f"self_attn.{name}_proj.weight"] = normal(rows, C)
            if kind == "qwen2":
                p[h + f"self_attn.{name}_proj.bias"] = normal(rows)
        if kind == "qwen3":
            p[h + "self_attn.q_norm.weight"], p[h + "self_attn.k_norm.weight"] = gain(D), gain(D)
        p[h + "self_attn.o_proj.weight"] = normal(C, Hq * D)
        p[h + "post_attention_layernorm.weight"] = gain(C)
        p[h + "mlp.gate_proj.weight"], p[h + "mlp.up_proj.weight"] = normal(Fh, C), normal(Fh, C)
        p[h + "mlp.down_proj.weight"] = normal(C, Fh)
    p["model.norm.weight"] = gain(C)
    if not shape["tied"]:
        p["lm_head.weight"] = normal(V, C)
    return p


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope(x, theta):
    """x [B, H, T, D]; the two halves of a head are the real and imaginary parts (Hugging Face's rotate_half)."""
    T, D = x.shape[-2:]
    freq = theta ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * freq
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., : D // 2], x[..., D // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, shape):
    """q [B, T, Hq*D], k and v [B, T, Hkv*D], already through rope: causal softmax attention with shared key/value heads."""
    groups = shape["heads"] // shape["kv"]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    T = q.shape[2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(shape["head_dim"])
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    out = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
    return out.transpose(1, 2).reshape(out.shape[0], T, -1)


def heads(x, count):
    B, T, _ = x.shape
    return x.view(B, T, count, -1).transpose(1, 2)


def forward_gpt2(p, tokens, shape):
    C, eps = shape["hidden"], shape["eps"]
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(shape["layers"]):
        h = f"transformer.h.{i}."
        n = F.layer_norm(x, (C,), p[h + "ln_1.weight"], p[h + "ln_1.bias"], eps)
        q, k, v = (n @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]).split(C, -1)
        a = attention(heads(q, shape["heads"]), heads(k, shape["kv"]), heads(v, shape["kv"]), shape)
        x = x + a @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        n = F.layer_norm(x, (C,), p[h + "ln_2.weight"], p[h + "ln_2.bias"], eps)
        m = F.gelu(n @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"], approximate="tanh")
        x = x + m @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
    x = F.layer_norm(x, (C,), p["transformer.ln_f.weight"], p["transformer.ln_f.bias"], eps)
    return x @ p["transformer.wte.weight"].T


def forward_llama(p, tokens, shape):
    eps, theta = shape["eps"], shape["theta"]
    x = p["model.embed_tokens.weight"][tokens]
    for i in range(shape["layers"]):
        h = f"model.layers.{i}."
        n = rms(x, p[h + "input_layernorm.weight"], eps)
        qkv = []
        for name, count in (("q", shape["heads"]), ("k", shape["kv"]), ("v", shape["kv"])):
            bias = p.get(h + f"self_attn.{name}_proj.bias", 0.0)
            y = heads(n @ p[h + f"self_attn.{name}_proj.weight"].T + bias, count)
            gain = p.get(h + f"self_attn.{name}_norm.weight")
            y = y if gain is None else rms(y, gain, eps)
            qkv.append(y if name == "v" else rope(y, theta))
        x = x + attention(*qkv, shape) @ p[h + "self_attn.o_proj.weight"].T
        n = rms(x, p[h + "post_attention_layernorm.weight"], eps)
        m = F.silu(n @ p[h + "mlp.gate_proj.weight"].T) * (n @ p[h + "mlp.up_proj.weight"].T)
        x = x + m @ p[h + "mlp.down_proj.weight"].T
    x = rms(x, p["model.norm.weight"], eps)
    return x @ p.get("lm_head.weight", p["model.embed_tokens.weight"]).T


def config(shape, kind):
    if kind == "gpt2":
        return dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_layer=shape["layers"], n_embd=shape["hidden"],
                    n_head=shape["heads"], n_inner=shape["ffn"], vocab_size=shape["vocab"], n_positions=SEQ,
                    layer_norm_epsilon=shape["eps"], activation_function="gelu_new", tie_word_embeddings=True)
    names = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    return dict(model_type=kind, architectures=[names[kind]], num_hidden_layers=shape["layers"], hidden_size=shape["hidden"],
                num_attention_heads=shape["heads"], num_key_value_heads=shape["kv"], head_dim=shape["head_dim"],
                intermediate_size=shape["ffn"], vocab_size=shape["vocab"], rms_norm_eps=shape["eps"],
                rope_theta=shape["theta"], tie_word_embeddings=shape["tied"], hidden_act="silu",
                max_position_embeddings=SEQ)


def learning_rate(step):
    """Linear warm-up, then constant."""
    return LR * min(1.0, step / WARMUP)


def train(kind, shape, stream, out):
    params = init(shape, kind, torch.Generator().manual_seed(1000 + len(kind) + shape["kv"]))
    os.makedirs(f"{out}/model", exist_ok=True)
    os.makedirs(f"{out}/final", exist_ok=True)
    write_safetensors(f"{out}/model/model.safetensors", params)
    with open(f"{out}/model/config.json", "w") as f:
        json.dump(config(shape, kind), f, indent=1)
        f.write("\n")
    forward = forward_gpt2 if kind == "gpt2" else forward_llama
    for t in params.values():
        t.requires_grad_(True)
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in params.values() if t.ndim >= 2], "weight_decay": DECAY},
         {"params": [t for t in params.values() if t.ndim < 2], "weight_decay": 0.0}],
        lr=LR, betas=(BETA1, BETA2), eps=EPS)
    losses, norms, rates = [], [], []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        first = (step - 1) * GLOBAL
        rows = torch.stack([stream[i * SEQ:(i + 1) * SEQ + 1] for i in range(first, first + GLOBAL)])
        loss = F.cross_entropy(forward(params, rows[:, :-1], shape).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        if step == 1:
            write_safetensors(f"{out}/gradients.safetensors", {n: t.grad for n, t in params.items()})
        norms.append(torch.nn.utils.clip_grad_norm_(params.values(), CLIP).item())
        rates.append(learning_rate(step))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        losses.append(loss.item())
    write_safetensors(f"{out}/final/model.safetensors", params)
    settings = dict(sequence_length=SEQ, micro_batch_size=MICRO, global_batch_tokens=GLOBAL * SEQ, steps=STEPS, lr=LR,
                    warmup_steps=WARMUP, beta1=BETA1, beta2=BETA2, eps=EPS, weight_decay=DECAY, grad_clip=CLIP)
    with open(f"{out}/trajectory.json", "w") as f:
        json.dump(dict(shape=kind, torch=torch.__version__, settings=settings, loss=losses, grad_norm=norms,
                       learning_rate=rates), f, indent=1)
        f.write("\n")
    print(f"{kind}: loss {losses[0]:.6f} -> {losses[-1]:.6f}, {sum(t.numel() for t in params.values())} parameters")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    # Structured text-like stream: a noisy walk, so that 20 steps learn something.
    rng = np.random.default_rng(7)
    walk = np.cumsum(rng.integers(-3, 4, STEPS * GLOBAL * SEQ + 1)) % COMMON["vocab"]
    os.makedirs(f"{here}/data", exist_ok=True)
    walk.astype("<u2").tofile(f"{here}/data/tokens.bin")
    stream = torch.from_numpy(walk.astype(np.int64))
    for kind, shape in SHAPES.items():
        train(kind, shape, stream, f"{here}/data/{kind}")


if __name__ == "__main__":
    main()
