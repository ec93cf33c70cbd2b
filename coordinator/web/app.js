// The built-in page: reads /api/v1/ every two seconds and draws what it says. All text from outside
// goes through textContent; nothing is built from strings of HTML.
//
//   text.js     how values are written and elements made
//   curves.js   a job's curves
//   job.js      what else is known of one job
//   app.js      the address, the tables of jobs and workers, polling
"use strict";

const kPollMs = 2000;
const kPoints = 500;  // per curve: more than there are pixels
const kTimeoutMs = 10000;
const kMostLines = 1000;  // of a log: what the server gives at once
const kMostRuns = 6;  // that are compared: as many as there are colours

let shownJob = "";       // its id
let redraw = () => {};  // the curves that were read last, as the address now says
let failures = 0;       // polls in a row
let polling = false;
let again = false;      // poll once more when this poll has ended

const finite = (text, otherwise) => (Number.isFinite(parseFloat(text)) ? parseFloat(text) : otherwise);
const list = (text) => text.split(",").filter(Boolean);
// A whole number of at least `least`, or "" for all.
const wholeOrAll = (least) => (text) => (/^\d{1,9}$/.test(text) && Number(text) >= least ? Number(text) : "");

// What the address says behind the job, #JOB?with=OTHER,OTHER&x=tokens: its name there, how it is read, and what stands for a missing one.
const kAddress = {
  others: {key: "with", read: (text) => list(text).slice(0, kMostRuns - 1), usual: ""},
  axis: {key: "x", read: (text) => (Object.hasOwn(kAxes, text) ? text : "step"), usual: "step"},
  smooth: {key: "smooth", read: (text) => Math.max(1, Math.round(finite(text, 1))), usual: "1"},
  log: {key: "log", read: (text) => text === "1", write: (on) => (on ? "1" : ""), usual: ""},
  from: {key: "from", read: (text) => finite(text, -Infinity), usual: "-Infinity"},
  to: {key: "to", read: (text) => finite(text, Infinity), usual: "Infinity"},
  find: {key: "find", read: (text) => text, usual: ""},
  open: {key: "open", read: list, usual: ""},
  rank: {key: "rank", read: wholeOrAll(0), usual: ""},
  start: {key: "start", read: wholeOrAll(1), usual: ""},
  lines: {key: "lines", read: (text) => Math.min(kMostLines, wholeOrAll(1)(text) || 200), usual: "200"},
};

// What is shown: the job and what kAddress names.
function address() {
  const [job, query = ""] = location.hash.slice(1).split("?");
  const given = new URLSearchParams(query);
  const shown = {job: ""};
  try {
    shown.job = decodeURIComponent(job);
  } catch (error) {
    // A fragment that is no text names no job.
  }
  for (const [name, {key, read, usual}] of Object.entries(kAddress)) {
    shown[name] = read(given.get(key) ?? usual);
  }
  return shown;
}

// Changes the address; only another job is a step in the browser's history.
function setAddress(changes) {
  const now = {...address(), ...changes};
  const query = new URLSearchParams();
  for (const [name, {key, write = String, usual}] of Object.entries(kAddress)) {
    const text = write(now[name]);
    if (text !== usual) {
      query.set(key, text);
    }
  }
  const text = query.toString().replaceAll("%2C", ",");
  const write = now.job === address().job ? "replaceState" : "pushState";
  history[write](null, "", "#" + encodeURIComponent(now.job) + (text ? "?" + text : ""));
}

function chosenJob(jobs) {
  return address().job || (jobs.find((job) => job.state === "running") || jobs[0] || {job_id: ""}).job_id;
}

