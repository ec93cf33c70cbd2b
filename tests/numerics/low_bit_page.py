"""Tables and pictures of docs/low-bit-limits.md from the figures of low_bit_limits.py.

The page has places `<!-- table NAME -->` ... `<!-- end -->`; the text around them is written by hand.
"""
import math
import os
import re

COLOURS = ["#4269d0", "#ff725c", "#3ca951", "#a463f2", "#efb118", "#9c6b4e", "#ff8ab7", "#6cc5b0", "#97bbf5"]
GREY = "#808080"


def mean(values):
    return sum(values) / len(values)


def number(x, digits=3):
    return f"{x:.{digits}f}" if abs(x) < 1000 else f"{x:.1e}" if math.isfinite(x) else "overflow"


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


# ---- Tables ----------------------------------------------------------------------------------------------------------

def iteration_table(cells, products):
    rows = []
    for name in products:
        row = [name]
        for where, matrix, coefficients in (("stored", "normal", "tuned"), ("stored", "decaying", "tuned"),
                                            ("operands", "normal", "tuned"), ("stored", "normal", "standard")):
            cell = cells[f"iteration/{name}/{where}/{matrix}/{coefficients}"]
            error = cell["errors"][4] if len(cell["errors"]) > 4 else math.inf
            largest = cell["largest"][4] if len(cell["largest"]) > 4 else math.inf
            row.append(f"{number(error)}, {number(largest, 2)}; " + (f"**step {cell['blown_up']}**" if cell["blown_up"] else "no"))
        rows.append(row)
    return table(["format", "all rounded, normal", "all rounded, decaying", "operands alone, normal", "all rounded, normal, `standard`"],
                 rows)


def directions_table(cells, names):
    rows = []
    for name in names:
        cell = cells[f"directions/{name}"]
        rows.append([name.replace("engine: ", "**engine**: "), number(cell["error"], 4), number(cell["strong"]), number(cell["weak"])])
    return table(["momentum", "rounding error / norm", "strongest tenth", "weakest half"], rows)


def seeds_of(cells, kind, group, name):
    prefix = f"train/{kind}/{group}/{name}/"
    return [cells[key] for key in sorted(cells) if key.startswith(prefix)]


def outcome(cells, kind, group, name, reference, digits):
    """Held-out loss of each seed, and the mean gap to the reference of the same seed."""
    runs, base = seeds_of(cells, kind, group, name), seeds_of(cells, kind, group, reference)
    if not runs:
        return ["not run", ""]
    stopped = [run["diverged"] for run in runs if run["diverged"]]
    if stopped:
        return ["**not finite** at step " + ", ".join(str(s) for s in stopped), ""]
    text = ", ".join(f"{run['held_out']:.{digits}f}" for run in runs)
    if name == reference:
        return [text, "the reference"]
    gaps = [100 * (run["held_out"] / other["held_out"] - 1) for run, other in zip(runs, base)]
    return [text, f"{mean(gaps):+.1f} %"]


def training_table(cells, group, rows):
    reference = next(iter(rows))
    lines = [[name.replace("engine: ", "**engine**: ")] + outcome(cells, "hearth-tiny", group, name, reference, 3) +
             outcome(cells, "toy", group, name, reference, 4) for name in rows]
    return table(["row", "hearth-tiny, held out", "gap", "toy, held out", "gap"], lines)


def bits_text(row, matrices):
    """Bits that a row's momentum takes for each value of the matrices, all of it counted."""
    form = row["formats"]["momentum"]
    values = sum(m * n for m, n in matrices)
    return f"{32 if form is None else sum(form.bits(m, n) for m, n in matrices) / values:.2f}"


def protected_table(cells, rows, bits_of):
    """The group's table of training, with the bits of each row behind its name."""
    lines = training_table(cells, "protected", rows).splitlines()
    bits = [[f"bits, {name}" for name in bits_of], ["---" for _ in bits_of]]
    bits += [[bits_text(row, matrices) for matrices in bits_of.values()] for row in rows.values()]
    for i, columns in enumerate(bits):
        name, rest = re.match(r"\| (.*?) \| (.*)", lines[i]).groups()
        lines[i] = " | ".join(["| " + name, *columns, rest])
    return "\n".join(lines) + "\n"


def facts_table(facts):
    return table(["what", "value"], [
        ["text", f"{facts['text_bytes']:,} bytes for training, {facts['held_out_bytes']:,} held out, SHA-256 `{facts['text_sha256'][:16]}`"],
        ["hearth-tiny", f"{facts['steps']} steps of 8 x 128 bytes, seeds 1 to {facts['seeds']}"],
        ["toy", f"{facts['toy_steps']} steps of 128 inputs, seeds 1 to {facts['toy_seeds']}"],
        ["matrices of the iteration", f"{facts['size']} x {facts['size']}, seed 1"],
        ["made with", f"Python {facts['python']}, numpy {facts['numpy']}, {facts['machine']}, one thread"]])


# ---- Pictures --------------------------------------------------------------------------------------------------------

