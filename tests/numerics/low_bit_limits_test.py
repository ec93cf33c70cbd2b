#!/usr/bin/python3
"""low_bit_limits.py at small sizes: the known outcomes of docs/low-bit-limits.md, its model against PyTorch's recorded losses, and its
formats against the values that the engine is tested with."""

import json
import os
import re
import shutil
import sys
import tempfile
import unittest

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import low_bit_formats as f  # noqa: E402
import low_bit_limits as limits  # noqa: E402
import low_bit_models as models  # noqa: E402
import low_bit_page as page  # noqa: E402
import low_bit_vectors as vectors  # noqa: E402
import tensor_file  # noqa: E402


def llama_of(folder, dtype):
    """The tiny Llama of torch_trajectory.py in the layout of the study."""
    w = tensor_file.read(os.path.join(folder, "model", "model.safetensors"))
    shape = dict(layers=2, hidden=32, heads=4, kv=2, head_dim=8, ffn=64, vocab=160, eps=1e-5, theta=10000.0, tied=False)
    weights = {"embedding": w["model.embed_tokens.weight"], "norm": w["model.norm.weight"], "head": w["lm_head.weight"]}
    for i in range(shape["layers"]):
        h = f"model.layers.{i}."
        weights[f"{i}.norm1"], weights[f"{i}.norm2"] = w[h + "input_layernorm.weight"], w[h + "post_attention_layernorm.weight"]
        weights[f"{i}.qkv"] = np.concatenate([w[h + f"self_attn.{n}_proj.weight"] for n in "qkv"])
        weights[f"{i}.o"], weights[f"{i}.down"] = w[h + "self_attn.o_proj.weight"], w[h + "mlp.down_proj.weight"]
        weights[f"{i}.gate_up"] = np.concatenate([w[h + f"mlp.{n}_proj.weight"] for n in ("gate", "up")])
    return models.Llama(shape, weights, dtype=dtype)


class Agreement(unittest.TestCase):
    def test_the_model_and_adamw_have_pytorchs_losses(self):
        folder = os.path.join(HERE, "data", "llama")
        with open(os.path.join(folder, "trajectory.json")) as file:
            want = json.load(file)
        s = want["settings"]
        model = llama_of(folder, np.float64)
        optimizer = models.Optimizer(model, False, {}, s["lr"], s["weight_decay"], (s["beta1"], s["beta2"]), s["eps"], clip=s["grad_clip"])
        tokens = np.fromfile(os.path.join(HERE, "data", "tokens.bin"), "<u2").astype(np.int64)
        t, rows = s["sequence_length"], s["global_batch_tokens"] // s["sequence_length"]
        for step in range(s["steps"]):
            batch = np.stack([tokens[i * t:(i + 1) * t + 1] for i in range(step * rows, (step + 1) * rows)])
            loss, gradients = model.loss_and_gradients(batch)
            norm = optimizer.step(gradients, min(1.0, (step + 1) / s["warmup_steps"]))
            self.assertAlmostEqual(loss, want["loss"][step], delta=1e-7)
            self.assertAlmostEqual(norm, want["grad_norm"][step], delta=1e-7)

    def test_recorded_blocks_are_what_the_formats_give(self):
        # state_blocks_test.cc holds the engine against the same file.
        for path, text in ((vectors.PATH, vectors.text()), (vectors.LEADING_PATH, vectors.leading_text())):
            with open(path) as file:
                self.assertEqual(file.read(), text)

    def test_newton_schulz_has_the_engines_coefficients_and_error(self):
        with open(os.path.join(limits.ROOT, "kernels", "newton_schulz", "newton_schulz.cc")) as file:
            source = file.read()
        for step in models.NEWTON_SCHULZ["tuned"]:
            self.assertIn("{%.4f, %.4f, %.4f}" % step, source)
        for step in models.NEWTON_SCHULZ["standard"][:1]:
            self.assertIn("{%.1f, %.1f, %.1f}" % step, source)
        # ops test -o newton_schulz has the same bounds.
        error = limits.orthogonality_error(models.newton_schulz(limits.normal_matrix(1, 24, 70)))
        self.assertLess(error, 0.06)


