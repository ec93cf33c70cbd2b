#!/usr/bin/env python3
"""Supervised fine-tuning against transformers: tokens, masks, loss and gradients of the same conversations.

  tests/numerics/sft_compare.py --bin build/release/bin [--keep FOLDER]

Needs torch, transformers and tokenizers; runs on CPUs alone. Makes a byte-level BPE with a chat template, a small Llama and a small Qwen2 with
random weights, and chat data. `jobctl dataset build --chat` makes the dataset, `hearth-trainer run` one step of task: sft in fp32 over all of
it, packed into samples; transformers reads each conversation by itself, without padding. Compared are
  - tokens and masks with apply_chat_template(return_assistant_tokens_mask=True), for a template with {% generation %} and one without
  - the mean loss over the counted tokens, and its gradient by each tensor, within 1e-3
Exit 0: all agree; 1: what differs is printed.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402
import metrics_file  # noqa: E402

TOLERANCE = 1e-3
SEQUENCE = 224
MARKED = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
          "{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
PLAIN = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def conversations(seed=5, count=60):
    rng = random.Random(seed)
    words = "the answer is what why how not yes 42 \u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d caf\u00e9 \U0001f600 it's ok".split()

    def text(least, most):
        return " ".join(rng.choice(words) for _ in range(rng.randint(least, most)))
    out = []
    for _ in range(count):
        messages = [{"role": "system", "content": text(1, 3)}] if rng.random() < 0.3 else []
        for _ in range(rng.randint(1, 3)):
            messages += [{"role": "user", "content": text(1, 8)}, {"role": "assistant", "content": text(1, 8)}]
        out.append(messages)
    return out


def make_tokenizer(folder, data):
    """Saves the tokenizer with the marked template; returns it."""
    import tokenizers
    import transformers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<|im_start|>", "<|im_end|>"],
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator((m["content"] for messages in data for m in messages), trainer)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    wrapped.chat_template = MARKED
    wrapped.save_pretrained(folder)
    return wrapped


def make_model(family, folder, vocab):
    import torch
    import transformers
    torch.manual_seed(3)
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160,
             "vocab_size": vocab, "max_position_embeddings": 256, "tie_word_embeddings": family == "Qwen2", "initializer_range": 0.2}
    model = getattr(transformers, family + "ForCausalLM")(getattr(transformers, family + "Config")(**shape)).float()
    model.save_pretrained(folder)
    return model


def read_dataset(folder):
    """[(tokens, counts)] of its documents."""
    info = json.loads((folder / "dataset.json").read_text())
    dtype = "<u2" if info["dtype"] == "uint16" else "<u4"
    tokens = np.concatenate([np.fromfile(folder / s["file"], dtype) for s in info["shards"]]).astype(np.int64)
    mask = np.concatenate([np.fromfile(folder / s["mask"], np.uint8) for s in info["shards"]])
    ends = np.flatnonzero(mask & 2) + 1
    begins = np.concatenate([[0], ends[:-1]])
    return [(tokens[a:b], (mask[a:b] & 1).astype(bool)) for a, b in zip(begins, ends)]


def compare_masks(tokenizer, data, documents, what):
    for messages, (tokens, counts) in zip(data, documents):
        wanted = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        if list(tokens) != list(wanted["input_ids"]):
            return f"{what}: other tokens for {messages}: {list(tokens)}, transformers {list(wanted['input_ids'])}"
        if list(counts.astype(int)) != list(wanted["assistant_masks"]):
            return f"{what}: another mask for {messages}: {list(counts.astype(int))}, transformers {list(wanted['assistant_masks'])}"
    print(f"{what}: tokens and masks of {len(documents)} conversations are equal, {sum(c.sum() for _, c in documents)} tokens count")
    return ""


def windows(documents, room):
    """How many samples best_fit needs: the longest document first, each where it leaves the least room."""
    left = []
    for length in sorted((len(tokens) for tokens, _ in documents), reverse=True):
        fits = [room_left for room_left in left if room_left >= length]
        if fits:
            left.remove(min(fits))
        left.append((min(fits) if fits else room) - length)
    return len(left)


def torch_step(model, documents):
    """Mean loss over the counted tokens, and its gradients by name."""
    import torch
    total = sum(int(counts[1:].sum()) for _, counts in documents)
    loss = 0.0
    model.zero_grad()
    for tokens, counts in documents:
        ids = torch.tensor(tokens)[None]
        logits = model(input_ids=ids).logits[0, :-1].float()
        nll = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")[torch.tensor(counts[1:])].sum() / total
        nll.backward()
        loss += nll.item()
    return loss, {name: p.grad.numpy() for name, p in model.named_parameters()}


def hearth_step(program, model, dataset, documents, out):
    """The same of hearth-trainer."""
    assert max(len(tokens) for tokens, _ in documents) <= SEQUENCE + 1, "a conversation is longer than a sample"
    samples = windows(documents, SEQUENCE + 1)
    job = {"name": "sft-compare", "task": "sft", "model": {"from": str(model)},
           "data": {"train": str(dataset), "sequence_length": SEQUENCE, "shuffle": False},
           "batch": {"micro_batch_size": 1, "global_batch_tokens": samples * SEQUENCE}, "precision": {"recipe": "fp32"},
           "optimizer": {"lr": 1e-6}, "schedule": {"name": "constant", "warmup_steps": 0}, "train": {"steps": 1, "seed": 1},
           "checkpoint": {"every_steps": 0}, "resources": {"workers": 1, "device": "cpu"}}
    out.mkdir()
    (out / "job.yaml").write_text(json.dumps(job))
    subprocess.run([program, "run", out / "job.yaml", "--out", out, "--dump-gradients", out / "gradients"], check=True,
                   stdout=subprocess.DEVNULL)
    loss = metrics_file.read(out / "metrics.jsonl")[1]["loss"]
    # The files have the gradient of the sum over the global batch's tokens; that of the mean over those that count is wanted.
    scale = samples * SEQUENCE / sum(int(counts[1:].sum()) for _, counts in documents)
    return loss, {name: scale * tensor for name, tensor in compare.read_gradients(str(out / "gradients")).items()}


def compare_step(family, ours, theirs):
    gap = abs(ours[0] - theirs[0]) / abs(theirs[0])
    print(f"{family}: loss {ours[0]:.6f}, transformers {theirs[0]:.6f}, gap {gap:.2e}")
    if not gap <= TOLERANCE:
        return f"{family}: the losses differ"
    names = set(theirs[1]) - (set() if "lm_head.weight" in ours[1] else {"lm_head.weight"})
    if set(ours[1]) != names:
        return f"{family}: other tensors: {sorted(set(ours[1]) ^ names)[:5]}"
    worst = max((np.linalg.norm(ours[1][n] - theirs[1][n]) / np.linalg.norm(theirs[1][n]), n) for n in names)
    print(f"{family}: gradients of {len(names)} tensors, largest relative error {worst[0]:.2e} ({worst[1]})")
    return "" if worst[0] <= TOLERANCE else f"{family}: the gradients differ"


def run(folder, binaries):
    data = conversations()
    chat = folder / "chat.jsonl"
    chat.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in data))
    tokenizer = make_tokenizer(folder / "tokenizer", data)
    (folder / "plain.jinja").write_text(PLAIN)
    problems = []
    for what, extra in (("with generation blocks", []), ("without", ["--chat-template", folder / "plain.jinja"])):
        out = folder / ("data-" + what.replace(" ", "-"))
        subprocess.run([binaries / "jobctl", "dataset", "build", "--input", chat, "--chat", "messages", "--tokenizer", folder / "tokenizer",
                        "--out", out, *extra], check=True, stdout=subprocess.DEVNULL)
        documents = read_dataset(out)
        problems.append(compare_masks(tokenizer, data, documents, what))
    for family in ("Llama", "Qwen2"):
        model = make_model(family, folder / family, len(tokenizer))
        ours = hearth_step(binaries / "hearth-trainer", folder / family, out, documents, folder / (family + "-run"))
        problems.append(compare_step(family, ours, torch_step(model, documents)))
    return [problem for problem in problems if problem]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder with jobctl and hearth-trainer")
    parser.add_argument("--keep", type=pathlib.Path, help="work in this new folder and leave it")
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True)
        problems = run(args.keep, args.bin)
    else:
        with tempfile.TemporaryDirectory() as folder:
            problems = run(pathlib.Path(folder), args.bin)
    print("\n".join(problems) or "all agree")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
