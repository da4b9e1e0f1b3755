"use strict";
// Everything that comes from outside is put into the page by textContent: never as HTML.

const at = (id) => document.getElementById(id);
const TRIES = 3; // of a request while the server is busy
const LONGEST_LINK = 30_000; // characters
let models = {}; // by their names
let latest = 0; // number of the last request for the text, so that late answers do not replace newer ones

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

const count = (n) => n.toLocaleString("en");
const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

async function ask(path, body) {
  const headers = {};
  if (at("key").value) headers["X-API-Key"] = at("key").value;
  const options = { headers };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.method = "POST";
    options.body = JSON.stringify(body);
  }
  for (let tries = 1; ; tries += 1) {
    const response = await fetch(path, options);
    const seconds = Number(response.headers.get("Retry-After"));
    if (seconds && tries < TRIES) {
      await new Promise((go) => { setTimeout(go, 1000 * seconds); });
      continue;
    }
    if (response.status === 401) at("key-choice").hidden = false;
    const value = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(value.detail || `${response.status} ${response.statusText}`);
    return value;
  }
}

const model = () => models[at("model").value] || { fields: [], threshold: 0, trees: 0 };
const limit = (id) => Math.min(100, Math.max(1, Number.parseInt(at(id).value, 10) || 10));

// The name of a label with its key. In a model with names, the key of a label without one is not shown as its name.
function named(label) {
  const nameless = label.name === label.label;
  const box = element("span");
  box.append(nameless && model().named ? element("span", "no name", "name soft") : element("span", label.name, "name"));
  if (!nameless || model().named) box.append(" ", element("span", label.label, "key"));
  return box;
}

// --- tabs ---

const tabs = () => [...at("tabs").children].filter((tab) => !tab.hidden);
const opened = {}; // what to do when a tab is opened, by the id of its panel

function openTab(tab) {
  for (const other of at("tabs").children) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    at(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  (opened[tab.getAttribute("aria-controls")] || (() => {}))();
}

at("tabs").addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) openTab(tab);
});
at("tabs").addEventListener("keydown", (event) => {
  const all = tabs();
  const here = all.indexOf(event.target);
  const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 }[event.key];
  if (next === undefined || here < 0) return;
  event.preventDefault();
  const tab = all[(next + all.length) % all.length];
  tab.focus();
  openTab(tab);
});

// --- the text: a box for each field of the model ---

const boxes = () => [...at("boxes").querySelectorAll("textarea")];

function makeBoxes() {
  const old = new Map(boxes().map((box) => [box.name, box.value]));
  const fields = model().fields.length ? model().fields : [""];
  at("boxes").replaceChildren(...fields.flatMap((field, i) => {
    const label = element("label", field || "Text");
    const box = element("textarea");
    box.id = `box-${i}`;
    box.name = field;
    label.htmlFor = box.id;
    box.rows = fields.length === 1 ? 14 : i === 0 ? 2 : 7;
    box.spellcheck = false;
    box.placeholder = fields.length === 1 ? "Type or paste a text" : "";
    box.value = old.get(field) || "";
    return [label, box];
  }));
  const lost = [...old].filter(([name]) => !fields.includes(name)).map(([, text]) => text).filter(Boolean);
  if (lost.length && boxes().every((box) => !box.value)) boxes().at(-1).value = lost.join("\n");
}

// A string, or an object of fields; null: there is no text.
function written() {
  const filled = boxes().filter((box) => box.value.trim());
  if (!filled.length) return null;
  return model().fields.length ? Object.fromEntries(filled.map((box) => [box.name, box.value])) : filled[0].value;
}

async function predict() {
  const text = written();
  latest += 1;
  const number = latest;
  if (text === null) {
    at("results").replaceChildren();
    at("status").textContent = "Labels appear here while you type.";
    forgetReasons(null);
    return;
  }
  try {
    const answer = await ask("predict", { text, k: limit("k"), model: at("model").value });
    if (number !== latest) return;
    const labels = answer.results[0];
    at("results").replaceChildren(...labels.flatMap((label, i) => labelItems(label, text, labels[i - 1])));
    forgetReasons(text);
    const best = labels.length ? `, best: ${labels[0].name}` : ": no word of the text is in the model";
    at("status").textContent = `${counted(labels.length, "label")}${best}`;
  } catch (error) {
    if (number === latest) at("status").textContent = `Error: ${error.message}`;
  }
}

// A label; the first one below the threshold comes after a line.
function labelItems(label, text, before) {
  const item = element("li", undefined, label.predicted ? "label" : "label below");
  const why = whyButton(label, text);
  const meter = element("meter");
  meter.max = 1;
  meter.value = label.score;
  meter.setAttribute("aria-hidden", "true"); // the number beside it has the same content
  item.append(named(label), element("span", label.score.toFixed(3), "score"), why.button, meter, why.panel);
  if (label.predicted || (before && !before.predicted)) return [item];
  return [element("li", `Below the threshold ${model().threshold.toFixed(3)}: not predicted`, "line"), item];
}

let timer;
function soon(call, milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(call, milliseconds);
}

// --- a link to the text and the model ---

// In the part behind "#", which browsers do not send to the server.
function linkTo() {
  const query = new URLSearchParams({ model: at("model").value, k: limit("k") });
  for (const box of boxes()) if (box.value) query.set(box.name ? `text.${box.name}` : "text", box.value);
  return `${location.origin}${location.pathname}#${query}`;
}

async function share() {
  const link = linkTo();
  if (link.length > LONGEST_LINK) {
    at("share-status").textContent = `The text is too long for a link: at most ${count(LONGEST_LINK)} characters.`;
    return;
  }
  history.replaceState(null, "", link);
  const copied = await (navigator.clipboard ? navigator.clipboard.writeText(link) : Promise.reject(new Error()))
    .then(() => true, () => false);
  at("share-status").textContent = copied ? "The link is copied." : "The link is in the address bar.";
}

function readLink() {
  const query = new URLSearchParams(location.hash.slice(1));
  if (models[query.get("model")]) at("model").value = query.get("model");
  if (query.get("k")) at("k").value = query.get("k");
  makeBoxes();
  for (const box of boxes()) {
    const text = query.get(box.name ? `text.${box.name}` : "text");
    if (text !== null) box.value = text;
  }
}

function changed() {
  const { name, system, labels } = model();
  at("about").textContent = name ? `${name}: ${system}, ${counted(labels, "label")}.` : "";
  at("tab-tree").hidden = !model().trees;
  const tab = at("tabs").querySelector("[aria-selected=true]");
  openTab(tab.hidden ? at("tab-try") : tab);
  return predict();
}

async function start() {
  try {
    const found = (await ask("models")).models;
    models = Object.fromEntries(found.map((one) => [one.name, one]));
    at("model").replaceChildren(...found.map((one) => element("option", one.name)));
    at("model-choice").hidden = found.length < 2;
    readLink();
    await changed();
  } catch (error) {
    at("status").textContent = `Error: ${error.message}`;
  }
}

at("boxes").addEventListener("input", () => soon(predict, 120));
at("k").addEventListener("input", () => soon(predict, 120));
at("share").addEventListener("click", share);
at("model").addEventListener("change", () => { makeBoxes(); changed(); });
at("key").addEventListener("change", start);
window.addEventListener("hashchange", () => { readLink(); changed(); });
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("DOMContentLoaded", start); // after the other scripts
