"use strict";
// Why a label, and why not another. As in app.js, nothing from outside is put into the page as HTML.

const STEPS = 5; // strengths of a highlight
const FAINT = 0.05; // effects below this part of the largest are not highlighted
let explained = null; // the text that the labels on the page are for

const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(3);
const side = (x) => (x < 0 ? "down" : "up");

// A button that opens and closes a panel, which is filled when it is first opened.
function whyButton(label, text) {
  const button = element("button", "Why?", "ask");
  const panel = element("div", undefined, "why");
  button.type = "button";
  button.setAttribute("aria-label", `Why ${label.name}?`);
  button.setAttribute("aria-expanded", "false");
  panel.setAttribute("role", "region");
  panel.setAttribute("aria-label", `Why ${label.name}`);
  panel.hidden = true;
  button.addEventListener("click", async () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (panel.hidden || panel.firstChild) return;
    try {
      const answer = await ask("explain", { text, label: label.label, features: 10, model: at("model").value });
      panel.replaceChildren(...reasons(answer.explanation));
      at("status").textContent = `Reasons for ${label.name} are shown below it`;
    } catch (error) {
      panel.replaceChildren(element("p", `Error: ${error.message}`));
    }
  });
  return { button, panel };
}

function reasons(why) {
  if (why.evidence) return why.evidence.flatMap(evidence);
  if (why.members) return why.members.flatMap(member);
  const parts = why.notes.map((note) => element("p", note));
  parts.push(...highlights(why.texts), effects(why), arithmetic(why));
  return parts;
}

// A table of a system that explains its scores in terms of its own.
function evidence(part) {
  const rows = part.rows.map((row) => row.map((value) => (typeof value === "number" ? number(value) : String(value))));
  return [element("h3", part.title), table(part.columns, rows)];
}

// The share of a member of a fusion in the score, and why.
function member(part) {
  const head = element("h3", `${part.name}: ${Math.round(100 * part.share)} % of the score`);
  return [head, ...(part.explanation ? reasons(part.explanation) : [element("p", part.note, "soft")])];
}

// Closed at first: the words with effects are above.
function arithmetic(why) {
  const box = element("details");
  box.append(element("summary", "How the score is computed"));
  box.append(...why.paths.map(path));
  box.append(table(["From margins to the score", "Value"], why.steps.map((step) => [step.text, number(step.value)])));
  return box;
}

const number = (x) => String(Number(x.toPrecision(4))).replace("-", "−");

// The texts with the parts that have effects. Places are in code points; strings of JavaScript are in UTF-16 units.
function highlights(texts) {
  const all = texts.flatMap((text) => text.segments);
  const largest = Math.max(...all.map((segment) => Math.abs(segment.effect)), 1e-12);
  return texts.filter((text) => text.text).map((text) => {
    const points = Array.from(text.text);
    const shown = element("p", undefined, "text");
    if (text.field) shown.append(element("span", text.field, "key"), " ");
    let done = 0;
    for (const segment of text.segments) {
      const strength = Math.abs(segment.effect) / largest;
      if (strength < FAINT) continue;
      shown.append(points.slice(done, segment.begin).join(""));
      const level = Math.min(STEPS, 1 + Math.floor(strength * STEPS));
      const mark = element("mark", points.slice(segment.begin, segment.end).join(""),
        `${side(segment.effect)} s${level} ${segment.kind}`);
      mark.title = signed(segment.effect);
      shown.append(mark);
      done = segment.end;
    }
    shown.append(points.slice(done).join(""));
    return shown;
  });
}

function effects(why) {
  if (!why.lines.length) return element("p", "No word of the text has a weight.");
  const rows = why.lines.map((line) => [
    element("span", signed(line.effect), side(line.effect)), `${Math.round(100 * line.share)} %`, line.name,
    [line.kind, line.where].filter(Boolean).join(", "),
  ]);
  const box = element("div");
  box.append(table(["Effect", "Share", "Feature", "Kind, field"], rows));
  if (why.more) box.append(element("p", `and ${count(why.more)} more`, "soft"));
  return box;
}

