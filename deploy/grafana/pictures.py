#!/usr/bin/python3
"""Draws the dashboards' panels as SVG from the same queries, where Grafana is not at hand. Standard library only.

  deploy/grafana/pictures.py --prometheus http://127.0.0.1:9090 --out DIR [--dashboards job,cluster] [--seconds 120] [--end UNIX]
                             [--rate-interval 20s] [--var job_id=ID]

Writes DIR/dashboard-NAME.svg. Panels that only a GPU has are left out where they have no data; any other without data says so, and
the exit status is 1."""

import argparse
import html
import json
import math
import os
import re
import sys
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dashboards  # noqa: E402

COLUMN, ROW, GAP, TOP = 50, 34, 6, 44
POINTS = 80
SERIES_MAX = 8  # in a legend; the rest is counted
COLOURS = ["#3b7c35", "#b58500", "#2a7f9e", "#c4581c", "#c0392b", "#2f5fa8", "#a0438c", "#6b5ca5"]
STYLE = ("text{font-family:sans-serif;font-size:11px;fill:#24292e}.t{font-size:12px;font-weight:600}.h{font-size:15px;font-weight:600}"
         ".a{fill:#6a737d;font-size:10px}.p{fill:#fff;stroke:#d8dde3}.g{stroke:#e8ebee}.l{fill:none;stroke-width:1.4}")


class Prometheus:
    def __init__(self, base):
        self.base = base.rstrip("/")

    def get(self, path, **parameters):
        url = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.load(response)["data"]["result"]


def interpolate(expression, values):
    return re.sub(r"\$(\w+)", lambda m: values.get(m[1], ".+"), expression)


def legend(template, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), template).strip() or ", ".join(
        f"{k}={v}" for k, v in sorted(labels.items()) if k != "__name__")


def scaled(value, steps, unit=""):
    for factor, prefix in steps:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()


