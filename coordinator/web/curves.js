// One picture for each chart that the server names: lines over steps, tokens or time.
"use strict";

const kNarrowestZoom = 8;  // units of the picture that a drag must span

// What the curves are drawn over: the column of a point's place, and how a place is written.
const kAxes = {
  step: {of: (columns) => columns.step, write: (x) => "step " + (Number.isInteger(x) ? x : x.toFixed(1)), end: (x) => "step " + short(x)},
  tokens: {of: (columns) => columns.tokens, write: (x) => short(x) + " tokens", end: (x) => short(x) + " tokens"},
  time: {of: (columns) => columns.time.map((t) => t === null ? null : t - columns.time.find((first) => first !== null)), write: duration, end: duration},
};

// Each number becomes the mean of those among it and the `points` - 1 before it; null stays.
function smoothed(values, points) {
  return values.map((value, i) => {
    const window = values.slice(Math.max(0, i - points + 1), i + 1).filter((v) => v !== null);
    return value === null ? null : window.reduce((sum, v) => sum + v, 0) / window.length;
  });
}

// One line a run and row (a row has a label where there are several of a metric, such as a source), with the points that the address asks for. With one run, colours tell rows apart; with several, runs.
function linesOf(rows, runs, view) {
  return runs.flatMap(({jobId, columns}, r) => rows.map((row, k) => {
    const xs = kAxes[view.axis].of(columns);
    const ys = smoothed(columns[row.column] || xs.map(() => null), view.smooth);  // another run may lack the label
    const inside = xs.map((x, i) => i).filter((i) => xs[i] !== null && xs[i] >= view.from && xs[i] <= view.to);
    const single = runs.length === 1;
    return {
      row, x: inside.map((i) => xs[i]), y: inside.map((i) => ys[i]), sparse: row.sparse, colour: "line" + (single ? k : r) % kMostRuns,
      dashed: !single && k > 0, name: (rows.length > 1 || row.label ? (row.label || words(row.column)) + " " : "") + (single ? "" : jobId + " "),
    };
  }));
}

