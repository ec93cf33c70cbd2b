// The built-in page: reads /api/v1/ every two seconds and draws what it says. All text from outside
// goes through textContent; nothing is built from strings of HTML.
"use strict";

const kPollMs = 2000;
const kPoints = 500;  // per curve: more than there are pixels
const kTimeoutMs = 10000;
const kMostRuns = 6;  // that are compared: as many as there are colours
const kNarrowestZoom = 8;  // units of the picture that a drag must span

// How a value of a unit is written; the server says which unit a metric has.
const kUnits = {
  bytes, ratio: (v) => (100 * v).toFixed(1) + " %", watts: (v) => v.toFixed(0) + " W", seconds: (v) => short(v) + " s",
};
const kTone = {
  running: "good", succeeded: "good", busy: "busy", idle: "good", starting: "busy", queued: "wait", paused: "wait",
  pausing: "wait", requeueing: "wait", recovering: "wait", cancelling: "wait", unreachable: "wait",
  failed: "bad", lost: "bad", unhealthy: "bad", cancelled: "idle", offline: "idle",
};

const byId = (id) => document.getElementById(id);
let rewinds = 0;        // of the job shown, when its curves were last drawn
let redraw = () => {};  // the curves that were read last, as the address now says
let failures = 0;       // polls in a row
let polling = false;
let again = false;      // poll once more when this poll has ended

function short(value) {
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const unit = units.find(([size]) => Math.abs(value) >= size);
  return unit ? (value / unit[0]).toPrecision(3) + unit[1] : String(+value.toPrecision(3));
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (value >= 1024 && k + 1 < units.length) {
    value /= 1024;
    ++k;
  }
  return value.toPrecision(3) + " " + units[k];
}

// From learning rates to tokens per second.
function number(value) {
  const size = Math.abs(value);
  if (size >= 1e4) {
    return short(value);
  }
  return size > 0 && size < 1e-3 ? value.toExponential(2) : value.toPrecision(4);
}

function ago(seconds) {
  if (seconds === null) {
    return "";
  }
  const past = Math.max(0, Date.now() / 1000 - seconds);
  if (past < 90) {
    return Math.round(past) + " s ago";
  }
  if (past < 5400) {
    return Math.round(past / 60) + " min ago";
  }
  if (past < 129600) {
    return Math.round(past / 3600) + " h ago";
  }
  return Math.round(past / 86400) + " days ago";
}

function duration(seconds) {
  const whole = Math.round(seconds);
  const two = (v) => String(v).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) {
    made.textContent = text;
  }
  if (className) {
    made.className = className;
  }
  return made;
}

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  if (text !== undefined) {
    made.textContent = text;
  }
  return made;
}

// One table cell for each of the contents: text, or an element.
function row(contents) {
  const made = element("tr");
  for (const content of contents) {
    const cell = content instanceof Node && content.tagName === "TD" ? content : element("td");
    if (cell !== content) {
      cell.append(content ?? "");
    }
    made.append(cell);
  }
  return made;
}

const numberCell = (text) => element("td", text, "number");
const state = (name) => element("span", name, "state " + (kTone[name] || "idle"));

// What tells a link or a box of a table from the others.
const nameOf = (made) => made.getAttribute("href") || made.getAttribute("aria-label");

// Replaces the rows and keeps the keyboard's place on a link or box that is still there.
function fill(id, rows) {
  const body = byId(id);
  const focused = body.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  body.replaceChildren(...rows);
  if (focused) {
    [...body.querySelectorAll("a, input")].find((made) => nameOf(made) === focused)?.focus();
  }
}

// What is shown, as the address says: #JOB?with=OTHER,OTHER&x=tokens&smooth=20&log=1&from=X&to=X&find=TEXT
function address() {
  const [job, query = ""] = location.hash.slice(1).split("?");
  const given = new URLSearchParams(query);
  const number = (name, otherwise) => (Number.isFinite(parseFloat(given.get(name))) ? parseFloat(given.get(name)) : otherwise);
  let wanted = "";
  try {
    wanted = decodeURIComponent(job);
  } catch (error) {
    // A fragment that is no text names no job.
  }
  return {
    job: wanted, others: (given.get("with") || "").split(",").filter(Boolean).slice(0, kMostRuns - 1),
    axis: Object.hasOwn(kAxes, given.get("x")) ? given.get("x") : "step", smooth: Math.max(1, Math.round(number("smooth", 1))), log: given.get("log") === "1",
    from: number("from", -Infinity), to: number("to", Infinity), find: given.get("find") || "",
  };
}

