"use strict";
// Everything that comes from outside is put into the page by textContent: never as HTML.

const at = (id) => document.getElementById(id);
const CHUNK = 100; // texts of a file in one request
let trees = {}; // of each model: how many it has
let latest = 0; // number of the last request for the text, so that late answers do not replace newer ones

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

async function ask(path, body) {
  const headers = {};
  if (at("key").value) headers["X-API-Key"] = at("key").value;
  const options = { headers };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.method = "POST";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  if (response.status === 401) at("key-choice").hidden = false;
  const value = await response.json();
  if (!response.ok) throw new Error(value.detail || response.statusText);
  return value;
}

function chosen() {
  const model = at("model").value || undefined;
  const k = Math.min(100, Math.max(1, Number.parseInt(at("k").value, 10) || 10));
  return { model, k };
}

async function predict() {
  const text = at("text").value;
  const number = ++latest;
  if (!text.trim()) {
    at("results").replaceChildren();
    at("status").textContent = "";
    forgetReasons(text);
    return;
  }
  try {
    const answer = await ask("predict", { texts: [text], ...chosen() });
    if (number !== latest) return;
    const labels = answer.results[0];
    at("results").replaceChildren(...labels.map((label) => labelItem(label, text)));
    forgetReasons(text);
    const best = labels.length ? `, best: ${labels[0].name}` : "";
    at("status").textContent = labels.length === 1 ? `1 label${best}` : `${labels.length} labels${best}`;
  } catch (error) {
    if (number === latest) at("status").textContent = `Error: ${error.message}`;
  }
}

function labelItem(label, text) {
  const item = element("li");
  item.append(element("span", label.name, "name"), element("span", label.score.toFixed(3), "score"));
  const why = whyButton(label, text);
  item.append(why.button);
  const meter = element("meter");
  meter.max = 1;
  meter.value = label.score;
  meter.setAttribute("aria-hidden", "true"); // the number says it
  item.append(meter);
  if (label.label !== label.name) item.append(element("span", label.label, "key"));
  item.append(why.panel);
  return item;
}

let timer;
function soon(call, milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(call, milliseconds);
}

// --- a file of texts ---

const cell = (text) => String(text).replace(/[\t\r\n]+/g, " ");

async function predictFile() {
  const file = at("file").files[0];
  if (!file) return;
  const texts = (await file.text()).split(/\r?\n/);
  if (texts[texts.length - 1] === "") texts.pop();
  const lines = ["text\tlabel\tname\tscore\t…"];
  at("download").hidden = true;
  at("progress").hidden = false;
  try {
    for (let begin = 0; begin < texts.length; begin += CHUNK) {
      const part = texts.slice(begin, begin + CHUNK);
      const answer = await ask("predict", { texts: part, ...chosen() });
      part.forEach((text, i) => {
        const cells = answer.results[i].flatMap((l) => [l.label, l.name, l.score.toFixed(4)]);
        lines.push([text, ...cells].map(cell).join("\t"));
      });
      at("progress").value = Math.min(1, (begin + part.length) / texts.length);
    }
    if (at("download").href) URL.revokeObjectURL(at("download").href);
    const content = new Blob([`${lines.join("\n")}\n`], { type: "text/tab-separated-values" });
    at("download").href = URL.createObjectURL(content);
    at("download").hidden = false;
    at("file-status").textContent = `${texts.length} texts are done`;
  } catch (error) {
    at("file-status").textContent = `Error: ${error.message}`;
  }
}

// --- all labels ---

async function browse(more) {
  const offset = more ? at("all").children.length : 0;
  const query = new URLSearchParams({ q: at("search").value, offset, limit: 20 });
  if (chosen().model) query.set("model", chosen().model);
  try {
    const answer = await ask(`labels?${query}`);
    const items = answer.labels.map((label) => {
      const item = element("li");
      item.append(element("span", label.name), element("span", label.rows === null ? "" : `${label.rows} ×`, "score"));
      if (label.label !== label.name) item.append(element("span", label.label, "key"));
      return item;
    });
    if (more) at("all").append(...items);
    else at("all").replaceChildren(...items);
    at("more").hidden = at("all").children.length >= answer.total;
    at("found").textContent = `${answer.total} labels; the number says in how many training texts each occurs`;
  } catch (error) {
    at("found").textContent = `Error: ${error.message}`;
  }
}

async function start() {
  try {
    const { models } = await ask("models");
    at("model").replaceChildren(...models.map((model) => element("option", model.name)));
    at("model-choice").hidden = models.length < 2;
    trees = Object.fromEntries(models.map((model) => [model.name, model.trees]));
    await Promise.all([browse(false), showTrees()]);
  } catch (error) {
    at("status").textContent = `Error: ${error.message}`;
  }
}

at("text").addEventListener("input", () => soon(predict, 120));
at("k").addEventListener("input", () => soon(predict, 120));
at("model").addEventListener("change", () => { predict(); browse(false); showTrees(); });
at("key").addEventListener("change", () => { start().then(predict); });
at("file").addEventListener("change", predictFile);
at("search").addEventListener("input", () => soon(() => browse(false), 150));
at("more").addEventListener("click", () => browse(true));
document.addEventListener("DOMContentLoaded", start); // after the other scripts