function path(part) {
  const box = element("section");
  const left = part.counts ? "" : " (not counted)";
  box.append(element("h4", `Tree ${part.tree + 1}, score of the path ${number(part.score)}${left}`));
  box.append(table(["To", "Margin", "Score"], part.decisions.map((decision) => {
    const to = element("span", decision.about);
    const most = decision.contributions.slice(0, 4).map((c) => `${signed(c.effect)} ${c.name}`).join(", ");
    to.append(element("span", most, "key"));
    return [to, number(decision.margin), number(decision.score)];
  })));
  return box;
}

// Cells are texts or elements.
function table(head, rows) {
  const box = element("table");
  const wide = element("div", undefined, "wide");
  const line = (cells, name) => {
    const row = element("tr");
    for (const cell of cells) {
      const node = element(name);
      if (name === "th") node.scope = "col";
      node.append(cell);
      if (/^[+−]?\d[\d.e−]*( %)?$/.test(node.textContent)) node.className = "number";
      row.append(node);
    }
    return row;
  };
  const top = element("thead");
  top.append(line(head, "th"));
  const body = element("tbody");
  body.append(...rows.map((cells) => line(cells, "td")));
  box.append(top, body);
  wide.append(box);
  return wide;
}

// --- why not another ---

function forgetReasons(text) {
  if (JSON.stringify(text) !== JSON.stringify(explained)) {
    at("why-not-answer").replaceChildren();
    at("why-not-status").textContent = "";
  }
  explained = text;
  at("why-not-part").hidden = text === null || model().kind !== "bonsai";
}

async function whyNot() {
  const label = at("why-not").value.trim();
  if (!label) return;
  const text = explained;
  try {
    const { why_not: answer } = await ask("explain", { text, label, why_not: true, features: 10, model: at("model").value });
    if (text !== explained) return;
    const parts = answer.sentences.map((sentence) => element("p", sentence));
    for (const ahead of answer.ahead) {
      parts.push(element("h3", `Ahead: ${ahead.name}, number ${count(ahead.rank)}, score ${number(ahead.score)}`));
      if (!ahead.lines.length) {
        parts.push(element("p", "No word of the text has a weight for either: the biases of their classifiers decide."));
        continue;
      }
      parts.push(table(["Feature", ahead.name, answer.name, "Difference"], ahead.lines.map((line) => [
        line.name, signed(line.other), signed(line.effect),
        element("span", signed(line.other - line.effect), side(line.effect - line.other)),
      ])));
    }
    if (answer.explanation) {
      parts.push(element("h3", `${answer.name} itself`), ...highlights(answer.explanation.texts));
      parts.push(arithmetic(answer.explanation));
    }
    at("why-not-answer").replaceChildren(...parts);
    at("why-not-status").textContent = answer.rank === null ? `${answer.name} has no score`
      : `${answer.name} is number ${count(answer.rank)} of ${count(answer.n_ranked)}`;
  } catch (error) {
    at("why-not-answer").replaceChildren();
    at("why-not-status").textContent = `Error: ${error.message}`;
  }
}

async function offerLabels() {
  const query = new URLSearchParams({ q: at("why-not").value, limit: 20, model: at("model").value });
  try {
    const answer = await ask(`labels?${query}`);
    const names = answer.labels.map((label) => label.name);
    at("why-not-labels").replaceChildren(...answer.labels.map((label) => {
      const option = element("option");
      const unique = names.indexOf(label.name) === names.lastIndexOf(label.name);
      option.value = unique ? label.name : label.label;
      if (label.label !== label.name) option.label = unique ? label.label : label.name;
      return option;
    }));
  } catch {
    at("why-not-labels").replaceChildren(); // the label can still be typed
  }
}

let offering;
at("why-not").addEventListener("input", () => {
  clearTimeout(offering);
  offering = setTimeout(offerLabels, 150);
});
at("why-not-part").addEventListener("submit", whyNot);
