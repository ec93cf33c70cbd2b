"""Multiple choice and last words as lm-evaluation-harness defines them, in plain Python and float64: what `hearth-trainer eval --task`
is compared with. Tokens are bytes (the tokenizer "bytes"); the model is a folder of a Llama or Qwen3."""
import json
import os
import random
import re

import numpy as np

import tensor_file

EOS = 256


class Model:
    """A model folder's forward pass."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as f:
            self.config = json.load(f)
        self.w = {k: v.astype(np.float64) for k, v in tensor_file.read(os.path.join(folder, "model.safetensors")).items()}

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.config["rms_norm_eps"]) * self.w[name]

    def rope(self, x):
        """x: [tokens, heads, dim]; the halves of a head are turned against each other."""
        dim = x.shape[-1]
        angles = np.arange(x.shape[0])[:, None] / self.config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def log_probabilities(self, tokens):
        """[tokens, vocabulary]: of what follows each token."""
        c = self.config
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        x = self.w["model.embed_tokens.weight"][tokens]
        n = len(tokens)
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            y = self.norm(x, layer + "input_layernorm.weight")
            q, k, v = (y @ self.w[f"{layer}self_attn.{name}_proj.weight"].T for name in "qkv")
            q, k, v = q.reshape(n, heads, -1), k.reshape(n, kv_heads, -1), v.reshape(n, kv_heads, -1)
            if layer + "self_attn.q_norm.weight" in self.w:
                q, k = self.norm(q, layer + "self_attn.q_norm.weight"), self.norm(k, layer + "self_attn.k_norm.weight")
            q, k = self.rope(q), np.repeat(self.rope(k), heads // kv_heads, 1)
            v = np.repeat(v, heads // kv_heads, 1)
            s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1]) + hidden
            p = np.exp(s - s.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            x = x + np.einsum("hqk,khd->qhd", p, v).reshape(n, -1) @ self.w[layer + "self_attn.o_proj.weight"].T
            y = self.norm(x, layer + "post_attention_layernorm.weight")
            gate = y @ self.w[layer + "mlp.gate_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ self.w[layer + "mlp.up_proj.weight"].T)) @ self.w[layer + "mlp.down_proj.weight"].T
        logits = self.norm(x, "model.norm.weight") @ self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"]).T
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))

    def score(self, context, continuation, length):
        """(log-likelihood of the continuation, whether greedy decoding writes it, whether the context was cut)."""
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        before, behind = list(context.encode()) or [EOS], list(continuation.encode())
        tokens = (before + behind)[-(length + 1):]
        rows = self.log_probabilities(tokens[:-1])[-len(behind):]
        return (sum(row[token] for row, token in zip(rows, behind)), all(row.argmax() == token for row, token in zip(rows, behind)),
                len(before) + len(behind) > length + 1)


# -- Tasks: an item -> (context, choices, answer) ---------------------------------------------------------------------------------
def clean(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def hellaswag(item):
    context = item["activity_label"] + ": " + item["ctx_a"] + " " + item["ctx_b"].capitalize()
    return clean(context), [clean(ending) for ending in item["endings"]], int(item["label"])


def arc(item):
    return f"Question: {item['question']}\nAnswer:", item["choices"]["text"], item["choices"]["label"].index(item["answerKey"])


def piqa(item):
    return f"Question: {item['goal']}\nAnswer:", [item["sol1"], item["sol2"]], item["label"]


def mmlu(item):
    options = "".join(f"{letter}. {text}\n" for letter, text in zip("ABCD", item["choices"]))
    return (f"The following are multiple choice questions (with answers) about {item['subject'].replace('_', ' ')}.\n\n"
            f"{item['question'].strip()}\n{options}Answer:"), list("ABCD"), item["answer"]


def lambada(item):
    words = item["text"].split(" ")
    return " ".join(words[:-1]), [words[-1]], 0


TASKS = {"hellaswag": hellaswag, "arc": arc, "piqa": piqa, "mmlu": mmlu, "lambada": lambada}


def evaluate(model, task, items, length):
    """The results under their names, and the log-likelihoods of each item."""
    right = {"acc": 0, "acc_norm": 0, "acc_bytes": 0}
    lls, cut_items, greedy_items = [], 0, 0
    for item in items:
        context, choices, answer = TASKS[task](item)
        scores = [model.score(context, " " + choice, length) for choice in choices]
        ll = np.array([score[0] for score in scores])
        lls.append(ll)
        cut_items += any(score[2] for score in scores)
        greedy_items += scores[0][1]
        right["acc"] += np.argmax(ll) == answer
        right["acc_norm"] += np.argmax(ll / [len(choice) for choice in choices]) == answer
        right["acc_bytes"] += np.argmax(ll / [len(choice.encode()) for choice in choices]) == answer
    results = {name: count / len(items) for name, count in right.items()}
    if task == "lambada":
        results = {"acc": greedy_items / len(items), "perplexity": float(np.exp(-np.mean([ll[0] for ll in lls])))}
    elif task == "mmlu":
        results = {"acc": results["acc"]}
    return {**results, "cut_items": cut_items}, lls


# -- Items ------------------------------------------------------------------------------------------------------------------------
WORDS = "the a fox dog runs Jumps over lazy quick été 日本 naïve river [step] [title] blue green walks home  slowly, then 12 apples".split(" ")


def text(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high))).strip() + rng.choice(["", ".", " end"])


def answer_texts(rng, count):
    """Texts that differ: rounding would decide between equal ones."""
    texts = {}
    while len(texts) < count:
        answer = "so " + text(rng, 0, 7)
        texts[clean(answer)] = answer
    return list(texts.values())


def make_items(task, count, seed):
    rng = random.Random(f"{task} {seed}")
    choices = {"piqa": 2, "hellaswag": 4, "mmlu": 4}
    items = []
    for _ in range(count):
        n = choices.get(task, rng.randint(3, 5))
        answers = answer_texts(rng, n)
        answer = rng.randrange(n)
        # One in ten is longer than the model's context.
        asked = text(rng, 45, 60) if rng.random() < 0.1 else text(rng, 1, 15)
        items.append({
            "hellaswag": {"activity_label": "Running", "ctx_a": asked, "ctx_b": text(rng, 0, 4), "endings": answers, "label": str(answer)},
            "arc": {"question": asked, "choices": {"text": answers, "label": list("ABCDE"[:n])}, "answerKey": "ABCDE"[answer]},
            "piqa": {"goal": asked, "sol1": answers[0], "sol2": answers[1], "label": answer % 2},
            "mmlu": {"question": asked, "subject": "high_school_" + rng.choice(["art", "law"]), "choices": answers[:4], "answer": answer},
            "lambada": {"text": asked + " " + rng.choice(["the", "a", "fox", "so"])},
        }[task])
    return items


def write_items(path, items):
    with open(path, "w") as f:
        for item in items:
            f.write(json.dumps(item) + "\n")
