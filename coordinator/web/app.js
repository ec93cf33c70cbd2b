// The built-in page: reads /api/v1/ every two seconds and draws what it says. All text from outside
// goes through textContent; nothing is built from strings of HTML.
"use strict";

const kPollMs = 2000;
const kPoints = 500;  // per curve: more than there are pixels
const kTimeoutMs = 10000;

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
let failures = 0;       // polls in a row
let polling = false;

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

function link(jobId) {
  const made = element("a", jobId);
  made.href = "#" + encodeURIComponent(jobId);
  return made;
}

// Replaces the rows and keeps the keyboard's place on a link that is still there.
function fill(id, rows) {
  const body = byId(id);
  const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  body.replaceChildren(...rows);
  if (focused) {
    [...body.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  }
}

function chosenJob(jobs) {
  let wanted = "";
  try {
    wanted = decodeURIComponent(location.hash.slice(1));
  } catch (error) {
    // A fragment that is no text names no job.
  }
  return wanted || (jobs.find((job) => job.state === "running") || jobs[0] || {job_id: ""}).job_id;
}

function showJobs(answer, chosen) {
  fill("jobs", answer.jobs.map((job) => {
    const progress = element("progress");
    progress.max = Math.max(1, job.steps);
    progress.value = job.step;
    progress.setAttribute("aria-label", `${job.job_id}: step ${job.step} of ${job.steps}`);
    const steps = element("td");
    steps.append(progress, ` ${job.step}/${job.steps}`);
    const live = job.state === "running";
    const made = row([
      link(job.job_id), state(job.state), steps, numberCell(job.loss === null ? "" : job.loss.toPrecision(4)),
      numberCell(live && job.tokens_per_second !== null ? short(job.tokens_per_second) : ""), String(job.workers.length || ""), ago(job.create_time),
    ]);
    if (job.job_id === chosen) {
      made.setAttribute("aria-current", "true");
    }
    return made;
  }));
  byId("jobs-note").textContent = answer.jobs.length === 0
    ? "No jobs yet: jobctl submit starts one." : (answer.more ? `The newest ${answer.jobs.length}; jobctl list has all.` : "");
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
  byId("job-reason").textContent = [job.reason, ...job.warnings].filter(Boolean).join("; ");
  const left = (job.steps - job.step) * (job.tokens / Math.max(1, job.step)) / job.tokens_per_second;
  const facts = [
    ["Step", `${job.step} of ${job.steps}`], ["Tokens", short(job.tokens)],
    ["Parameters", job.parameters ? short(job.parameters) : ""], ["Recipe", job.recipe],
    ["Running for", duration(job.running_seconds)],
    ["Left", job.state === "running" && Number.isFinite(left) && job.step > 0 ? duration(left) : ""],
    ["Starts", job.epoch], ["Rewinds", rewinds],
    ["Checkpoint", job.checkpoint_step ? `step ${job.checkpoint_step}` : ""], ["Workers", job.workers.join(", ")],
    ["Hottest", job.hottest_celsius === null ? "" : job.hottest_celsius.toFixed(0) + " °C"],
    ...planFacts(job.plan),
    ...job.evaluations.map((text) => ["Evaluation", text]),
  ];
  byId("job-facts").replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) => {
    const made = element("div");
    made.append(element("dt", name), element("dd", value));
    return made;
  }));
}

