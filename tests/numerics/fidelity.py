#!/usr/bin/env python3
"""Compares the losses of runs that differ in one thing, such as BF16 and FP8: is the second within half a percent of the first?

  fidelity.py NAME=metrics.jsonl NAME=metrics.jsonl ... [--window 200] [--bound 0.005] [--svg FILE] [--title TEXT]

The first run is the one to meet. Prints, for each: the training loss at the end (mean of the last --window steps), the last held-out loss,
and their relative gaps; then the held-out losses side by side. --svg draws the curves, readable on a light and on a dark page.
Exit status: 0 all gaps within the bound, 1 not, or the runs differ in their steps. Standard library only.
"""
import argparse
import json
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT = 860, 620, 64, 150
# Medium lightness: they stand out from white and from black.
COLOURS = ["#3b82c4", "#d9822b", "#3f9f5f", "#b65fb0", "#c0504d", "#8a8a2f"]
GREY = "#808080"


def read(path):
    """([(step, loss)], [(step, held-out loss)]) in order; of a repeated step the last."""
    rows = {}
    with open(path) as f:
        for line in f:
            if line.strip():
                row = json.loads(line)
                rows[int(row["step"])] = row
    train = [(s, float(rows[s]["loss"])) for s in sorted(rows)]
    # Protobuf's JSON names a field either way; a step without evaluation has none.
    held = [(s, float(rows[s].get("validation_loss", rows[s].get("validationLoss")))) for s in sorted(rows)
            if "validation_loss" in rows[s] or "validationLoss" in rows[s]]
    return train, held


def smooth(points, half):
    """Means over windows of 2 half + 1 steps, cut off at the ends."""
    sums = [0.0]
    for _, y in points:
        sums.append(sums[-1] + y)
    out = []
    for i, (x, _) in enumerate(points):
        low, high = max(0, i - half), min(len(points), i + half + 1)
        out.append((x, (sums[high] - sums[low]) / (high - low)))
    return out


def final(points, window):
    tail = [y for _, y in points[-window:]]
    return sum(tail) / len(tail)


def ticks(low, high, count):
    span = (high - low) / count
    unit = 10.0 ** len(str(int(span))) / 10 if span >= 1 else 1.0
    while unit > span:
        unit /= 10
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= span)
    first = int(low / step) * step
    return [t for t in (round(first + i * step, 10) for i in range(count * 3)) if low - 1e-12 <= t <= high + 1e-12]