// Changes the address; only another job is a step in the browser's history.
function setAddress(changes) {
  const now = {...address(), ...changes};
  const query = new URLSearchParams();
  const put = (name, value, usual) => value === usual || query.set(name, value);
  put("with", now.others.join(","), "");
  put("x", now.axis, "step");
  put("smooth", now.smooth, 1);
  put("log", now.log ? "1" : "", "");
  put("from", now.from, -Infinity);
  put("to", now.to, Infinity);
  put("find", now.find, "");
  const text = query.toString().replaceAll("%2C", ",");
  const write = now.job === address().job ? "replaceState" : "pushState";
  history[write](null, "", "#" + encodeURIComponent(now.job) + (text ? "?" + text : ""));
}

function chosenJob(jobs) {
  return address().job || (jobs.find((job) => job.state === "running") || jobs[0] || {job_id: ""}).job_id;
}

// A link to a job keeps how curves are drawn, and not with which others.
function link(jobId) {
  const made = element("a", jobId);
  made.href = "#" + encodeURIComponent(jobId);
  made.addEventListener("click", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      setAddress({job: jobId, others: [], from: -Infinity, to: Infinity});
      poll();
    }
  });
  return made;
}

const labelsOf = (job) => Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join(" ");
const mentions = (job, text) => [job.job_id, job.name, job.state, job.owner, job.recipe, labelsOf(job), job.reason]
  .some((place) => place.toLowerCase().includes(text.toLowerCase()));

function compareBox(job, chosen) {
  const box = element("input");
  box.type = "checkbox";
  box.setAttribute("aria-label", `Compare ${job.job_id}`);
  const others = address().others;
  box.checked = job.job_id === chosen || others.includes(job.job_id);
  box.disabled = job.job_id === chosen || (!box.checked && others.length + 1 >= kMostRuns);
  box.addEventListener("change", () => {
    const rest = address().others.filter((id) => id !== job.job_id);
    setAddress({job: chosen, others: box.checked ? [...rest, job.job_id] : rest});
    poll();
  });
  return box;
}

function showJobs(answer, chosen) {
  const find = address().find;
  const shown = answer.jobs.filter((job) => mentions(job, find));
  fill("jobs", shown.map((job) => {
    const progress = element("progress");
    progress.max = Math.max(1, job.steps);
    progress.value = job.step;
    progress.setAttribute("aria-label", `${job.job_id}: ${job.unit} ${job.step} of ${job.steps}`);
    const steps = element("td");
    steps.append(progress, ` ${job.step}/${job.steps}`);
    const live = job.state === "running";
    const states = element("td");
    states.append(state(job.state));
    if (kTone[job.state] === "wait" && job.reason) {
      states.append(element("span", job.reason, "why"));
    }
    const made = row([
      compareBox(job, chosen), link(job.job_id), states, steps, numberCell(job.loss === null ? "" : job.loss.toPrecision(4)),
      numberCell(live && job.tokens_per_second !== null ? short(job.tokens_per_second) : ""), String(job.workers.length || ""),
      job.owner, labelsOf(job), ago(job.create_time),
    ]);
    if (job.job_id === chosen) {
      made.setAttribute("aria-current", "true");
    }
    return made;
  }));
  let note = answer.more ? `The newest ${answer.jobs.length}; jobctl list has all.` : "";
  if (answer.jobs.length === 0) {
    note = "No jobs yet: jobctl submit starts one.";
  } else if (shown.length < answer.jobs.length) {
    note = `${shown.length} of ${answer.jobs.length} jobs. ` + note;
  }
  byId("jobs-note").textContent = note;
}