class Panel:
    """Lines over steps. y is logarithmic; values outside `low` and `high` end at the frame."""

    def __init__(self, title, left, top, width, height, last, low, high, ticks):
        self.left, self.top, self.width, self.height = left, top, width, height
        self.last, self.low, self.high = last, math.log(low), math.log(high)
        self.parts = [f'<text x="{left}" y="{top - 8}" fill="{GREY}" font-weight="bold">{title}</text>']
        for tick in ticks:
            y = self.y(tick)
            self.parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="{GREY}" stroke-opacity="0.25"/>'
                              f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" fill="{GREY}">{tick:g}</text>')
        for step in (1, last):
            self.parts.append(f'<text x="{self.x(step)}" y="{top + height + 16}" text-anchor="middle" fill="{GREY}">{step}</text>')
        self.count = 0

    def x(self, step):
        return round(self.left + self.width * (step - 1) / max(1, self.last - 1), 1)

    def y(self, value):
        at = self.high if value <= 0 or not math.isfinite(value) else min(max(math.log(value), self.low), self.high)
        return round(self.top + self.height * (self.high - at) / (self.high - self.low), 1)

    def line(self, name, points, first=False):
        colour = COLOURS[self.count % len(COLOURS)]
        path = " ".join(f"{self.x(step)},{self.y(value)}" for step, value in points)
        width, y = 2.5 if first else 1.5, self.top + 14 * self.count + 8
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
                          f'<text x="{self.left + self.width + 10}" y="{y}" fill="{colour}">{name}</text>')
        self.count += 1


def picture(title, panels, width, height):
    body = "\n".join(part for panel in panels for part in panel.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
            f'<title>{title}</title>\n<text x="50" y="20" fill="{GREY}" font-size="15" font-weight="bold">{title}</text>\n{body}\n</svg>\n')


def iteration_picture(cells, products):
    panels = []
    for i, (where, matrix, title) in enumerate((("stored", "normal", "all rounded, normal matrix"),
                                                ("stored", "decaying", "all rounded, singular values 1 to 0.001"),
                                                ("operands", "normal", "only operands rounded, normal matrix"),
                                                ("operands", "decaying", "only operands rounded, 1 to 0.001"))):
        panel = Panel(title, 50 + 450 * (i % 2), 64 + 230 * (i // 2), 250, 170, 10, 0.1, 1000, (0.1, 1, 10, 100, 1000))
        for name in products:
            largest = cells[f"iteration/{name}/{where}/{matrix}/tuned"]["largest"]
            panel.line(name, list(enumerate(largest, 1)), name == "fp32")
        panels.append(panel)
    return picture("Largest singular value after each step of Newton-Schulz (tuned)", panels, 920, 510)


def smooth(losses):
    """Means over a twentieth of the run."""
    span = max(1, len(losses) // 20)
    return [(i + span // 2 + 1, mean(losses[i:i + span])) for i in range(0, len(losses) - span + 1, span)]


# Model -> title, lowest and highest value, values that have a line.
LOSSES = {"hearth-tiny": ("hearth-tiny: training loss (nats per byte), seed 1", 1.5, 8, (1.5, 2, 3, 4, 6, 8)),
          "toy": ("toy: training loss, seed 1", 0.01, 10, (0.01, 0.1, 1, 10))}


def training_picture(cells, kind, training, steps):
    title, low, high, ticks = LOSSES[kind]
    titles = {"momentum": "Muon, format of the momentum", "iteration": "Muon, format of Newton-Schulz",
              "adam": "AdamW, format of m and v", "weights": "AdamW, format of the weights"}
    panels = []
    for i, group in enumerate(titles):
        rows = training[group]
        panel = Panel(titles[group], 50 + 450 * (i % 2), 64 + 230 * (i // 2), 250, 170, steps, low, high, ticks)
        for name in rows:
            runs = seeds_of(cells, kind, group, name)
            if not runs:
                continue
            run = runs[0]
            points = smooth([x for x in run["losses"] if math.isfinite(x)])
            if run["diverged"]:
                points.append((run["diverged"], math.inf))
            panel.line(name, points, name == next(iter(rows)))
        panels.append(panel)
    return picture(title, panels, 920, 510)


def pictures_of(cells, facts, training, products):
    """File name -> (what a reader who cannot see it is told, the picture). Models that were not run have none."""
    pictures = {"low-bit-iteration.svg": ("Largest singular value after each step", iteration_picture(cells, products))}
    for kind, steps in (("hearth-tiny", facts["steps"]), ("toy", facts["toy_steps"])):
        if seeds_of(cells, kind, "adam", "fp32"):
            pictures[f"low-bit-{kind}.svg"] = (f"Training loss of {kind} by step", training_picture(cells, kind, training, steps))
    return pictures


def tables_of(cells, facts, training, products, names, bits_of):
    """Name of a table -> what makes it."""
    tables = {"facts": lambda: facts_table(facts), "iteration": lambda: iteration_table(cells, products),
              "directions": lambda: directions_table(cells, names)}
    for group, rows in training.items():
        tables["training " + group] = lambda group=group, rows=rows: training_table(cells, group, rows)
    # It came later than the others and may be of another text.
    tables["facts protected"] = tables["facts"]
    tables["training protected"] = lambda: protected_table(cells, training["protected"], bits_of)
    return tables


def write(folder, whole, rows, only=()):
    """`rows`: training, products, directions and where bits are shown. `only`: names of tables; else all of them and the pictures."""
    cells, facts = whole["cells"], whole["facts"]
    makers = tables_of(cells, facts, *rows)
    tables = {name: makers[name]() for name in only or makers}
    pictures = {} if only else pictures_of(cells, facts, *rows[:2])
    if pictures:
        tables["pictures"] = "\n".join(f"![{text}]({name})\n" for name, (text, _) in pictures.items())
    path = os.path.join(folder, "low-bit-limits.md")
    with open(path) as file:
        text = file.read()
    for name, content in tables.items():
        text, count = re.subn(f"(<!-- table {name} -->\n).*?(<!-- end -->)", lambda m, c=content: m[1] + c + m[2], text, flags=re.S)
        if count != 1:
            raise ValueError(f"{path}: {count} places for table {name}")
    with open(path, "w") as file:
        file.write(text)
    for name, (_, content) in pictures.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(content)
