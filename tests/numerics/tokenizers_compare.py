#!/usr/bin/env python3
"""Compares Hearth's byte-level BPE with Hugging Face's tokenizers library, token for token.

  tests/numerics/tokenizers_compare.py --bin build/release/bin [--megabytes 12] [--keep FOLDER] [FOLDER_WITH_TOKENIZER_JSON ...]

Needs the tokenizers package. Trains tokenizers in the style of GPT-2, Llama-3 and Qwen2 on a mixed text (English, code, Hindi, Chinese,
other scripts, emoji, broken UTF-8 that was replaced), lets `jobctl dataset build` encode the text with each, and compares the shards with
what the library gives. Then the other way: Hearth trains (`--tokenizer bpe:8192`), and the library loads the file and encodes. Folders of
released models (tokenizer.json and tokenizer_config.json) may be named too. Exit 0: all equal; 1: the first difference is printed.
"""

import argparse
import array
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
import unicodedata

GPT2 = None  # ByteLevel's own expression
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# An expression that has no scanner of its own, so that PCRE2 is compared too.
OTHER = r"\p{N}{1,2}|[\p{Lu}\p{Lt}]?[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{Han}+|\s+(?!\S)|\s+|[^\s\p{L}\p{N}]+"

ENGLISH = ("the of and to in a is that it was for on are as with they be at one have this from or had by word but what some we can out "
           "other were all there when up use your how said an each she which do their time if will way about many then them would write "
           "like so these her long make thing see him two has look more day could go come did number sound no most people my over know "
           "water than call first who may down side been now find he'll don't I'm you're we've it's they'd YOU'LL").split()
RANGES = {"hindi": (0x905, 0x94d), "chinese": (0x4e00, 0x9fa5), "arabic": (0x621, 0x64a), "greek": (0x391, 0x3c9),
          "hangul": (0xac00, 0xd7a3), "thai": (0xe01, 0xe3a), "emoji": (0x1f300, 0x1f64f), "combining": (0x300, 0x36f),
          "any": (0x20, 0x2ffff)}


def word(rng, kind):
    if kind == "english":
        return rng.choice(ENGLISH)
    low, high = RANGES[kind]
    letters = (chr(rng.randint(low, high)) for _ in range(rng.randint(1, 5)))
    # Only characters that Unicode 3.2 had: the libraries' tables are of different versions.
    return "".join(c for c in letters if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs", "Co"))


def prose(rng, size):
    kinds = ["english"] * 8 + list(RANGES)
    kind, parts, length = "english", [], 0
    while length < size:
        if rng.random() < 0.05:
            kind = rng.choice(kinds)
        text = word(rng, kind)
        if rng.random() < 0.1:
            text = rng.choice([str(rng.randint(0, 10**rng.randint(1, 9))), "e\u0301" + text, text.title(), text + "...", "(" + text + ")"])
        if rng.random() < 0.002:
            text = rng.choice(["<|endoftext|>", "<|im_start|>", "<|begin_of_text|>", "<pad>", " <mask> ", "<|end"])
        parts.append(text + rng.choice([" "] * 12 + ["\n", "\n\n", "  ", "\t", "", ",", " \r\n", "\u00a0", "\u3000", "   \n  "]))
        length += len(parts[-1].encode())
    return "".join(parts)


def documents(megabytes):
    """Unique texts without NUL; the same for the same Python."""
    rng = random.Random(20)
    wanted, found = int(megabytes * 1e6), []
    code = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    total = 0
    for path in code:
        if total > wanted / 3:
            break
        found.append(path.read_bytes().decode("utf-8", "replace"))
        total += len(found[-1].encode())
    while total < wanted:
        text = prose(rng, 60000)
        if rng.random() < 0.15:  # broken UTF-8, replaced
            raw = bytearray(text.encode())
            for _ in range(200):
                raw[rng.randrange(len(raw))] = rng.randrange(1, 256)
            text = raw.decode("utf-8", "replace")
        found.append(text)
        total += len(text.encode())
    return [text for text in dict.fromkeys(found) if text and "\0" not in text]


def train(style, texts, folder):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=style == "gpt2")
    pattern = {"gpt2": GPT2, "llama3": LLAMA3, "qwen2": QWEN2, "other": OTHER}[style]
    if pattern is None:
        tokenizer.pre_tokenizer = level
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    if style == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|begin_of_text|>"]
    trainer = trainers.BpeTrainer(vocab_size=16000, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("<pad>", normalized=True), AddedToken("<mask>", lstrip=True, rstrip=True, single_word=True)])
    if style == "llama3":
        bos = "<|begin_of_text|>"
        tokenizer.post_processor = processors.TemplateProcessing(single=bos + " $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))


def read_shards(folder):
    info = json.loads((folder / "dataset.json").read_text())
    tokens = array.array("H" if info["dtype"] == "uint16" else "I")
    for shard in info["shards"]:
        tokens.frombytes((folder / shard["file"]).read_bytes())
    return tokens.tolist(), info["eos"]


def compare(name, folder, tokenizer_folder, texts):
    """Whether the shards in `folder` hold what the library makes of `texts`, an end token behind each."""
    from tokenizers import Tokenizer
    library = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    ours, eos = read_shards(folder)
    at = 0
    for i, text in enumerate(texts):
        want = library.encode(text, add_special_tokens=False).ids + [eos]
        got = ours[at:at + len(want)]
        if got != want:
            k = next((k for k, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            print(f"{name}: document {i}, token {k}: hearth {got[k:k + 8]}, tokenizers {want[k:k + 8]}, near "
                  f"{library.decode(want[max(0, k - 8):k + 8], skip_special_tokens=False)!r}")
            return False
        at += len(want)
    if at != len(ours):
        print(f"{name}: hearth has {len(ours)} tokens, tokenizers {at}")
        return False
    digest = hashlib.sha256(array.array("I", ours).tobytes()).hexdigest()
    print(f"{name}: {len(texts)} documents, {len(ours)} tokens equal, sha256 {digest}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder with jobctl")
    parser.add_argument("--megabytes", type=float, default=12)
    parser.add_argument("--keep", type=pathlib.Path, help="work in this folder and leave it")
    parser.add_argument("folders", nargs="*", type=pathlib.Path, help="folders of released models with a tokenizer.json")
    args = parser.parse_args()
    scratch = None if args.keep else tempfile.TemporaryDirectory()
    root = args.keep or pathlib.Path(scratch.name)
    texts = documents(args.megabytes)
    (root / "text").mkdir(parents=True)
    for i, text in enumerate(texts):
        (root / "text" / f"{i:06d}.txt").write_bytes(text.encode())
    print(f"{len(texts)} documents, {sum(len(t.encode()) for t in texts)} bytes")

    def build(tokenizer, out):
        start = time.monotonic()
        subprocess.run([str(args.bin / "jobctl"), "dataset", "build", "--input", str(root / "text"), "--tokenizer", str(tokenizer), "--out",
                        str(out)], check=True, stdout=subprocess.DEVNULL)
        print(f"built {out.name} in {time.monotonic() - start:.1f} s")

    equal = True
    folders = list(args.folders)
    for style in ("gpt2", "llama3", "qwen2", "other"):
        train(style, texts[::7], root / style)
        folders.append(root / style)
    for number, folder in enumerate(folders):
        out = root / f"data-{number}-{folder.name}"
        build(folder, out)
        equal &= compare(folder.name, out, folder, texts)
    out = root / "data-trained"
    build("bpe:8192", out)
    equal &= compare("trained by hearth", out, out, texts)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