function showWorkers(answer) {
  fill("workers", answer.workers.map((worker) => {
    const states = element("td");
    states.append(state(worker.state), worker.draining ? " draining" : (worker.cordoned ? " cordoned" : ""));
    if (worker.reason) {
      states.title = worker.reason;
    }
    const job = element("td");
    if (worker.job_id) {
      job.append(link(worker.job_id), ` rank ${worker.rank}`);
    }
    const memory = worker.memory_used_bytes !== null ? bytes(worker.memory_used_bytes) + " of " + bytes(worker.memory_bytes) : "";
    const online = worker.state !== "offline" && worker.state !== "lost";
    return row([
      worker.worker_id, states, job, worker.device_model || worker.device, worker.host, numberCell(online ? memory : ""),
      numberCell(online && worker.utilization_ratio !== null ? Math.round(100 * worker.utilization_ratio) + " %" : ""),
      numberCell(online && worker.power_watts !== null ? worker.power_watts.toFixed(0) + " W" : ""),
      numberCell(online && worker.temperature_celsius !== null ? worker.temperature_celsius.toFixed(0) + " °C" : ""),
      ago(worker.last_seen_time),
    ]);
  }));
  byId("workers-note").textContent = answer.workers.length === 0 ? "No worker has dialled in yet." : "";
}

function showEvents(answer) {
  fill("events", answer.events.map((event) => {
    const changed = event.from_state !== event.to_state;
    const time = element("time", event.time === null ? "" : new Date(event.time * 1000).toLocaleString());
    return row([
      time, changed ? state(event.to_state) : event.type, numberCell(event.step || ""), event.actor,
      element("td", event.message || event.reason_code, "wide"),
    ]);
  }));
  byId("events-note").textContent = answer.more ? "Older events are left out." : "";
}

// "396k of 557k tok/s (71 %)": measured of planned; "" where nothing is planned.
function ofPlan(measured, planned, write) {
  if (planned == null) {
    return "";
  }
  if (measured == null) {
    return `${write(planned)} planned`;
  }
  return `${write(measured)} of ${write(planned)} (${Math.round(100 * measured / planned)} %)`;
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

// The prompt, and what the model wrote after it.
function sampleText(sample) {
  const made = element("span", null, "sample");
  made.append(element("span", sample.prompt, "prompt"), sample.text);
  made.title = `${sample.tokens} tokens, ended by: ${sample.end}`;
  return made;
}

// What was planned for the job as it runs, beside what its steps measure.
function planFacts(plan) {
  if (!plan) {
    return [];
  }
  if (plan.unknown) {
    return [["Plan", "none: " + plan.unknown]];
  }
  const { planned = {}, measured = {} } = plan;
  return [
    ["Tokens/s, of plan", ofPlan(measured.tokens_per_second, planned.tokens_per_second, short)],
    ["Watts a GPU, of plan", ofPlan(measured.watts, planned.watts, (watts) => watts.toFixed(0))],
    ["Memory, of plan", ofPlan(measured.memory_bytes, planned.memory_bytes, bytes)],
    ["Planned for", `${plan.gpus} × ${plan.gpu}${plan.calibrated ? "" : ", by its data sheet"}`],
  ];
}

function showFacts(job) {
  byId("job-title").textContent = `${job.job_id}: ${job.state}`;
  document.title = `${job.job_id} ${job.state} ${job.step}/${job.steps} - Hearth`;
  byId("job-reason").textContent = [job.reason, ...job.warnings].filter(Boolean).join("; ");
  const left = (job.steps - job.step) * (job.tokens / Math.max(1, job.step)) / job.tokens_per_second;
  const facts = [
    [capital(job.unit) + "s", `${job.step} of ${job.steps}`], ["Tokens", job.tokens ? short(job.tokens) : ""],
    ["Parameters", job.parameters ? short(job.parameters) : ""], ["Recipe", job.recipe],
    ["Running for", duration(job.running_seconds)],
    ["Left", job.state === "running" && Number.isFinite(left) && job.step > 0 ? duration(left) : ""],
    ["Starts", job.epoch], ["Rewinds", rewinds],
    ["Checkpoint", job.checkpoint_step ? `step ${job.checkpoint_step}, ${job.checkpoint_path}` : ""], ["Owner", job.owner],
    ["Labels", labelsOf(job)], ["Workers", job.workers.join(", ")],
    ["Hottest", job.hottest_celsius === null ? "" : job.hottest_celsius.toFixed(0) + " °C"],
    ...planFacts(job.plan),
    ...job.evaluations.map((text) => ["Evaluation", text]),
    ...job.samples.map((sample) => [`Sample after step ${sample.step}`, sampleText(sample)]),
  ];
  byId("job-facts").replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) => {
    const made = element("div");
    const shown = element("dd");
    shown.append(value);
    made.append(element("dt", name), shown);
    return made;
  }));
}

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

