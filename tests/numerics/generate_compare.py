#!/usr/bin/env python3
"""Compares the texts that Hearth writes with those of transformers, token for token.

  tests/numerics/generate_compare.py --bin build/release/bin [--devices cpu,cuda:0] [--tokens 200] [--keep FOLDER]

Needs torch and transformers. Makes a small model with random weights of each family (llama, qwen2, qwen3, gpt2), saves it as a model
folder, and lets both continue the same prompts, the most likely token each time: in fp32 on the CPU, in BF16 on a GPU. The tokens must be
equal. Where they are not, the script asks transformers in fp32 for the logits at the first difference: it is a tie if the two tokens' logits
are closer than the format can tell (--ties, in units of the format's rounding of the largest logit). The log-probabilities are those of the
common tokens: mean difference, and mean of the absolute ones.

Exit 0: all equal, or ties; 1: something else, which the table shows.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

PROMPTS = ["Once upon a time", "The", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18"]
END = 256  # of the tokenizer of bytes
SIZES = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 257, "bos_token_id": None,
         "eos_token_id": END, "pad_token_id": END, "initializer_range": 0.08}
LLAMA_LIKE = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 688, "max_position_embeddings": 512, "rms_norm_eps": 1e-5}


def configs():
    t = transformers
    yield "llama", t.LlamaConfig(**LLAMA_LIKE, tie_word_embeddings=False)
    yield "llama3-rope", t.LlamaConfig(**LLAMA_LIKE, tie_word_embeddings=True, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})
    yield "qwen2", t.Qwen2Config(**LLAMA_LIKE, tie_word_embeddings=True)
    yield "qwen3", t.Qwen3Config(**LLAMA_LIKE, head_dim=64, tie_word_embeddings=True)
    gpt2 = {k: v for k, v in SIZES.items() if k not in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    yield "gpt2", t.GPT2Config(**gpt2, n_embd=256, n_layer=4, n_head=8, n_positions=512, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def make(family, config, folder):
    torch.manual_seed(sum(map(ord, family)))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:  # norms and biases begin alike; give them values of their own
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    (folder / "hearth_tokenizer.json").write_text(json.dumps({"kind": "bytes", "file": "", "vocab": 257, "eos": END}))
    return model.eval()


def theirs(model, tokens, device, dtype):
    """Greedy tokens behind each prompt, and their log-probabilities."""
    model = model.to(device=device, dtype=dtype)
    result = []
    for prompt in PROMPTS:
        ids = torch.tensor([list(prompt.encode())], device=device)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=tokens,
                             pad_token_id=END, return_dict_in_generate=True, output_logits=True)
        drawn = out.sequences[0, ids.shape[1]:].tolist()
        log_prob = [torch.log_softmax(step[0].float(), -1)[token].item() for step, token in zip(out.logits, drawn)]
        result.append((drawn[:-1] if drawn and drawn[-1] == END else drawn, log_prob))
    return result


def ours(args, folder, device):
    """The same of all prompts together, and whether the first one's text is the same alone."""
    def sample(*what):
        done = subprocess.run([args.bin / "hearth-trainer", "sample", folder, *what, "--tokens", str(args.tokens), "--temperature", "0",
                               "--device", device, "-o", "json"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"hearth-trainer sample: {done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    lines = folder / "prompts.txt"
    lines.write_text("\n".join(PROMPTS) + "\n")
    together = sample("--prompts", lines)
    alone = sample("--prompt", PROMPTS[0])
    return [(line["tokens"], line["log_prob"]) for line in together], together[0]["tokens"] == alone[0]["tokens"]


def gap(model, prompt, common, a, b):
    """In fp32, after the common tokens: by how much the logit of a is above that of b, and the largest magnitude."""
    model = model.to(device="cpu", dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([list(prompt.encode()) + common])).logits[0, -1]
    return abs(logits[a] - logits[b]).item(), logits.abs().max().item()


def compare(args, family, model, folder, device, dtype):
    unit = 2.0 ** (-8 if dtype == torch.bfloat16 else -24)
    mine, same = ours(args, folder, device)
    equal, worst, differences = 0, 0.0, []
    for prompt, (a, a_log), (b, b_log) in zip(PROMPTS, mine, theirs(model, args.tokens, device, dtype)):
        common = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        differences += [x - y for x, y in zip(a_log[:common], b_log[:common])]
        equal += common
        if common < max(len(a), len(b)):
            first = [tokens[common] if common < len(tokens) else END for tokens in (a, b)]
            distance, largest = gap(model, prompt, a[:common], *first)
            worst = max(worst, distance / (unit * largest))
    fine = worst <= args.ties
    total = sum(len(tokens) for tokens, _ in mine)
    mean = sum(differences) / max(1, len(differences))
    absolute = sum(map(abs, differences)) / max(1, len(differences))
    name = "bf16" if dtype == torch.bfloat16 else "fp32"
    print(f"{family:12} {device:7} {name:5} {equal:5} of {total:5}  {worst:10.2f}  {'yes' if same else 'no':13} {mean:+.2e}  {absolute:.2e}  "
          f"{'' if fine else 'FAILED'}", flush=True)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--devices", default="cpu", help="as cpu,cuda:0")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--ties", type=float, default=8.0)
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    print("family       device  type  equal tokens    largest gap  batch = alone  log-probability: mean, absolute")
    fine = True
    with tempfile.TemporaryDirectory() as temporary:
        for family, config in configs():
            folder = (args.keep or pathlib.Path(temporary)) / family
            folder.mkdir(parents=True, exist_ok=True)
            model = make(family, config, folder)
            for device in args.devices.split(","):
                fine &= compare(args, family, model, folder, device, torch.float32 if device == "cpu" else torch.bfloat16)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
