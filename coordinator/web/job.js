// What is known of one job: facts, events, and sections that are read while they are open.
"use strict";

function showEvents(answer) {
  fill("events", answer.events.map((event) => {
    const changed = event.from_state !== event.to_state;
    const time = element("time", timeText(event.time));
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
  const { planned = {}, measured = {} } = plan;
  const memory = ["Memory, of plan", ofPlan(measured.memory_bytes, planned.memory_bytes, bytes)];
  if (plan.unknown) {
    return [["Plan", "none: " + plan.unknown], ...(planned.memory_bytes ? [memory] : [])];
  }
  return [
    ["Tokens/s, of plan", ofPlan(measured.tokens_per_second, planned.tokens_per_second, short)],
    ["Watts a GPU, of plan", ofPlan(measured.watts, planned.watts, (watts) => watts.toFixed(0))],
    memory,
    ["Planned for", `${plan.gpus} × ${plan.gpu}${plan.calibrated ? "" : ", by its data sheet"}`],
  ];
}

function showFacts(job, rewinds) {
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
    ...job.sources.map((text) => ["Source", text]),
    ...job.evaluations.map((text) => ["Evaluation", text]),
  ];
  replace(byId("job-facts"), facts.filter(([, value]) => value).map(([name, value]) => {
    const made = element("div");
    const shown = element("dd");
    shown.append(value);
    made.append(element("dt", name), shown);
    return made;
  }));
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
async function showSpec(job, ids) {
  const files = await Promise.all(ids.map(async (id) =>
    keysOf((id === ids[0] ? job : await get("jobs/" + encodeURIComponent(id))).job.spec)));
  const paths = [...new Set(files.flatMap((file) => Object.keys(file)))];
  const shown = paths.filter((path) => files.length === 1 || files.some((file) => file[path] !== files[0][path]));
  replace(byId("spec-head"), ["Key", ...ids].map((text) => {
    const made = element("th", text);
    made.scope = "col";
    return made;
  }));
  fill("spec-rows", shown.map((path) => row([path, ...files.map((file) => file[path] ?? "unset")].map((text) => textCell(text)))));
  byId("spec-note").textContent = files.length === 1 ? "Tick other jobs in the table to see where they differ."
    : `${shown.length} of ${paths.length} keys differ.`;
}

function showCommands(ids) {
  const job = ids[0];
  const commands = [`jobctl describe ${job}`, `jobctl logs -f ${job}`, `jobctl metrics ${ids.join(" ")} --plot loss,tok_s`,
    `jobctl pause ${job}`, `jobctl resume ${job} --set train.steps=N`, `jobctl rerun ${job} --set optimizer.lr=LR`,
    ...ids.slice(1).map((other) => `jobctl diff ${job} ${other}`)];
  replace(byId("command-list"), commands.map((command) => {
    const made = element("li");
    made.append(copyable(command));
    return made;
  }));
}

// The log as it is shown: of which question, and how far it was read.
let shownLog = {question: "", cursor: 0, more: false};

function logLine(line) {
  const time = line.time === null ? "" : new Date(line.time * 1000).toLocaleTimeString() + " ";
  return element("span", `${time}${line.epoch}/${line.rank} ${line.text}\n`, "level-" + line.level);
}

// The newest lines; from then on only those that are new are asked for.
async function showLog(job) {
  const {rank, start, lines} = address();
  const question = `tail=${lines}` + (rank === "" ? "" : `&rank=${rank}`) + (start === "" ? "" : `&epoch=${start}`);
  const asked = `${job.job_id} ${job.create_time} ${question}`;
  const box = byId("log-lines");
  if (shownLog.question !== asked) {
    shownLog = {question: asked, cursor: 0, more: false};
    box.replaceChildren();
  }
  const answer = await get(`jobs/${encodeURIComponent(job.job_id)}/logs?${question}&after=${shownLog.cursor}`);
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
  // Lines between those shown and these are left out.
  if (answer.more && shownLog.cursor > 0) {
    box.replaceChildren();
  }
  box.append(...answer.lines.map(logLine));
  while (box.children.length > lines) {
    box.firstElementChild.remove();
    shownLog.more = true;
  }
  shownLog.cursor = answer.cursor;
  shownLog.more ||= answer.more;
  if (atEnd && answer.lines.length > 0) {
    box.scrollTop = box.scrollHeight;
  }
  byId("logs-note").textContent = box.children.length === 0 ? "No lines."
    : shownLog.more ? `Older lines are left out; jobctl logs ${job.job_id} has all that are kept.` : "";
}

function wideCell(content) {
  const made = element("td", null, "wide");
  made.append(content);
  return made;
}

async function showCheckpoints(job) {
  const path = "jobs/" + encodeURIComponent(job.job_id);
  const [{checkpoints}, {evaluations}] = await Promise.all([get(path + "/checkpoints"), get(path + "/evaluations")]);
  const foundOf = (step) => evaluations.filter((each) => each.step === step).map((each) => each.text).join("; ");
  fill("checkpoint-rows", checkpoints.map((each) => row([
    numberCell(each.step), numberCell(each.epoch), timeText(each.create_time), numberCell(bytes(each.bytes)),
    numberCell(each.validation_loss === null ? "" : number(each.validation_loss)), textCell(foundOf(each.step)), wideCell(copyable(each.path)),
  ])));
  byId("checkpoints-note").textContent = checkpoints.length === 0 ? "None is recorded." : "";
}

async function showEvaluations(job) {
  const answer = await get(`jobs/${encodeURIComponent(job.job_id)}/evaluations`);
  fill("evaluation-rows", answer.evaluations.map((each) => row([
    numberCell(each.step), each.by === job.job_id ? "this job" : link(each.by), wideCell(each.text),
  ])));
  byId("evaluations-note").textContent = answer.more ? "Older ones are left out."
    : answer.evaluations.length === 0 ? "Nothing was evaluated." : "";
}

async function showSamples(job) {
  fill("sample-rows", job.samples.map((sample) => row([numberCell(sample.step), wideCell(sampleText(sample))])));
  byId("samples-note").textContent = job.samples.length === 0 ? "train.samples writes texts at each evaluation; there are none." : "";
}

// The sections that can be opened, by the id of their element: what fills them. `ids`: the runs compared, the job's first.
const kSections = {
  spec: showSpec, logs: showLog, checkpoints: showCheckpoints, evaluations: showEvaluations, samples: showSamples,
  commands: (job, ids) => showCommands(ids),
};

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
  showFacts(job, answers.get(chosen).rewinds);
  showEvents(events);
  const open = Object.keys(kSections).filter((id) => address().open.includes(id));
  await Promise.all(open.map((id) => kSections[id](job, [...answers.keys()])));
}