// Lines over the axis; null values are holes. Redrawn whole: the curve of a rewound job is simply the new one.
function drawChart(figure, title, lines, view) {
  const [width, height, left, right, top, bottom] = [380, 170, 64, 8, 8, 20];
  const axis = kAxes[view.axis];
  const write = kUnits[lines[0].row.unit] || number;
  const say = (line, i) => line.name + write(line.y[i]);
  const values = lines.flatMap((line) => line.y).filter((v) => v !== null);
  const log = view.log && values.every((v) => v > 0);
  const bend = log ? Math.log10 : (v) => v;
  let low = Math.min(...values.map(bend));
  let high = Math.max(...values.map(bend));
  if (low === high) {
    low -= Math.abs(low) * 0.05;
    high += Math.abs(high) * 0.05 || 1;
  }
  const places = lines.flatMap((line) => line.x);
  const from = Math.min(...places);
  const to = Math.max(...places) > from ? Math.max(...places) : from + 1;
  const x = (place) => left + (width - left - right) * (place - from) / (to - from);
  const y = (value) => top + (height - top - bottom) * (high - bend(value)) / (high - low);
  const says = lines.map((line) => [line, line.y.findLastIndex((v) => v !== null)]).filter(([, i]) => i >= 0)
    .map(([line, i]) => say(line, i)).join(", ");
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${title}: ${says} at ${axis.write(Math.max(...places))}`});
  for (const part of [0, 0.5, 1]) {
    const bent = low + (high - low) * part;
    const value = log ? 10 ** bent : bent;
    picture.append(svg("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
      svg("text", {x: left - 5, y: y(value) + 4, "text-anchor": "end"}, write(value)));
  }
  picture.append(svg("text", {x: left, y: height - 5}, axis.end(from).replace("step ", "")),
    svg("text", {x: width - right, y: height - 5, "text-anchor": "end"}, axis.end(to)));
  lines.forEach((line) => drawLine(picture, line, x, y));
  const caption = element("figcaption");
  const reading = element("span", says);
  caption.append(element("strong", title), reading);
  figure.title = [...new Set(lines.map((line) => line.row.help))].join(" ");
  followPointer(picture, {lines, axis, say, says, reading, x, from, to, box: {width, height, left, right, top, bottom}});
  figure.replaceChildren(caption, picture);
}

function drawLine(picture, line, x, y) {
  let path = "";
  let drawing = false;  // sparse: measured now and then, joined over the steps between
  let points = 0;
  line.y.forEach((value, i) => {
    if (value === null) {
      drawing = drawing && line.sparse;
      return;
    }
    path += `${drawing ? "L" : "M"}${x(line.x[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = true;
    ++points;
    const alone = (line.y[i - 1] ?? null) === null && (line.y[i + 1] ?? null) === null;
    if ((line.sparse && points <= 40) || (!line.sparse && alone)) {
      picture.append(svg("circle", {class: line.colour, cx: x(line.x[i]), cy: y(value), r: 2}));
    }
  });
  picture.append(svg("path", {class: line.colour + (line.dashed ? " dashed" : ""), d: path, "data-points": points}));
}

// The last point at or before the place; the first one when there is none.
function pointAt(line, place) {
  const after = line.x.findIndex((x) => x > place);
  return Math.max(0, (after < 0 ? line.x.length : after) - 1);
}

// Says the values under the pointer, and shows the stretch alone over which it is dragged.
function followPointer(picture, {lines, axis, say, says, reading, x, from, to, box}) {
  let dragged = null;  // the place where the drag began
  const placeOf = (event) => {
    const shown = picture.getBoundingClientRect();
    const at = (event.clientX - shown.left) * box.width / shown.width;
    const share = (at - box.left) / (box.width - box.left - box.right);
    return from + (to - from) * Math.min(1, Math.max(0, share));
  };
  const forget = () => picture.querySelectorAll(".cursor, .selected").forEach((mark) => mark.remove());
  picture.addEventListener("pointerdown", (event) => {
    dragged = event.pointerType === "touch" ? null : placeOf(event);
  });
  picture.addEventListener("pointermove", (event) => {
    const place = placeOf(event);
    const there = lines.filter((line) => line.x.length > 0).map((line) => [line, pointAt(line, place)]);
    const near = Math.max(...there.map(([line, i]) => line.x[i]));
    reading.textContent = `${axis.write(near)}: ` + there.filter(([line, i]) => line.y[i] !== null).map(([line, i]) => say(line, i)).join(", ");
    forget();
    picture.append(svg("line", {class: "cursor", x1: x(near), x2: x(near), y1: box.top, y2: box.height - box.bottom}));
    if (dragged !== null) {
      picture.append(svg("rect", {class: "selected", x: x(Math.min(dragged, place)), width: Math.abs(x(place) - x(dragged)), y: box.top,
        height: box.height - box.top - box.bottom}));
    }
  });
  picture.addEventListener("pointerup", (event) => {
    const place = placeOf(event);
    if (dragged !== null && Math.abs(x(place) - x(dragged)) > kNarrowestZoom) {
      setAddress({from: Math.min(dragged, place), to: Math.max(dragged, place)});
      redraw();
    }
    dragged = null;
  });
  picture.addEventListener("pointerleave", () => {
    dragged = null;
    reading.textContent = says;
    forget();
  });
}

const words = (column) => column.replaceAll("_", " ");

// The rows of each picture, by its name; no metric is known here by its own.
function chartsOf(curves) {
  const charts = new Map();
  for (const row of curves) {
    charts.set(row.chart, [...(charts.get(row.chart) || []), row]);
  }
  return charts;
}

// `answers` are those of the runs by id, the chosen job's first. `still`: a picture under the pointer stays as it is.
function showCurves(answers, still) {
  const charts = byId("charts");
  const view = address();
  const key = [...answers.keys()].join(" ");
  if (charts.dataset.runs !== key) {
    charts.replaceChildren();
  }
  charts.dataset.runs = key;
  const [chosen] = answers.values();
  const runs = [...answers].map(([jobId, answer]) => ({jobId, columns: answer.columns}));
  for (const [name, rows] of chartsOf(chosen.curves)) {
    const title = words(name);
    const lines = linesOf(rows, runs, view);
    let figure = [...charts.children].find((child) => child.dataset.title === title);
    if (lines.every((line) => line.y.every((v) => v === null))) {
      figure?.remove();
      continue;
    }
    if (!figure) {
      figure = element("figure");
      figure.dataset.title = title;
      charts.append(figure);
    }
    if (!still || !figure.matches(":hover")) {
      drawChart(figure, title, lines, view);
    }
  }
  replace(byId("runs"), runs.length < 2 ? [] : runs.map(({jobId}, r) => {
    const made = element("li", "━ ", "line" + r % kMostRuns);
    made.append(link(jobId));
    return made;
  }));
  showOptions(view);
}