// One line a run and row, with the points that the address asks for. With one run, colours tell rows apart; with several, runs.
function linesOf(rows, runs, view) {
  return runs.flatMap(({jobId, columns}, r) => rows.map((row, k) => {
    const xs = kAxes[view.axis].of(columns);
    const ys = smoothed(columns[row.column], view.smooth);
    const inside = xs.map((x, i) => i).filter((i) => xs[i] !== null && xs[i] >= view.from && xs[i] <= view.to);
    const single = runs.length === 1;
    return {
      row, x: inside.map((i) => xs[i]), y: inside.map((i) => ys[i]), sparse: row.sparse, colour: "line" + (single ? k : r) % kMostRuns,
      dashed: !single && k > 0, name: (rows.length > 1 ? words(row.column) + " " : "") + (single ? "" : jobId + " "),
    };
  }));
}

// Lines over the axis; null values are holes. Redrawn whole: the curve of a rewound job is simply the new one.
function drawChart(figure, title, lines, view) {
  const [width, height, left, right, top, bottom] = [380, 170, 56, 8, 8, 20];
  const axis = kAxes[view.axis];
  const write = kUnits[lines[0].row.unit] || number;
  const say = (line, i) => line.name + write(line.y[i]);
  const values = lines.flatMap((line) => line.y).filter((v) => v !== null);
  const log = view.log && values.every((v) => v > 0);
  const bend = log ? Math.log10 : (v) => v;
  let low = Math.min(...values.map(bend));
  let high = Math.max(...values.map(bend));
  if (low === high) {
    low -= Math.abs(low) * 0.05 || 1;
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
  rewinds = chosen.rewinds;
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
  byId("runs").replaceChildren(...(runs.length < 2 ? [] : runs.map(({jobId}, r) => {
    const made = element("li", "━ ", "line" + r % kMostRuns);
    made.append(link(jobId));
    return made;
  })));
  showOptions(view);
}

// The inputs say what the address says; one that is being changed is left alone.
function showOptions(view) {
  for (const [id, name, value] of [["axis", "value", view.axis], ["smooth", "value", String(view.smooth)], ["log", "checked", view.log],
    ["find", "value", view.find]]) {
    if (document.activeElement !== byId(id)) {
      byId(id)[name] = value;
    }
  }
  byId("whole").hidden = view.from === -Infinity && view.to === Infinity;
}

// Sections whose keys are the user's own.
const kMaps = ["labels.", "resources.selector.", "optimizer.groups."];

// The job file's keys, without sections: {"optimizer.lr": "0.0003"}. `whole` has the API's names.
function keysOf(whole, prefix = "", out = {}) {
  for (const [name, value] of Object.entries(whole)) {
    const path = prefix + (kMaps.includes(prefix) ? name : name.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()));
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      keysOf(value, path + ".", out);
    } else {
      out[path] = typeof value === "string" ? value : JSON.stringify(value);
    }
  }
  return out;
}

// The job file of one run; of several, the keys in which they differ. `job`: the answer about ids[0].
async function showSpec(ids, job) {
  if (!byId("spec").open) {
    return;
  }
  const files = await Promise.all(ids.map(async (id) =>
    keysOf((id === ids[0] ? job : await get("jobs/" + encodeURIComponent(id))).job.spec)));
  const paths = [...new Set(files.flatMap((file) => Object.keys(file)))];
  const shown = paths.filter((path) => files.length === 1 || files.some((file) => file[path] !== files[0][path]));
  byId("spec-head").replaceChildren(...["Key", ...ids].map((text) => {
    const made = element("th", text);
    made.scope = "col";
    return made;
  }));
  fill("spec-rows", shown.map((path) => row([path, ...files.map((file) => file[path] ?? "unset")])));
  byId("spec-note").textContent = files.length === 1 ? "Tick other jobs in the table to see where they differ."
    : `${shown.length} of ${paths.length} keys differ.`;
}