SI = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
BINARY = [(2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")]


def show(value, unit):
    """As Grafana prints a value of this unit, nearly."""
    if unit == "s":
        for factor, name in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
            if abs(value) >= factor:
                return f"{value / factor:.3g} {name}"
        return "0 s" if value == 0 else f"{value * 1e6:.3g} µs"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit in ("bytes", "Bps"):
        return scaled(value, BINARY if unit == "bytes" else SI, "B" if unit == "bytes" else "B/s")
    if unit in ("watt", "joule", "hertz", "celsius"):
        return scaled(value, SI, {"watt": "W", "joule": "J", "hertz": "Hz", "celsius": "°C"}[unit])
    return f"{value:.1e}" if unit == "sci" else scaled(value, SI)


def text(x, y, what, css="", anchor="start"):
    return f'<text x="{x:g}" y="{y:g}" class="{css}" text-anchor="{anchor}">{html.escape(what)}</text>'


def fit(what, width):
    room = max(int(width / 6.2), 3)
    return what if len(what) <= room else what[:room - 1] + "…"


class Drawing:
    def __init__(self, prometheus, values, start, end):
        self.prometheus, self.values, self.start, self.end = prometheus, values, start, end

    def lines(self, panel):
        """[(legend, [(time, value)])] of all targets, finite values alone."""
        found = []
        for target in panel["targets"]:
            expression = interpolate(target["expr"], self.values)
            step = (self.end - self.start) / POINTS
            for series in self.prometheus.get("query_range", query=expression, start=self.start, end=self.end, step=f"{step:.3f}"):
                points = [(float(t), float(v)) for t, v in series["values"] if math.isfinite(float(v))]
                if points:
                    found.append((legend(target["legendFormat"], series["metric"]), points))
        return sorted(found, key=lambda s: s[0])

    def instant(self, panel):
        return [(legend(t["legendFormat"], r["metric"]), float(r["value"][1]), r["metric"]) for t in panel["targets"]
                for r in self.prometheus.get("query", query=interpolate(t["expr"], self.values), time=self.end)
                if math.isfinite(float(r["value"][1]))]

    def has_data(self, panel):
        return bool(self.lines(panel) if panel["type"] == "timeseries" else self.instant(panel))

    def plot(self, panel, x, y, w, h):
        lines, unit = self.lines(panel), panel["fieldConfig"]["defaults"]["unit"]
        if not lines:
            return None
        values = [v for _, points in lines for _, v in points]
        low, high = min(values), max(values)
        low = min(low, panel["fieldConfig"]["defaults"].get("min", low))
        if low == high:
            low, high = (0, high * 2) if high > 0 else (0, 1) if high == 0 else (low - 1, high + 1)
        left, right, top, bottom = x + 58, x + w - 8, y + 28, y + h - 34
        out = []
        for k in range(4):
            level = low + (high - low) * k / 3
            at = bottom - (bottom - top) * k / 3
            out.append(f'<path class="g" d="M{left} {at:.0f}H{right}"/>' + text(left - 5, at + 3, show(level, unit), "a", "end"))
        names = []
        for k, (name, points) in enumerate(lines):
            path = " ".join(f"{left + (t - self.start) / (self.end - self.start) * (right - left):.0f},"
                            f"{bottom - (v - low) / (high - low) * (bottom - top):.0f}" for t, v in points)
            colour = COLOURS[k % len(COLOURS)]
            out.append(f'<polyline class="l" stroke="{colour}" points="{path}"/>' if len(points) > 1 else
                       f'<circle cx="{path.split(",")[0]}" cy="{path.split(",")[1]}" r="2" fill="{colour}"/>')
            names.append((name, colour))
        at, room = x + 12, x + w - 10
        for k, (name, colour) in enumerate(names[:SERIES_MAX]):
            rest = 30 if k + 1 < len(names) else 0  # for "+ N"
            shown = fit(name, room - at - 14 - rest)
            if k == SERIES_MAX - 1 or room - at < 60:
                out.append(text(at, y + h - 8, f"+ {len(names) - k}", "a"))
                break
            out.append(f'<path stroke="{colour}" stroke-width="3" d="M{at:.0f} {y + h - 12}h9"/>' + text(at + 12, y + h - 8, shown, "a"))
            at += 24 + 5.6 * len(shown)
        out.append(text(left, bottom + 12, time.strftime("%H:%M:%S", time.localtime(self.start)), "a"))
        out.append(text(right, bottom + 12, time.strftime("%H:%M:%S", time.localtime(self.end)), "a", "end"))
        return "".join(out)

    def stat(self, panel, x, y, w, h):
        found, unit = self.instant(panel), panel["fieldConfig"]["defaults"]["unit"]
        if not found:
            return None
        by_name = panel.get("options", {}).get("textMode") == "name"
        what = found[0][0] if by_name else show(found[0][1], unit)
        colour = "#3b7c35"
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
            if step["value"] is not None and found[0][1] >= step["value"] and not by_name:
                colour = {"red": "#c0392b", "yellow": "#b58500", "orange": "#c4581c"}.get(step["color"], colour)
        size = 26 if len(what) < 10 else 15
        return (f'<text x="{x + w / 2}" y="{y + h / 2 + 18}" text-anchor="middle" '
                f'style="font-size:{size}px;font-weight:600;fill:{colour}">{html.escape(fit(what, w * 1.2))}</text>')

    def table(self, panel, x, y, w, h):
        rows = [labels for _, _, labels in self.instant(panel)]
        if not rows:
            return None
        keys = [k for k in rows[0] if k not in ("__name__", "instance", "job")]
        out, width = [], (w - 20) / len(keys)
        for k, key in enumerate(keys):
            out.append(text(x + 10 + k * width, y + 42, fit(key, width), "a"))
            out += [text(x + 10 + k * width, y + 60 + 17 * r, fit(row.get(key, ""), width)) for r, row in enumerate(rows[:3])]
        return "".join(out)

    def panel(self, panel):
        """(SVG, whether it has data)"""
        grid = panel["gridPos"]
        x, y = grid["x"] * COLUMN + GAP, grid["y"] * ROW + TOP
        w, h = grid["w"] * COLUMN - GAP, grid["h"] * ROW - GAP
        if panel["type"] == "row":
            return text(x, y + 22, panel["title"], "h"), True
        draw = {"timeseries": self.plot, "table": self.table}.get(panel["type"], self.stat)
        body = draw(panel, x, y, w, h)
        head = f'<rect class="p" x="{x}" y="{y}" width="{w}" height="{h}" rx="3"/>' + text(x + 10, y + 18, fit(panel["title"], w), "t")
        return head + (body or text(x + w / 2, y + h / 2 + 6, "no data", "a", "middle")), body is not None


def draw(prometheus, name, values, start, end):
    """SVG of a dashboard and the titles of panels without data."""
    document, specs = dashboards.DASHBOARDS[name]
    drawing, kept = Drawing(prometheus, values, start, end), []
    for spec in specs:
        if not spec.get("gpu") or drawing.has_data(dashboards.render_panel(spec, 1, 0, 0)):
            kept.append(spec)
    kept = [s for k, s in enumerate(kept) if "row" not in s or (k + 1 < len(kept) and "row" not in kept[k + 1])]
    parts, empty, bottom = [], [], 0
    for panel in dashboards.render_panels(kept):
        svg, filled = drawing.panel(panel)
        parts.append(svg)
        bottom = max(bottom, panel["gridPos"]["y"] + panel["gridPos"]["h"])
        if not filled:
            empty.append(panel["title"])
    width, height = 24 * COLUMN + GAP, bottom * ROW + TOP
    left_out = sum(1 for s in specs if "row" not in s) - sum(1 for s in kept if "row" not in s)
    note = f"{left_out} panels of GPUs left out: no data" if left_out else ""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
            f"<style>{STYLE}</style><rect width='100%' height='100%' fill='#f6f8fa'/>" + text(GAP, 28, document["title"], "h")
            + text(width - GAP, 28, note, "a", "end") + "\n".join(parts) + "</svg>\n"), empty


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--dashboards", default=",".join(dashboards.DASHBOARDS))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--end", type=float, default=None)
    parser.add_argument("--rate-interval", default="1m")
    parser.add_argument("--var", action="append", default=[])
    options = parser.parse_args(argv)
    end = options.end or time.time()
    values = {"__rate_interval": options.rate_interval, "job": "hearth-.+", **dashboards.PRICES, **dict(v.split("=", 1) for v in options.var)}
    status = 0
    for name in options.dashboards.split(","):
        svg, empty = draw(Prometheus(options.prometheus), name, values, end - options.seconds, end)
        path = os.path.join(options.out, f"dashboard-{name}.svg")
        with open(path, "w", encoding="utf-8") as f:
            f.write(svg)
        print(f"{path}: {len(svg) // 1024} KiB" + (f"; no data: {', '.join(empty)}" if empty else ""))
        status |= bool(empty)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