// A link to a job keeps how curves are drawn and what is open, and not with which others.
function link(jobId) {
  const made = element("a", jobId);
  made.href = "#" + encodeURIComponent(jobId);
  made.addEventListener("click", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      setAddress({job: jobId, others: [], from: -Infinity, to: Infinity, rank: "", start: ""});
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
  box.defaultChecked = job.job_id === chosen || others.includes(job.job_id);  // the attribute: rows are compared by those
  box.disabled = job.job_id === chosen || (!box.checked && others.length + 1 >= kMostRuns);
  box.addEventListener("change", () => {
    const rest = address().others.filter((id) => id !== job.job_id);
    setAddress({job: shownJob, others: box.checked ? [...rest, job.job_id] : rest});
    poll();
  });
  return box;
}

function progressCell(job) {
  const progress = element("progress");
  progress.max = Math.max(1, job.steps);
  progress.value = job.step;
  progress.setAttribute("aria-label", `${job.job_id}: ${job.unit} ${job.step} of ${job.steps}`);
  return textCell(progress, ` ${job.step}/${job.steps}`);
}

function jobCell(job) {
  const made = textCell(link(job.job_id));
  made.classList.add("name");
  return made;
}

function jobRow(job, chosen) {
  const states = element("td");
  states.append(state(job.state));
  if (["wait", "bad"].includes(kTone[job.state]) && job.reason) {
    states.append(element("span", job.reason, "why"));
  }
  const live = job.state === "running";
  const made = row([
    compareBox(job, chosen), jobCell(job), states, progressCell(job), numberCell(job.loss === null ? "" : job.loss.toPrecision(4)),
    numberCell(live && job.tokens_per_second !== null ? short(job.tokens_per_second) : ""), numberCell(job.workers.length || ""),
    textCell(job.owner), textCell(labelsOf(job)), ago(job.create_time),
  ]);
  if (job.job_id === chosen) {
    made.setAttribute("aria-current", "true");
  }
  return made;
}

function showJobs(answer, chosen) {
  const find = address().find;
  const shown = answer.jobs.filter((job) => mentions(job, find));
  fill("jobs", shown.map((job) => jobRow(job, chosen)));
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
    const job = textCell();
    if (worker.job_id) {
      job.append(link(worker.job_id), ` rank ${worker.rank}`);
    }
    const memory = worker.memory_used_bytes !== null ? bytes(worker.memory_used_bytes) + " of " + bytes(worker.memory_bytes) : "";
    const online = worker.state !== "offline" && worker.state !== "lost";
    return row([
      textCell(worker.worker_id), states, job, textCell(worker.device_model || worker.device), textCell(worker.host), numberCell(online ? memory : ""),
      numberCell(online && worker.utilization_ratio !== null ? Math.round(100 * worker.utilization_ratio) + " %" : ""),
      numberCell(online && worker.power_watts !== null ? worker.power_watts.toFixed(0) + " W" : ""),
      numberCell(online && worker.temperature_celsius !== null ? worker.temperature_celsius.toFixed(0) + " °C" : ""),
      ago(worker.last_seen_time),
    ]);
  }));
  byId("workers-note").textContent = answer.workers.length === 0 ? "No worker has dialled in yet." : "";
}

// The inputs, by id: what of the address they change, and their property that says it. The last are those of the log.
const kInputs = {
  axis: "value", smooth: "value", log: "checked", find: "value", rank: "value", start: "value", lines: "value",
};

// The inputs say what the address says; one that is being changed is left alone.
function showOptions(view) {
  for (const [id, property] of Object.entries(kInputs)) {
    if (document.activeElement !== byId(id)) {
      byId(id)[property] = property === "checked" ? view[id] : String(view[id]);
    }
  }
  for (const section of document.querySelectorAll("details")) {
    section.open = view.open.includes(section.id);
  }
  byId("whole").hidden = view.from === -Infinity && view.to === Infinity;
}

async function get(path) {
  const response = await fetch("/api/v1/" + path, {cache: "no-store", signal: AbortSignal.timeout(kTimeoutMs)});
  const answer = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(answer.error ? answer.error.message : `HTTP ${response.status}`), {status: response.status});
  }
  return answer;
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
    shownJob = chosen;
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

// An input changes the address and then the page: `show` is redraw, or poll where something else is to be read.
function watchInput(id, event, show, also = {}) {
  byId(id).addEventListener(event, () => {
    const given = byId(id)[kInputs[id]];
    setAddress({[id]: kInputs[id] === "checked" ? given : kAddress[id].read(given), ...also});
    show();
  });
}

function watchOptions() {
  const draw = () => redraw();  // as it is then
  watchInput("axis", "change", draw, {from: -Infinity, to: Infinity});
  watchInput("smooth", "change", draw);
  watchInput("log", "change", draw);
  watchInput("find", "input", poll);
  for (const id of ["rank", "start", "lines"]) {
    watchInput(id, "change", poll);
  }
  byId("whole").addEventListener("click", () => {
    setAddress({from: -Infinity, to: Infinity});
    redraw();
  });
  for (const form of document.querySelectorAll("form")) {
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  document.querySelectorAll("details").forEach(watchSection);
}

// What is open stands in the address: at the click, because a poll may come before the section has opened, and whenever the browser opens one.
function watchSection(section) {
  const note = (open) => {
    const others = address().open.filter((id) => id !== section.id);
    if (open !== address().open.includes(section.id)) {
      setAddress({open: open ? [...others, section.id] : others});
      poll();
    }
  };
  section.querySelector("summary").addEventListener("click", () => note(!section.open));
  section.addEventListener("toggle", () => note(section.open));
}

watchOptions();
window.addEventListener("hashchange", poll);
document.addEventListener("visibilitychange", poll);
setInterval(poll, kPollMs);
poll();