function showCommands(ids) {
  const job = ids[0];
  const commands = [`jobctl describe ${job}`, `jobctl logs -f ${job}`, `jobctl metrics ${ids.join(" ")} --plot loss,tok_s`,
    `jobctl pause ${job}`, `jobctl resume ${job} --set train.steps=N`, `jobctl rerun ${job} --set optimizer.lr=LR`,
    ...ids.slice(1).map((other) => `jobctl diff ${job} ${other}`)];
  byId("command-list").replaceChildren(...commands.map((command) => {
    const made = element("li");
    made.append(element("code", command));
    return made;
  }));
}

async function get(path) {
  const response = await fetch("/api/v1/" + path, {cache: "no-store", signal: AbortSignal.timeout(kTimeoutMs)});
  const answer = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(answer.error ? answer.error.message : `HTTP ${response.status}`), {status: response.status});
  }
  return answer;
}

async function showJob(chosen) {
  byId("job").hidden = chosen === "";
  if (chosen === "") {
    return;
  }
  const pathOf = (id) => "jobs/" + encodeURIComponent(id);
  const ids = [chosen, ...address().others.filter((id) => id !== chosen)];
  const [job, events, ...curves] = await Promise.all(
    [get(pathOf(chosen)), get(pathOf(chosen) + "/events"),
      ...ids.map((id) => get(`${pathOf(id)}/metrics?points=${kPoints}`).catch((error) => {
        if (id === chosen || error.status !== 404) {
          throw error;
        }
        return null;
      }))]);
  // A run that is gone leaves the comparison; the others go on.
  const answers = new Map(ids.map((id, i) => [id, curves[i]]).filter(([, curve]) => curve !== null));
  if (answers.size < ids.length) {
    setAddress({others: address().others.filter((id) => answers.has(id))});
  }
  redraw = () => showCurves(answers, false);
  showCurves(answers, true);
  showFacts(job);
  showEvents(events);
  showCommands([...answers.keys()]);
  await showSpec([...answers.keys()], job);
}

async function poll() {
  if (polling || document.hidden) {
    again = again || polling;  // what was chosen meanwhile is asked for at once
    return;
  }
  polling = true;
  try {
    const [jobs, workers] = await Promise.all([get("jobs"), get("workers")]);
    const chosen = chosenJob(jobs.jobs);
    showJobs(jobs, chosen);
    showWorkers(workers);
    await showJob(chosen);
    failures = 0;
    byId("status").textContent = `version ${jobs.version}, updated ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    ++failures;
    byId("status").textContent = `not up to date: ${error.message}`;
  }
  byId("status").classList.toggle("bad", failures > 0);
  polling = false;
  if (again) {
    again = false;
    poll();
  }
}

function watchOptions() {
  byId("axis").addEventListener("change", (event) => {
    setAddress({axis: event.target.value, from: -Infinity, to: Infinity});
    redraw();
  });
  byId("smooth").addEventListener("change", (event) => {
    setAddress({smooth: Number(event.target.value)});
    redraw();
  });
  byId("log").addEventListener("change", (event) => {
    setAddress({log: event.target.checked});
    redraw();
  });
  byId("whole").addEventListener("click", () => {
    setAddress({from: -Infinity, to: Infinity});
    redraw();
  });
  byId("options").addEventListener("submit", (event) => event.preventDefault());
  byId("find").addEventListener("input", (event) => {
    setAddress({find: event.target.value});
    poll();
  });
  byId("spec").addEventListener("toggle", poll);
}

watchOptions();
window.addEventListener("hashchange", poll);
document.addEventListener("visibilitychange", poll);
setInterval(poll, kPollMs);
poll();
