#!/usr/bin/env python3
"""Hearth's training run in PyTorch: the same weights, the same batches, the same optimizer, for a loss curve to lay beside Hearth's.

  torch_gpu.py init  --out MODEL [--layers 12 --hidden 768 ...]         a Hugging Face folder with random weights (the hearth-112m shape)
  torch_gpu.py train --model MODEL --data DATASET --out OUT [--steps 200 ...]

then configs/jobs/parity-112m.yaml with model.from=MODEL, data.train=DATASET in Hearth (data.shuffle false, one worker), and compare.py.
Llama, Qwen2 and Qwen3 shapes. fp32 masters; weights are rounded to BF16 for the forward pass, and the residual stream and all matrix
products are BF16, as in Hearth's bf16 recipe (--compute float32 or float64 for checks of this script). OUT gets metrics.jsonl (step, loss,
grad_norm, learning_rate) and gradients.safetensors (step 1, before clipping, fp32, Hugging Face names). Defaults are those of the job file.
Needs torch and numpy. It is written from the formulas and shares no code with Hearth.
"""
import argparse
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tensor_file  # noqa: E402


# ---- Weights --------------------------------------------------------------------------------------------------------

def init_weights(c, seed, std=0.02):
    """fp32 arrays by Hugging Face name: normal(0, std), residual outputs narrower, gains 1."""
    rng = np.random.default_rng(seed)
    hidden, head_dim, layers = c["hidden_size"], c["head_dim"], c["num_hidden_layers"]

    def normal(rows, columns, deviation=std):
        return (rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(deviation))

    narrow = std / (2 * layers) ** 0.5
    q, kv, ffn = c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim, c["intermediate_size"]
    p = {"model.embed_tokens.weight": normal(c["vocab_size"], hidden)}
    for i in range(layers):
        h = f"model.layers.{i}."
        p[h + "input_layernorm.weight"] = np.ones(hidden, np.float32)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            p[h + f"self_attn.{name}_proj.weight"] = normal(rows, hidden)
        p[h + "self_attn.o_proj.weight"] = normal(hidden, q, narrow)
        p[h + "post_attention_layernorm.weight"] = np.ones(hidden, np.float32)
        p[h + "mlp.gate_proj.weight"], p[h + "mlp.up_proj.weight"] = normal(ffn, hidden), normal(ffn, hidden)
        p[h + "mlp.down_proj.weight"] = normal(hidden, ffn, narrow)
    p["model.norm.weight"] = np.ones(hidden, np.float32)
    if not c["tie_word_embeddings"]:
        p["lm_head.weight"] = normal(c["vocab_size"], hidden)
    return p


