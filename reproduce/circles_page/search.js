function showTip(description, event) {
  const tip = byId("tip");
  tip.hidden = !description || !event;
  if (tip.hidden) return;
  const [title, kind, list] = description;
  tip.replaceChildren(element("b", title), element("span", kind, { className: "faint" }));
  if (list.length) {
    const items = element("ul");
    items.append(...list.map(text => element("li", text)));
    tip.append(items);
  }
  const box = tip.getBoundingClientRect();
  const fits = event.clientX + 16 + box.width <= innerWidth;
  const left = fits ? event.clientX + 16 : event.clientX - box.width - 12;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 4))}px`;
}

/* ---- search ------------------------------------------------------------------------------------ */

const missing = new Set();
const fold = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
const folded = names.map(fold);
const query = byId("query"), hits = byId("hits");
let found = [], chosen = -1;

/* names that begin with the query, then names with such a word, then all others that contain it; frequent labels first */
function search(text) {
  const wanted = fold(text.trim()), rank = [];
  if (!wanted) return [];
  folded.forEach((name, label) => {
    const place = name.indexOf(wanted);
    if (place >= 0) rank.push([place === 0 ? 0 : name.includes(" " + wanted) ? 1 : 2, label]);
  });
  const shorter = (a, b) => names[a].length - names[b].length || a - b;
  const better = (a, b) => (counts ? counts[b] - counts[a] : 0) || shorter(a, b);
  rank.sort(([place, a], [other, b]) => place - other || better(a, b));
  return rank.map(([, label]) => label);
}
function list() {
  const all = search(query.value);
  found = all.slice(0, FOUND);
  chosen = found.length ? 0 : -1;
  hits.replaceChildren(...found.map((label, i) => {
    const take = event => { event.preventDefault(); select(label); };
    const item = element("li", undefined, { id: `hit${i}`, onpointerdown: take });
    item.setAttribute("role", "option");
    item.append(element("span", names[label]), element("span", rows(label), { className: "faint" }));
    return item;
  }));
  const rest = all.length - found.length, none = !all.length && query.value.trim();
  if (rest) hits.append(element("li", `and ${number(rest)} more`, { className: "faint" }));
  if (none) hits.append(element("li", "No label name contains this", { className: "faint" }));
  for (const item of hits.children) if (!item.id) item.setAttribute("role", "presentation");
  byId("said").textContent = query.value.trim() ? `${plural(all.length, "label")} found` : "";
  choose(chosen);
  open(hits.children.length > 0);
}
function open(shown) { hits.hidden = !shown; query.setAttribute("aria-expanded", String(shown)); }
function choose(i) {
  chosen = i;
  found.forEach((_, k) => hits.children[k].setAttribute("aria-selected", String(k === i)));
  query.setAttribute("aria-activedescendant", i >= 0 ? `hit${i}` : "");
}
/* marks a label in every tree and goes there */
function select(label) {
  open(false);
  query.value = names[label];
  missing.clear();
  for (const panel of panels) if (!panel.tree.circleOf.has(label)) missing.add(panel);
  for (const panel of panels) panel.mark(label);
  byId("said").textContent = panels.map(({ tree }) => {
    const circle = tree.circleOf.get(label);
    const path = circle === undefined ? ["not there"] : tree.pathTo(circle).map(i => tree.caption(i));
    return `${tree.name}: ${path.join(", then ")}`;
  }).join(". ");
}
function clear() {
  missing.clear();
  for (const panel of panels) { panel.marked = -1; panel.showPath(); panel.paint(); }
}
query.addEventListener("input", () => { if (!query.value) clear(); list(); });
query.addEventListener("blur", () => open(false));
query.addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && found.length) {
    event.preventDefault();
    open(true);
    choose((chosen + step + found.length) % found.length);
  } else if (event.key === "Enter" && chosen >= 0) {
    select(found[chosen]);
  } else if (event.key === "Escape") {
    event.preventDefault();
    if (hits.hidden) { query.value = ""; clear(); }  // the first Escape closes the list
    open(false);
  }
});

/* ---- begin ------------------------------------------------------------------------------------- */

byId("title").textContent = data.title;
byId("note").textContent = data.note;
byId("note").hidden = !data.note;
readColours();
const panels = data.trees.map(tree => new Panel(new Tree(tree)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  panels.forEach(panel => panel.paint());
});