class Panel:
    """A plot with axes in a part of the picture."""

    def __init__(self, top, height, x_range, y_range):
        self.top, self.height, self.x_range, self.y_range = top, height, x_range, y_range

    def x(self, value):
        low, high = self.x_range
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    def y(self, value):
        low, high = self.y_range
        return self.top + self.height * (1 - (min(max(value, low), high) - low) / (high - low))

    def axes(self, title, unit):
        right = WIDTH - RIGHT
        out = [f'<text x="{LEFT}" y="{self.top - 10}" fill="{GREY}" font-weight="bold">{escape(title)}</text>']
        for t in ticks(*self.y_range, 5):
            out.append(f'<line x1="{LEFT}" x2="{right}" y1="{self.y(t):.1f}" y2="{self.y(t):.1f}" stroke="{GREY}" stroke-opacity="0.25"/>'
                       f'<text x="{LEFT - 8}" y="{self.y(t) + 4:.1f}" text-anchor="end" fill="{GREY}">{t:g}{unit}</text>')
        bottom = self.top + self.height
        for t in ticks(*self.x_range, 8):
            out.append(f'<line x1="{self.x(t):.1f}" x2="{self.x(t):.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="{GREY}"/>'
                       f'<text x="{self.x(t):.1f}" y="{bottom + 18}" text-anchor="middle" fill="{GREY}">{t:g}</text>')
        out.append(f'<rect x="{LEFT}" y="{self.top}" width="{right - LEFT}" height="{self.height}" fill="none" stroke="{GREY}" stroke-opacity="0.6"/>')
        return out

    def line(self, points, colour, width=1.6, dash=""):
        # A thousand points a line are more than the picture has pixels.
        points = points[::max(1, len(points) // 1000)] + points[-1:]
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'

    def dots(self, points, colour):
        return [f'<circle cx="{self.x(a):.1f}" cy="{self.y(b):.1f}" r="3" fill="none" stroke="{colour}" stroke-width="1.4"/>' for a, b in points]


def gaps(points, base):
    at = dict(base)
    return [(x, 100 * (y / at[x] - 1)) for x, y in points if x in at]


def draw(runs, bound, title):
    half = 25
    smoothed = {name: smooth(train, half) for name, (train, _) in runs.items()}
    base = next(iter(runs))
    steps = [x for x, _ in smoothed[base]]
    x_range = (steps[0], steps[-1])
    # The fall of the first steps is cut off: what matters happens below it.
    values = [y for points in smoothed.values() for _, y in points[len(points) // 50:]] + [y for _, held in runs.values() for _, y in held[1:]]
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 0.1
    loss = Panel(50, 330, x_range, (low - room, high + room))
    limit = 300 * bound
    gap = Panel(440, 130, x_range, (-limit, limit))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f"<title>{escape(title)}</title>",
           f'<text x="{LEFT}" y="20" fill="{GREY}" font-size="15" font-weight="bold">{escape(title)}</text>']
    out += loss.axes(f"loss (nats per token): lines training, mean of {2 * half + 1} steps; rings held out", "")
    out += gap.axes(f"training loss, gap to {base}; dashed: the bound", " %")
    for sign in (-1, 1):
        out.append(gap.line([(x_range[0], sign * 100 * bound), (x_range[1], sign * 100 * bound)], GREY, 1, "5 4"))
    for i, (name, (_, held)) in enumerate(runs.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(loss.line(smoothed[name], colour))
        out += loss.dots(held, colour)
        if name != base:
            out.append(gap.line(gaps(smoothed[name], smoothed[base]), colour))
        y = 62 + 20 * i
        out.append(f'<line x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 38}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2.5"/>'
                   f'<text x="{WIDTH - RIGHT + 44}" y="{y}" fill="{GREY}">{escape(name)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="{GREY}">step</text></svg>')
    return "\n".join(out) + "\n"


def report(runs, window, bound):
    """Prints the tables; whether all gaps are within the bound."""
    base, (base_train, base_held) = next(iter(runs.items()))
    width = max(map(len, runs))
    good = True
    print(f"{'run'.ljust(width)}  training (last {window})     gap   held out     gap")
    for name, (train, held) in runs.items():
        gap = final(train, window) / final(base_train, window) - 1
        held_gap = held[-1][1] / base_held[-1][1] - 1 if held and base_held else None
        good = good and abs(gap) <= bound and (held_gap is None or abs(held_gap) <= bound)
        print(f"{name.ljust(width)}  {final(train, window):20.5f}  {100 * gap:+5.2f} %  " +
              (f"{held[-1][1]:9.5f}  {100 * held_gap:+5.2f} %" if held_gap is not None else "        -        -"))
    if base_held:
        print("\nheld out  " + "  ".join(name.rjust(18) for name in runs))
        columns = {name: dict(held) for name, (_, held) in runs.items()}
        for step, first in base_held:
            cells = [f"{columns[n][step]:9.5f} {100 * (columns[n][step] / first - 1):+6.2f} %" if step in columns[n] else "-" for n in runs]
            print(f"{step:8d}  " + "  ".join(cell.rjust(18) for cell in cells))
    print(f"bound {100 * bound:g} %: {'ok' if good else 'FAILED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=metrics.jsonl")
    parser.add_argument("--window", type=int, default=200)
    parser.add_argument("--bound", type=float, default=0.005)
    parser.add_argument("--svg")
    parser.add_argument("--title", default="Training loss by recipe")
    args = parser.parse_args()
    runs = {}
    for run in args.runs:
        name, equals, path = run.partition("=")
        if not equals or name in runs:
            parser.error(f"{run}: want NAME=FILE, each name once")
        runs[name] = read(path)
    last = {name: train[-1][0] if train else 0 for name, (train, _) in runs.items()}
    if len(runs) < 2 or min(last.values()) < 2:
        parser.error("at least two runs of at least two steps")
    good = report(runs, args.window, args.bound)
    if len(set(last.values())) > 1:
        print("FAILED: the runs end at different steps: " + ", ".join(f"{n} {s}" for n, s in last.items()))
        good = False
    if args.svg:
        with open(args.svg, "w") as f:
            f.write(draw(runs, args.bound, args.title))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