def command_init(args):
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], num_hidden_layers=args.layers, hidden_size=args.hidden,
                  num_attention_heads=args.heads, num_key_value_heads=args.kv_heads, head_dim=args.hidden // args.heads,
                  intermediate_size=args.ffn, vocab_size=args.vocab, rms_norm_eps=1e-5, rope_theta=10000.0,
                  tie_word_embeddings=not args.untied, hidden_act="silu", max_position_embeddings=args.sequence_length,
                  torch_dtype="float32")
    weights = init_weights(config, args.seed)
    os.makedirs(args.out, exist_ok=True)
    tensor_file.write(os.path.join(args.out, "model.safetensors"), weights)
    with open(os.path.join(args.out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    print(f"{args.out}: {sum(w.size for w in weights.values())} parameters")


# ---- Data -----------------------------------------------------------------------------------------------------------

class Tokens:
    """A dataset folder, an llm.c .bin or a headerless uint16 .bin, as one array."""

    def __init__(self, path):
        if os.path.isdir(path):
            with open(os.path.join(path, "dataset.json")) as f:
                info = json.load(f)
            width = 4 if "32" in str(info.get("dtype", info.get("width", "uint16"))) else 2
            parts = [np.memmap(os.path.join(path, s["file"]), dtype=f"<u{width}", mode="r") for s in info["shards"]]
            self.array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        else:
            head = np.fromfile(path, "<i4", 256)
            offset = 1024 if head.size == 256 and head[0] == 20240520 else 0
            self.array = np.memmap(path, dtype="<u2", mode="r", offset=offset)

    def sample(self, n, length):
        """The n-th sample without shuffling: window n mod W, of W windows of length + 1 tokens that overlap by one."""
        window = n % ((len(self.array) - 1) // length)
        return self.array[window * length:window * length + length + 1].astype(np.int64)


# ---- Model ----------------------------------------------------------------------------------------------------------

def rms_norm(x, gain, eps):
    wide = x.float() if x.dtype != torch.float64 else x
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * gain.to(wide.dtype)).to(x.dtype)


def rope(x, cos, sin):
    """x [B, H, T, D]; the two halves of a head are the real and imaginary parts."""
    wide = x.to(cos.dtype)
    a, b = wide.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def attention(q, k, v):
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[2]
    scores = (q @ k.transpose(-1, -2)).double() * q.shape[-1] ** -0.5
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1).to(v.dtype) @ v


class Model:
    def __init__(self, config, weights, compute, device):
        self.c, self.compute = config, compute
        master = torch.float64 if compute == torch.float64 else torch.float32
        self.master = {n: torch.tensor(np.array(w), dtype=master, device=device).requires_grad_(True) for n, w in weights.items()}
        self.device = device
        self.angles = {}

    def rope_tables(self, length):
        if length not in self.angles:
            dim = self.c["head_dim"]
            frequency = float(self.c["rope_theta"]) ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
            angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
            kind = torch.float64 if self.compute == torch.float64 else torch.float32
            self.angles[length] = angle.cos().to(self.device, kind), angle.sin().to(self.device, kind)
        return self.angles[length]

    def loss(self, tokens, targets):
        """Mean negative log likelihood. Working weights are the masters rounded to the compute format, so gradients reach the masters."""
        c = self.c
        w = {n: t.to(self.compute) for n, t in self.master.items()}
        eps, (cos, sin) = c["rms_norm_eps"], self.rope_tables(tokens.shape[1])
        batch, length = tokens.shape
        # A gather from the rounded table, with the gradient summed in the master's format as rows of the full-width table.
        x = F.embedding(tokens, self.master["model.embed_tokens.weight"]).to(self.compute)
        for i in range(c["num_hidden_layers"]):
            h = f"model.layers.{i}."
            n = rms_norm(x, w[h + "input_layernorm.weight"], eps)
            heads = []
            for name, count in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]), ("v", c["num_key_value_heads"])):
                y = F.linear(n, w[h + f"self_attn.{name}_proj.weight"], w.get(h + f"self_attn.{name}_proj.bias"))
                y = y.view(batch, length, count, c["head_dim"]).transpose(1, 2)
                gain = w.get(h + f"self_attn.{name}_norm.weight")
                y = y if gain is None else rms_norm(y, gain, eps)
                heads.append(y if name == "v" else rope(y, cos, sin))
            mixed = attention(*heads).transpose(1, 2).reshape(batch, length, -1)
            x = x + F.linear(mixed, w[h + "self_attn.o_proj.weight"], w.get(h + "self_attn.o_proj.bias"))
            n = rms_norm(x, w[h + "post_attention_layernorm.weight"], eps)
            gate, up = F.linear(n, w[h + "mlp.gate_proj.weight"]), F.linear(n, w[h + "mlp.up_proj.weight"])
            # The product is rounded once, as a fused kernel rounds it.
            wide = gate.dtype if gate.dtype == torch.float64 else torch.float32
            x = x + F.linear((F.silu(gate.to(wide)) * up.to(wide)).to(x.dtype), w[h + "mlp.down_proj.weight"])
        x = rms_norm(x, w["model.norm.weight"], eps)
        logits = F.linear(x, w.get("lm_head.weight", w["model.embed_tokens.weight"]))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---- Training -------------------------------------------------------------------------------------------------------

def learning_rate(args, step):
    """Linear warm-up, the peak, and for wsd a straight line to 0 over the last decay steps."""
    if step <= args.warmup_steps:
        return args.lr * step / args.warmup_steps
    start = args.steps - args.decay_steps
    if args.schedule == "wsd" and args.decay_steps > 0 and step > start:
        return args.lr * (1 - (step - start) / args.decay_steps)
    return args.lr