class Formats(unittest.TestCase):
    def test_maps_have_all_their_codes(self):
        for bits in (2, 3, 4, 8):
            # In 8 bits the powers would leave fp32.
            log = [f.log_unsigned(bits, 4)] if bits < 8 else []
            for values in [f.dynamic_map(True, bits), f.dynamic_map(False, bits), f.linear_unsigned(bits), *log]:
                self.assertEqual(len(np.unique(values)), 2**bits)
                self.assertEqual(values[-1], 1)
        self.assertEqual(f.linear_signed(2).tolist(), [-1, 0, 1])
        law = f.mu_law(4, 255)
        self.assertEqual((len(law), law[7], law[14]), (15, 0, 1))
        self.assertEqual(law.tolist(), (-law[::-1]).tolist())
        # log(1 + 255 x) is even.
        self.assertLess(np.ptp(np.diff(np.log1p(255 * law[7:]))), 1e-5)

    def test_codes_are_those_of_a_plain_search(self):
        x = np.random.default_rng(0).standard_normal(20000).clip(-4, 4).astype(np.float32) / 4
        for values in (f.linear_signed(8), f.linear_signed(4), f.dynamic_map(True, 8), f.linear_unsigned(4), f.log_unsigned(3, 4)):
            blocks = f.Blocks(values, 128)
            near = [np.nextafter(blocks.middles, np.float32(to)) for to in (-2, 2)]
            at = np.concatenate([x, blocks.middles, *near, np.array([-1, 1, 0], np.float32)])
            self.assertEqual(blocks._search(at).tolist(), np.searchsorted(blocks.middles, at).tolist())

    def test_e4m3_rounds_to_even_and_saturates(self):
        x = np.array([17, 19, 500, -2.0**-10, 3 * 2.0**-10], np.float32)
        self.assertEqual(f.e4m3(x).tolist(), [16, 20, 448, 0, 2.0**-8])

    def test_iq2_keeps_its_own_values_and_most_of_a_normal_weight(self):
        x = np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32)
        error = float(((limits.iq2(x) - x)**2).mean() / (x**2).mean())
        self.assertTrue(0.09 < error < 0.13, error)

    def test_dithered_weights_keep_their_mean(self):
        x = np.random.default_rng(0).standard_normal((1, 256)).astype(np.float32)
        rng = np.random.default_rng(1)
        for write in (f.stochastic_int8, f.stochastic_q4_0):
            mean = np.mean([write(x, rng) for _ in range(400)], axis=0)
            # Q4_0 cuts off at 7 of the 8 steps on the other side than its largest.
            inside = np.abs(x) < 0.8 * np.abs(x.reshape(-1, 32)).max(axis=1).repeat(32).reshape(x.shape)
            self.assertLess(np.abs(mean - x)[inside].max(), 0.12)

    def test_without_leading_directions_only_the_blocks_are_left(self):
        x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
        plain = limits.protected(0)
        self.assertEqual(plain.of_matrix(0)(x).tolist(), f.STATE["int4"]["momentum"](x).tolist())
        self.assertEqual(plain.bits(64, 128), f.STATE["int4"]["momentum"].bits(64, 128))
        self.assertFalse(limits.protected(8).of_matrix(0)(0 * x).any())
        self.assertTrue(np.isnan(limits.protected(8).of_matrix(0)(x + np.float32(np.inf))).all())

    def test_leading_directions_are_kept_apart(self):
        rng = np.random.default_rng(0)
        low = (rng.standard_normal((96, 4)) @ rng.standard_normal((4, 128))).astype(np.float32)
        for scales, rounding, factors in (("blocks", "nearest", "bf16"), ("lines", "dithered", "int8"), ("16", "eighths", "int8")):
            def error(rank, x=low):
                y = limits.protected(rank, scales, rounding, factors).of_matrix(0)(x)
                return float(np.linalg.norm(y - x) / np.linalg.norm(x))
            # The rest has what the factors' rounding left, and is rounded too.
            self.assertLess(error(4), 0.002)
            self.assertGreater(error(3), 4 * error(4))
            self.assertGreater(error(0), 0.05)

    def test_a_warm_start_finds_the_directions_in_a_few_steps(self):
        x = limits.decaying_matrix(1, 64, 64)
        warm, cold = (limits.protected(8, warm=w).of_matrix(0) for w in (True, False))
        first = [np.linalg.norm(r(x) - x) for r in (warm, cold)]
        self.assertEqual(first[0], first[1])
        last = [[np.linalg.norm(r(x) - x) for _ in range(4)][-1] for r in (warm, cold)]
        self.assertEqual(last[1], first[1])
        self.assertLess(last[0], 0.9 * first[0])

    def test_rounding_at_random_keeps_means_and_dithering_is_nearer(self):
        y = np.random.default_rng(0).uniform(-1, 1, 4096).astype(np.float32)
        rng = np.random.default_rng(1)
        draws = {name: np.array([r(y, rng) for _ in range(400)]) - y
                 for name, r in (("stochastic", f.Stochastic(f.linear_signed(4))), ("dithered", f.Dithered()))}
        inside = np.abs(y) < 6.5 / 7  # beyond it a dithered value may be cut off
        for error in draws.values():
            self.assertLess(np.abs(error.mean(axis=0))[inside].max(), 0.02)
        self.assertLess(np.abs(draws["dithered"][:, inside]).max(), 0.5 / 7 + 1e-6)
        self.assertLess((draws["dithered"]**2).mean(), 0.6 * (draws["stochastic"]**2).mean())

    def test_scales_of_16_halve_the_square_error(self):
        x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
        blocks, small = limits.protected(0).of_matrix(0)(x) - x, limits.protected(0, "16", "eighths").of_matrix(0)(x) - x
        self.assertLess((small**2).mean(), 0.5 * (blocks**2).mean())
        self.assertEqual(limits.protected(0, "16", "eighths").bits(64, 128) / (64 * 128), 4.5)
        self.assertEqual(limits.protected(8, "16", "eighths", "int8").bits(128, 128) / 128**2, 4.5 + 8.25 * 8 * 2 / 128)


