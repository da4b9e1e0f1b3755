"use strict";
// The label trees, opened node by node. As in app.js, nothing from outside is put into the page as HTML.

const BRANCH = 100; // children that are asked for at once

async function children(node, offset) {
  const query = new URLSearchParams({ tree: at("tree").value || 0, node, offset, limit: BRANCH });
  if (chosen().model) query.set("model", chosen().model);
  return ask(`tree?${query}`);
}

async function showTrees() {
  const n = trees[at("model").value] || 0;
  at("tree-part").hidden = n === 0;
  at("tree-root").replaceChildren();
  at("tree").replaceChildren(...Array.from({ length: n }, (_, i) => {
    const option = element("option", String(i + 1));
    option.value = i;
    return option;
  }));
  at("tree-choice").hidden = n < 2;
  if (n > 0) await fill(at("tree-root"), 0);
}

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
  item.append(element("span", child.name));
  if (child.label !== child.name) item.append(element("span", child.label, "key"));
  return item;
}

function moreOf(list, node, left) {
  const item = element("li", undefined, "more");
  const button = element("button", `${left} more`);
  button.type = "button";
  button.addEventListener("click", () => fill(list, node));
  item.append(button);
  return item;
}

function cluster(child) {
  const item = element("li", undefined, "cluster");
  const button = element("button", undefined, "open");
  const others = child.labels === 1 ? "1 label" : `${child.labels} labels`;
  button.type = "button";
  button.append(element("span", child.name), " ", element("span", others, "key"));
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