// Lines over steps; null values are holes. Redrawn whole: the curve of a rewound job is simply the new one.
// `rows` are the lines of one picture.
function drawChart(figure, title, rows, columns) {
  const [width, height, left, right, top, bottom] = [380, 170, 56, 8, 8, 20];
  const steps = columns.step;
  const write = kUnits[rows[0].unit] || number;
  const say = (row, value) => (rows.length > 1 ? words(row.column) + " " : "") + write(value);
  const values = rows.flatMap((row) => columns[row.column]).filter((v) => v !== null);
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low === high) {
    low -= Math.abs(low) * 0.05 || 1;
    high += Math.abs(high) * 0.05 || 1;
  }
  const [from, to] = [steps[0], Math.max(steps[steps.length - 1], steps[0] + 1)];
  const x = (step) => left + (width - left - right) * (step - from) / (to - from);
  const y = (value) => top + (height - top - bottom) * (high - value) / (high - low);
  const last = rows.map((row) => columns[row.column].findLast((v) => v !== null));
  const says = rows.map((row, k) => last[k] === undefined ? "" : say(row, last[k])).filter(Boolean).join(", ");
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${title}: ${says} at step ${steps[steps.length - 1]}`});
  for (const part of [0, 0.5, 1]) {
    const value = low + (high - low) * part;
    picture.append(svg("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
      svg("text", {x: left - 5, y: y(value) + 4, "text-anchor": "end"}, write(value)));
  }
  picture.append(svg("text", {x: left, y: height - 5}, short(from)),
    svg("text", {x: width - right, y: height - 5, "text-anchor": "end"}, "step " + short(to)));
  rows.forEach(({column, sparse}, k) => {  // sparse: measured now and then, joined over the steps between
    let path = "";
    let drawing = false;
    let points = 0;
    columns[column].forEach((value, i) => {
      if (value === null) {
        drawing = drawing && sparse;
        return;
      }
      path += `${drawing ? "L" : "M"}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      drawing = true;
      ++points;
      if (sparse && points <= 40) {
        picture.append(svg("circle", {class: k ? "second" : "first", cx: x(steps[i]), cy: y(value), r: 2}));
      }
    });
    picture.append(svg("path", {class: k ? "second" : "first", d: path, "data-points": points}));
  });
  const caption = element("figcaption");
  const reading = element("span", says);
  caption.append(element("strong", title), reading);
  figure.title = rows.map((row) => row.help).join(" ");
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const at = from + (to - from) * ((event.clientX - box.left) * width / box.width - left) / (width - left - right);
    let i = steps.findIndex((step) => step >= at);
    if (i < 0) {
      i = steps.length - 1;
    }
    const there = rows.map((row) => columns[row.column][i] === null ? "" : say(row, columns[row.column][i]));
    reading.textContent = `step ${steps[i]}: ` + there.filter(Boolean).join(", ");
    picture.querySelector(".cursor")?.remove();
    picture.append(svg("line", {class: "cursor", x1: x(steps[i]), x2: x(steps[i]), y1: top, y2: height - bottom}));
  });
  picture.addEventListener("pointerleave", () => {
    reading.textContent = says;
    picture.querySelector(".cursor")?.remove();
  });
  figure.replaceChildren(caption, picture);
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

function showCurves(jobId, answer) {
  const charts = byId("charts");
  if (charts.dataset.job !== jobId) {
    charts.replaceChildren();
  }
  charts.dataset.job = jobId;
  rewinds = answer.rewinds;
  const columns = answer.columns;
  for (const [name, rows] of chartsOf(answer.curves)) {
    const title = words(name);
    const known = rows.some((row) => columns[row.column].some((v) => v !== null));
    let figure = [...charts.children].find((child) => child.dataset.title === title);
    if (!known) {
      figure?.remove();
      continue;
    }
    if (!figure) {
      figure = element("figure");
      figure.dataset.title = title;
      charts.append(figure);
    }
    if (!figure.matches(":hover")) {  // holds still while it is read
      drawChart(figure, title, rows, columns);
    }
  }
}

async function get(path) {
  const response = await fetch("/api/v1/" + path, {cache: "no-store", signal: AbortSignal.timeout(kTimeoutMs)});
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.error ? answer.error.message : `HTTP ${response.status}`);
  }
  return answer;
}

async function showJob(jobs, chosen) {
  byId("job").hidden = chosen === "";
  if (chosen === "") {
    return;
  }
  const listed = jobs.some((job) => job.job_id === chosen);
  const path = "jobs/" + encodeURIComponent(chosen);
  const [job, events, curves] = await Promise.all(
    [listed ? jobs.find((one) => one.job_id === chosen) : get(path), get(path + "/events"), get(`${path}/metrics?points=${kPoints}`)]);
  showCurves(chosen, curves);
  showFacts(job);
  showEvents(events);
}

async function poll() {
  if (polling || document.hidden) {
    return;
  }
  polling = true;
  try {
    const [jobs, workers] = await Promise.all([get("jobs"), get("workers")]);
    const chosen = chosenJob(jobs.jobs);
    showJobs(jobs, chosen);
    showWorkers(workers);
    await showJob(jobs.jobs, chosen);
    failures = 0;
    byId("status").textContent = `version ${jobs.version}, updated ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    ++failures;
    byId("status").textContent = `not up to date: ${error.message}`;
  }
  byId("status").classList.toggle("bad", failures > 0);
  polling = false;
}

window.addEventListener("hashchange", poll);
document.addEventListener("visibilitychange", poll);
setInterval(poll, kPollMs);
poll();