class Outcomes(unittest.TestCase):
    """What the page says, at a size that takes seconds."""

    def cell(self, name, where="stored", matrix="normal", coefficients="tuned"):
        return limits.iteration(name, where, matrix, coefficients, 1, 96, 96)

    def test_int4_blows_up_by_the_third_step(self):
        for name in ("int4, one scale", "int4, blocks of 128"):
            for where in ("operands", "stored"):
                cell = self.cell(name, where)
                self.assertIn(cell["blown_up"], (2, 3), (name, where))
                self.assertGreater(max(cell["largest"]), 1e3)

    def test_fp8_operands_blow_up_and_int8_in_blocks_does_not(self):
        self.assertIn(self.cell("fp8", "operands")["blown_up"], (4, 5, 6))
        for name in ("fp32", "bf16", "int8, blocks of 256"):
            for where in ("operands", "stored"):
                cell = self.cell(name, where)
                self.assertEqual(cell["blown_up"], 0, (name, where))
                self.assertLess(cell["largest"][4], 1.25)
        bf16, fp32 = self.cell("bf16")["errors"][4], self.cell("fp32")["errors"][4]
        self.assertAlmostEqual(bf16, fp32, delta=0.005)

    def test_four_bits_of_momentum_lose_the_weak_directions(self):
        cells = {name: limits.directions(name, limits.DIRECTIONS[name], 1, 96) for name in limits.DIRECTIONS}
        exact = cells["fp32"]["weak"]
        self.assertGreater(cells["engine: int8"]["weak"], 0.95 * exact)
        self.assertLess(cells["4 bits, linear"]["weak"], 0.5 * exact)
        self.assertLess(cells["2 bits, linear"]["weak"], 0.15 * exact)
        self.assertGreater(cells["4 bits, linear"]["strong"], 0.98)
        # Each rank protects more of them, and none all.
        ranks = [cells["4 bits, linear"], *(cells[f"4 bits, rank {rank}"] for rank in (8, 16, 32))]
        self.assertEqual([cell["weak"] for cell in ranks], sorted(cell["weak"] for cell in ranks))
        self.assertLess(cells["4 bits, rank 16, 16"]["weak"], 0.95 * exact)

    def test_muon_with_int4_products_does_not_train_the_toy(self):
        rows = limits.TRAINING["iteration"]
        good = limits.train("toy", rows["fp32"], 1, 30)
        self.assertLess(good["held_out"], good["losses"][0])
        bad = limits.train("toy", rows["int4"], 1, 30)
        self.assertTrue(bad["diverged"] or bad["held_out"] > good["losses"][0], bad["held_out"])

    def test_one_seed_gives_the_same_bits(self):
        row = limits.TRAINING["weights"]["Q4_0, stochastic"]
        self.assertEqual(limits.train("toy", row, 3, 8), limits.train("toy", row, 3, 8))


