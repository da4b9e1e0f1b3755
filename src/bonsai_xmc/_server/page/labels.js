"use strict";
// All labels, and the label trees. As in app.js, nothing from outside is put into the page as HTML.

const BRANCH = 100; // children in one request

async function browse(more) {
  const offset = more ? at("all").children.length : 0;
  const query = new URLSearchParams({ q: at("search").value, offset, limit: 20, model: at("model").value });
  try {
    const answer = await ask(`labels?${query}`);
    const items = answer.labels.map((label) => {
      const item = element("li");
      item.append(named(label), element("span", label.rows === null ? "" : counted(label.rows, "text"), "score"));
      return item;
    });
    if (more) at("all").append(...items);
    else at("all").replaceChildren(...items);
    at("more").hidden = at("all").children.length >= answer.total;
    const known = answer.labels.length && answer.labels[0].rows !== null;
    at("found").textContent = counted(answer.total, "label") + (known ? ", with the number of training texts of each" : "");
  } catch (error) {
    at("found").textContent = `Error: ${error.message}`;
  }
}

let browsed; // the model whose labels are shown
opened.labels = () => {
  if (browsed !== at("model").value) browse(false);
  browsed = at("model").value;
};

at("search").addEventListener("input", () => soon(() => browse(false), 150));
at("more").addEventListener("click", () => browse(true));

// --- trees, opened node by node ---

async function children(node, offset) {
  const query = new URLSearchParams({ tree: at("tree").value || 0, node, offset, limit: BRANCH, model: at("model").value });
  return ask(`tree?${query}`);
}

let grown; // the model whose trees are shown
opened["tree-part"] = async () => {
  if (grown === at("model").value) return;
  grown = at("model").value;
  at("tree-root").replaceChildren();
  at("tree").replaceChildren(...Array.from({ length: model().trees }, (_, i) => {
    const option = element("option", String(i + 1));
    option.value = i;
    return option;
  }));
  at("tree-choice").hidden = model().trees < 2;
  await fill(at("tree-root"), 0);
};

// Appends the next children of a node to its list.
async function fill(list, node) {
  try {
    const shown = list.querySelectorAll(":scope > li:not(.more)").length;
    const answer = await children(node, shown);
    const more = list.querySelector(":scope > li.more");
    if (more) more.remove();
    list.append(...answer.children.map((child) => (child.node === null ? labelOf(child) : cluster(child))));
    const left = answer.total - shown - answer.children.length;
    if (left > 0 && answer.children.length) list.append(moreOf(list, node, left));
    at("tree-status").textContent = "";
  } catch (error) {
    at("tree-status").textContent = `Error: ${error.message}`;
  }
}

function labelOf(child) {
  const item = element("li", undefined, "leaf");
  item.append(named(child));
  return item;
}

function moreOf(list, node, left) {
  const item = element("li", undefined, "more");
  const button = element("button", `${count(left)} more`);
  button.type = "button";
  button.addEventListener("click", () => fill(list, node));
  item.append(button);
  return item;
}

function cluster(child) {
  const item = element("li", undefined, "cluster");
  const button = element("button", undefined, "open");
  button.type = "button";
  button.append(element("span", child.name), " ", element("span", counted(child.labels, "label"), "key"));
  button.setAttribute("aria-expanded", "false");
  const list = element("ul");
  list.hidden = true;
  button.addEventListener("click", async () => {
    list.hidden = !list.hidden;
    button.setAttribute("aria-expanded", String(!list.hidden));
    if (!list.hidden && !list.firstChild) await fill(list, child.node);
  });
  item.append(button, list);
  return item;
}

at("tree").addEventListener("change", () => {
  at("tree-root").replaceChildren();
  fill(at("tree-root"), 0);
});