def load_model(path, compute, device):
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    if config["model_type"] not in ("llama", "qwen2", "qwen3"):
        raise SystemExit(f"{path}: model_type {config['model_type']} is not one of llama, qwen2, qwen3")
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("rope_theta", (config.get("rope_parameters") or {}).get("rope_theta", 10000.0))
    if config.get("rope_scaling"):
        raise SystemExit(f"{path}: rope_scaling is not written here")
    return Model(config, tensor_file.read(os.path.join(path, "model.safetensors")), compute, device)


def micro_batches(args, data, step):
    """(tokens, targets) of one step: samples (step - 1) * S ... in the order in which Hearth reads them."""
    per_step = args.global_batch_tokens // args.sequence_length
    first = (step - 1) * per_step
    for at in range(first, first + per_step, args.micro_batch_size):
        rows = np.stack([data.sample(n, args.sequence_length) for n in range(at, at + args.micro_batch_size)])
        rows = torch.from_numpy(rows).to(args.device)
        yield rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def command_train(args):
    if args.device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = False
        # Partial sums of BF16 products stay in fp32.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    unit = args.micro_batch_size * args.sequence_length
    if args.global_batch_tokens % unit:
        raise SystemExit(f"--global-batch-tokens {args.global_batch_tokens} is not a multiple of {unit}")
    model = load_model(args.model, getattr(torch, args.compute), args.device)
    data, parameters = Tokens(args.data), model.master
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in parameters.values() if t.ndim >= 2], "weight_decay": args.weight_decay},
         {"params": [t for t in parameters.values() if t.ndim < 2], "weight_decay": 0.0}],
        lr=args.lr, betas=(args.beta1, args.beta2), eps=args.eps)
    os.makedirs(args.out, exist_ok=True)
    began = time.time()
    share = unit / args.global_batch_tokens
    with open(os.path.join(args.out, "metrics.jsonl"), "w") as metrics:
        for step in range(1, args.steps + 1):
            optimizer.zero_grad(set_to_none=True)
            loss = 0.0
            for tokens, targets in micro_batches(args, data, step):
                part = model.loss(tokens, targets) * share
                part.backward()
                loss += part.item()
            if step == 1:
                tensor_file.write(os.path.join(args.out, "gradients.safetensors"),
                                  {n: t.grad.float().cpu().numpy() for n, t in parameters.items()})
            if args.grad_clip > 0:
                norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), args.grad_clip).item()
            else:
                norm = sum(t.grad.double().pow(2).sum().item() for t in parameters.values()) ** 0.5
            rate = learning_rate(args, step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            metrics.write(json.dumps({"step": step, "loss": loss, "grad_norm": norm, "learning_rate": rate}) + "\n")
            metrics.flush()
            if step == 1 or step % 20 == 0:
                print(f"step {step}/{args.steps}  loss {loss:.4f}  grad {norm:.3f}  {time.time() - began:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="write a model folder with random weights")
    for name, value in (("layers", 12), ("hidden", 768), ("heads", 12), ("kv-heads", 3), ("ffn", 2048), ("vocab", 49152),
                        ("sequence-length", 1024), ("seed", 1)):
        init.add_argument("--" + name, type=int, default=value)
    init.add_argument("--untied", action="store_true", help="an output projection of its own")
    init.add_argument("--out", required=True)
    train = commands.add_parser("train", help="train, writing metrics.jsonl and gradients.safetensors")
    for name in ("model", "data", "out"):
        train.add_argument("--" + name, required=True)
    for name, value in (("steps", 200), ("sequence-length", 1024), ("micro-batch-size", 8), ("global-batch-tokens", 8192),
                        ("warmup-steps", 20), ("decay-steps", 0)):
        train.add_argument("--" + name, type=int, default=value)
    for name, value in (("lr", 1e-4), ("beta1", 0.9), ("beta2", 0.95), ("eps", 1e-8), ("weight-decay", 0.1), ("grad-clip", 1.0)):
        train.add_argument("--" + name, type=float, default=value)
    train.add_argument("--schedule", default="constant", choices=("constant", "wsd"))
    train.add_argument("--compute", default="bfloat16", choices=("bfloat16", "float32", "float64"))
    train.add_argument("--device", default="cuda")
    args = parser.parse_args()
    command_init(args) if args.command == "init" else command_train(args)


if __name__ == "__main__":
    main()