class Results(unittest.TestCase):
    """A folder of results, of cells that take no time."""

    def run_all(self, folder, size=16, jobs=2):
        return limits.run_all(limits.argparse.Namespace(size=size, steps=2, seeds=1, toy_steps=2, toy_seeds=1, jobs=jobs, results=folder,
                                                        only="iteration/fp32/stored/"))

    def test_cells_that_are_there_are_not_run_again(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_all(folder, jobs=0), {})
            whole = self.run_all(folder)
            self.assertEqual(len(whole), 3)
            self.assertEqual(whole, self.run_all(folder, jobs=0))
            marked = next(iter(whole))
            limits.keep(folder, limits.name_of(marked), (marked, {"largest": [7]}))
            lost = [key for key in whole if key != marked][0]
            os.unlink(os.path.join(folder, limits.name_of(lost)))
            self.assertEqual(self.run_all(folder), {**whole, marked: {"largest": [7]}})

    def test_the_page_has_whole_rows_only(self):
        args = limits.argparse.Namespace(size=16, steps=2, seeds=2, toy_steps=2, toy_seeds=2, tables=[])
        cells = {key: {} for key, _, _ in limits.tasks(args)}
        self.assertEqual(limits.for_the_page(cells, args), cells)
        del cells["train/toy/adam/engine: int8/2"]
        del cells["train/toy/weights/fp32/1"]  # what its group is held against
        gone = {key for key in cells if key.startswith(("train/toy/adam/engine: int8/", "train/toy/weights/"))}
        self.assertEqual(set(limits.for_the_page(cells, args)), set(cells) - gone)
        with self.assertRaisesRegex(SystemExit, "no page without iteration/fp32/"):
            limits.for_the_page({}, args)

    def test_results_of_another_size_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_all(folder)
            with self.assertRaisesRegex(SystemExit, "has results of another run: {'size': 16}"):
                self.run_all(folder, size=17)


class Page(unittest.TestCase):
    def test_the_page_has_a_place_for_each_table_and_every_picture(self):
        cells = {}
        for key, function, arguments in limits.tasks(limits.argparse.Namespace(size=16, steps=2, seeds=1, toy_steps=2, toy_seeds=1)):
            if function is limits.train:
                cells[key] = {"losses": [2.0, float("inf")], "held_out": float("inf"), "diverged": 2}
            else:
                cells[key] = function(*arguments)
        facts = dict(text_bytes=1, held_out_bytes=1, text_sha256="0" * 64, steps=2, seeds=1, toy_steps=2, toy_seeds=1, size=8, python="",
                     numpy="", machine="")
        with tempfile.TemporaryDirectory() as out:
            with open(os.path.join(limits.ROOT, "docs", "low-bit-limits.md")) as file:
                text = file.read()
            with open(os.path.join(out, "low-bit-limits.md"), "w") as file:
                file.write(text)
            page.write(out, {"cells": cells, "facts": facts}, (limits.TRAINING, limits.PRODUCTS, limits.DIRECTIONS, limits.BITS_OF))
            with open(os.path.join(out, "low-bit-limits.md")) as file:
                self.assertIn("**not finite** at step 2", file.read())
                file.seek(0)
                text = file.read()
            self.assertEqual(sorted(re.findall(r"\]\((low-bit-[a-z-]*\.svg)\)", text)),
                             sorted(name for name in os.listdir(out) if name.endswith(".svg")))

    def test_one_table_can_be_written_alone(self):
        cells = {f"train/{kind}/protected/{name}/1": {"losses": [2.0], "held_out": 2.0, "diverged": 0}
                 for kind in limits.MODELS for name in limits.TRAINING["protected"]}

        def read(folder):
            with open(os.path.join(folder, "low-bit-limits.md")) as file:
                return file.read()
        with tempfile.TemporaryDirectory() as out:
            shutil.copy(os.path.join(limits.ROOT, "docs", "low-bit-limits.md"), out)
            rows = (limits.TRAINING, limits.PRODUCTS, limits.DIRECTIONS, limits.BITS_OF)
            page.write(out, {"cells": cells, "facts": {}}, rows, ["training protected"])
            self.assertEqual(os.listdir(out), ["low-bit-limits.md"])
            parts = [re.match("(.*<!-- table training protected -->\n)(.*?)(<!-- end -->.*)", text, flags=re.S).groups()
                     for text in map(read, (os.path.join(limits.ROOT, "docs"), out))]
        self.assertEqual(parts[0][::2], parts[1][::2])
        lines = parts[1][1].splitlines()
        self.assertEqual(len(lines), 2 + len(limits.TRAINING["protected"]))
        self.assertEqual(lines[2], "| fp32 | 32.00 | 32.00 | 2.000 | the reference | 2.0000 | the reference |")


if __name__ == "__main__":
    unittest.main()
