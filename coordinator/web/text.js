// How values are written, and how elements are made and kept.
"use strict";

const kTellMs = 3000;

// How a value of a unit is written; the server says which unit a metric has.
const kUnits = {
  bytes, ratio: (v) => (100 * v).toFixed(1) + " %", watts: (v) => v.toFixed(0) + " W", celsius: (v) => v.toFixed(0) + " °C", seconds: (v) => short(v) + " s",
};
const kTone = {
  running: "good", succeeded: "good", busy: "busy", idle: "good", starting: "busy", queued: "wait", paused: "wait",
  pausing: "wait", requeueing: "wait", recovering: "wait", cancelling: "wait", unreachable: "wait",
  failed: "bad", lost: "bad", unhealthy: "bad", cancelled: "idle", offline: "idle",
};

const byId = (id) => document.getElementById(id);

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
  if (size === 0) {
    return "0";
  }
  if (size >= 1e4) {
    return short(value);
  }
  return size < 1e-3 ? value.toExponential(2) : value.toPrecision(4);
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

const timeText = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleString());

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

// A cell whose text may be long.
function textCell(...contents) {
  const made = element("td", null, "text");
  made.append(...contents);
  return made;
}

const state = (name) => element("span", name, "state " + (kTone[name] || "idle"));

// What tells a link or a box of a table from the others.
const nameOf = (made) => made.getAttribute("href") || made.getAttribute("aria-label");

// Makes `made` the children of `parent`. Those that are as before stay: a selection, the keyboard's place and the pointer's last there.
function replace(parent, made) {
  const focused = parent.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  made.forEach((node, i) => {
    const old = parent.children[i];
    if (!old) {
      parent.append(node);
    } else if (!old.isEqualNode(node)) {
      old.replaceWith(node);
    }
  });
  while (parent.children.length > made.length) {
    parent.lastElementChild.remove();
  }
  if (focused && !parent.contains(document.activeElement)) {
    [...parent.querySelectorAll("a, input, button")].find((control) => nameOf(control) === focused)?.focus();
  }
}

// The rows of a table's body. Each cell has the name of its column, which a narrow screen shows beside it.
function fill(id, rows) {
  const names = [...byId(id).parentElement.querySelectorAll("th")].map((head) => head.textContent);
  for (const made of rows) {
    [...made.cells].forEach((cell, i) => cell.setAttribute("data-name", names[i] ?? ""));
  }
  replace(byId(id), rows);
}

// A text to copy, and the button that does.
function copyable(text) {
  const made = element("span", null, "copyable");
  const button = element("button", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy ${text}`);
  button.addEventListener("click", () => copy(made.firstElementChild));
  made.append(element("code", text), button);
  return made;
}

async function copy(code) {
  getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    tell("Copied.");
  } catch (error) {
    // Browsers lend the clipboard only to https and to pages of this machine.
    tell("Selected: copy it with Ctrl-C.");
  }
}

function tell(text) {
  byId("told").textContent = text;
  setTimeout(() => byId("told").replaceChildren(), kTellMs);
}
