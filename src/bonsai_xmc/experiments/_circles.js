"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const { names, counts } = data;
const byId = id => document.getElementById(id);
const number = n => n.toLocaleString("en");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const SHOWN = 5;      // most frequent labels that a description names
const FOUND = 12;     // labels that a search lists
const WHOLE = 1e6;    // radius of a tree in the data

function element(tag, text, properties = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;  // never as HTML: names may hold anything
  Object.assign(made, properties);
  return made;
}

/* ---- colours --------------------------------------------------------------------------------- */

let colours;
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const of = name => style.getPropertyValue("--" + name).trim();
  const parts = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  const [outer, inner] = [parts(of("outer")), parts(of("inner"))];
  const depth = Math.max(...data.trees.map(tree => tree.depth));  // shared: a level looks alike everywhere
  const shade = t => `rgb(${outer.map((c, i) => Math.round(c + t * (inner[i] - c))).join()})`;
  colours = {
    levels: Array.from({ length: depth }, (_, i) => shade(depth > 1 ? i / (depth - 1) : 0.35)),
    leaf: of("leaf"), leafInk: of("leaf-ink"), edge: of("edge"), mark: of("mark"), ink: of("ink"), halo: of("halo"),
  };
}

/* ---- a tree ---------------------------------------------------------------------------------- */

class Tree {
  constructor(tree) {
    Object.assign(this, tree);
    const n = this.x.length;
    this.children = Array.from({ length: this.nodes }, () => []);
    for (let i = 1; i < n; i++) if (this.parent[i] >= 0) this.children[this.parent[i]].push(i);
    this.level = new Int32Array(n);
    this.first = new Int32Array(n);  // labels inside are neighbours in `inside`, from first to end
    this.end = new Int32Array(n);
    this.inside = [];
    const todo = [0];
    while (todo.length) {
      const i = todo.pop();
      if (i < 0) { this.end[~i] = this.inside.length; continue; }
      this.level[i] = i ? this.level[this.parent[i]] + 1 : 0;
      this.first[i] = this.inside.length;
      if (this.isLabel(i)) this.inside.push(this.labelOf(i));
      todo.push(~i);
      for (const child of this.childrenOf(i)) todo.push(child);
    }
    for (const list of this.children) if (list.length && !this.isLabel(list[0])) list.sort((a, b) => this.size(b) - this.size(a));
    this.circleOf = new Map(this.label.map((label, i) => [label, this.nodes + i]));
    this.known = new Map();
  }
  isLabel(i) { return i >= this.nodes; }
  labelOf(i) { return this.label[i - this.nodes]; }
  childrenOf(i) { return this.isLabel(i) ? [] : this.children[i]; }
  size(i) { return this.end[i] - this.first[i]; }
  pathTo(i) { const path = []; for (; i >= 0; i = this.parent[i]) path.unshift(i); return path; }
  frequent(i) {
    if (!this.known.has(i)) {
      const labels = this.inside.slice(this.first[i], this.end[i]);
      labels.sort((a, b) => counts ? counts[b] - counts[a] || a - b : a - b);
      this.known.set(i, labels.slice(0, SHOWN));
    }
    return this.known.get(i);
  }
  /* the innermost circle around a point, no smaller than `least` */
  at(x, y, least) {
    let found = -1, next = [0];
    while (next.length) {
      const inside = next.find(i => this.radius[i] >= least && Math.hypot(x - this.x[i], y - this.y[i]) <= this.radius[i]);
      if (inside === undefined) break;
      found = inside;
      next = this.childrenOf(inside);
    }
    return found;
  }
  caption(i) { return this.isLabel(i) ? names[this.labelOf(i)] : i ? plural(this.size(i), "label") : "all labels"; }
  rows(label) { return counts ? plural(counts[label], "row") : ""; }
  describe(i) {
    if (this.isLabel(i)) return [names[this.labelOf(i)], this.rows(this.labelOf(i)) || "label", []];
    const inner = this.childrenOf(i).length && !this.isLabel(this.childrenOf(i)[0]);
    const kind = inner ? plural(this.childrenOf(i).length, "child").replace("childs", "children") : "leaf";
    const list = this.frequent(i).map(l => names[l] + (counts ? ` (${number(counts[l])})` : ""));
    if (this.size(i) > list.length) list.push("…");
    return [plural(this.size(i), "label"), `level ${this.level[i] + 1}, ${kind}${counts ? "; most frequent:" : "; among them:"}`, list];
  }
}

/* ---- a panel: canvas, view, input -------------------------------------------------------------- */

class Panel {
  constructor(tree) {
    this.tree = tree;
    this.focus = 0;
    this.hovered = this.marked = -1;
    this.view = { x: 0, y: 0, scale: 1 };  // centre in the tree's numbers, pixels for one of them
    this.pointers = new Map();
    this.build();
    new ResizeObserver(() => this.resize()).observe(this.stage);
    this.listen();
  }

  build() {
    const { tree } = this;
    const section = element("section", undefined, { className: "panel" });
    const heading = element("div");
    heading.append(element("h2", tree.name), element("span",
      ` ${plural(tree.inside.length, "label")}, ${plural(tree.nodes, "node")}, ${plural(tree.depth, "level")}`, { className: "faint" }));
    this.nav = element("nav", undefined, { className: "path" });
    this.nav.setAttribute("aria-label", `Place in ${tree.name}`);
    this.stage = element("div", undefined, { className: "stage" });
    this.canvas = element("canvas", undefined, { tabIndex: 0 });
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "zoomable circles");
    this.canvas.setAttribute("aria-label", `${tree.name}: ${plural(tree.inside.length, "label")} as nested circles`);
    this.canvas.setAttribute("aria-describedby", "help");
    const zoom = element("div", undefined, { className: "zoom" });
    for (const [sign, name, act] of [["+", "Zoom in", () => this.zoomBy(1.6)], ["−", "Zoom out", () => this.zoomBy(1 / 1.6)], ["⌂", "Show all", () => this.goTo(0)]]) {
      const button = element("button", sign, { type: "button", title: name, onclick: act });
      button.setAttribute("aria-label", `${name}, ${tree.name}`);
      zoom.append(button);
    }
    this.stage.append(this.canvas, zoom);
    section.append(heading, this.nav, this.stage);
    byId("panels").append(section);
    this.showPath();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", event => {
      this.stop();
      try { canvas.setPointerCapture(event.pointerId); } catch { /* the pointer is gone already */ }
      this.pointers.set(event.pointerId, this.place(event));
      if (this.pointers.size === 1) this.pressed = this.place(event);
      if (this.pointers.size > 1) this.pressed = null;
    });
    canvas.addEventListener("pointermove", event => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, event => {
      const click = end === "pointerup" && this.pressed && this.pointers.has(event.pointerId);
      this.pointers.delete(event.pointerId);
      if (click) this.click(this.place(event)); else if (!this.pointers.size) this.refocus();
      if (!this.pointers.size) this.pressed = null;
    });
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1);
      this.zoomAt(this.place(event), Math.exp(-Math.max(-300, Math.min(300, pixels)) * (event.ctrlKey ? 0.01 : 0.002)));
      this.refocus();
      this.hover(this.hit(this.place(event)), event);
    }, { passive: false });
    canvas.addEventListener("keydown", event => this.key(event));
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
  toTree({ x, y }) {
    const { view } = this;
    return { x: view.x + (x - this.width / 2) / view.scale, y: view.y + (y - this.height / 2) / view.scale };
  }
  hit(place, least = 3) {
    const { x, y } = this.toTree(place);
    return this.tree.at(x, y, least / this.view.scale);
  }

  move(event) {
    const place = this.place(event), before = this.pointers.get(event.pointerId);
    if (!before) return this.hover(event.pointerType === "touch" ? -1 : this.hit(place), event);
    if (this.pressed && Math.hypot(place.x - this.pressed.x, place.y - this.pressed.y) < 5) return;
    this.pressed = null;
    this.hover(-1);
    const old = [...this.pointers.values()];
    this.pointers.set(event.pointerId, place);
    const now = [...this.pointers.values()];
    const middle = list => ({ x: list.reduce((s, p) => s + p.x, 0) / list.length, y: list.reduce((s, p) => s + p.y, 0) / list.length });
    const [from, to] = [middle(old), middle(now)];
    this.view.x -= (to.x - from.x) / this.view.scale;
    this.view.y -= (to.y - from.y) / this.view.scale;
    if (now.length > 1) {
      const spread = list => Math.hypot(list[0].x - list[1].x, list[0].y - list[1].y) || 1;
      this.zoomAt(to, spread(now) / spread(old));
    }
    this.paint();
  }

  /* one step towards what was clicked; outside of the present circle, one step out */
  click(place) {
    const { tree } = this, hit = this.hit(place);
    const path = hit < 0 ? [] : tree.pathTo(hit), depth = path.indexOf(this.focus);
    const next = depth < 0 ? undefined : path[depth + 1];
    if (next === undefined) this.goTo(Math.max(tree.parent[this.focus], 0));
    else if (tree.isLabel(next)) select(tree.labelOf(next));
    else this.goTo(next);
  }

  key(event) {
    const { tree, focus } = this;
    const siblings = focus ? tree.childrenOf(tree.parent[focus]) : [0];
    const beside = step => siblings[(siblings.indexOf(focus) + step + siblings.length) % siblings.length];
    const acts = {
      ArrowDown: () => this.goTo(tree.childrenOf(focus)[0] ?? focus), Enter: () => tree.isLabel(focus) ? select(tree.labelOf(focus)) : acts.ArrowDown(),
      ArrowUp: () => this.goTo(Math.max(tree.parent[focus], 0)), Home: () => this.goTo(0),
      ArrowRight: () => this.goTo(beside(1)), ArrowLeft: () => this.goTo(beside(-1)),
      "+": () => this.zoomBy(1.6), "-": () => this.zoomBy(1 / 1.6),
    };
    acts.Escape = acts.Backspace = acts.ArrowUp;
    acts["="] = acts["+"];
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
    const [title, kind, list] = tree.describe(this.focus);
    byId("said").textContent = [title, kind, ...list].join(", ");
  }

  /* ---- the view ---- */

  resize() {
    const old = this.width ? this.view.scale / Math.min(this.width, this.height) : 0;
    const ratio = devicePixelRatio || 1;
    this.width = this.stage.clientWidth;
    this.height = this.stage.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    if (old) this.view.scale = old * Math.min(this.width, this.height); else this.view = this.viewOf(0);
    this.draw();  // at once: a new size has emptied the canvas
  }
  viewOf(i) {
    const { tree } = this, part = tree.isLabel(i) ? 0.18 : 0.485;
    return { x: tree.x[i], y: tree.y[i], scale: part * Math.min(this.width, this.height) / Math.max(tree.radius[i], 1) };
  }
  goTo(i) {
    this.focus = i;
    this.showPath();
    this.hover(-1);
    const from = this.view, to = this.viewOf(i), begin = performance.now();
    this.stop();
    if (still.matches) { this.view = to; return this.paint(); }
    const step = now => {
      const t = Math.min(1, Math.max(0, (now - begin) / 450)), eased = t * t * (3 - 2 * t);
      const scale = from.scale * (to.scale / from.scale) ** eased;
      // about one fixed point, so that the way is a straight one
      const part = Math.abs(to.scale / from.scale - 1) < 1e-3 ? eased : (1 / scale - 1 / from.scale) / (1 / to.scale - 1 / from.scale);
      this.view = { x: from.x + part * (to.x - from.x), y: from.y + part * (to.y - from.y), scale };
      this.moving = t < 1 ? requestAnimationFrame(step) : 0;
      this.draw();
    };
    this.moving = requestAnimationFrame(step);
  }
  stop() { cancelAnimationFrame(this.moving); this.moving = 0; }
  zoomBy(factor) { this.stop(); this.zoomAt({ x: this.width / 2, y: this.height / 2 }, factor); this.refocus(); }
  zoomAt(place, factor) {
    const { x, y } = this.toTree(place), least = 0.3 * Math.min(this.width, this.height) / WHOLE;
    const scale = Math.max(least, Math.min(this.view.scale * factor, least * 20000));
    factor = scale / this.view.scale;
    this.stop();
    this.view = { x: x + (this.view.x - x) / factor, y: y + (this.view.y - y) / factor, scale };
    this.paint();
  }
  /* after free movement: the place is the innermost large circle around the middle */
  refocus() {
    const i = this.hit({ x: this.width / 2, y: this.height / 2 }, 0.3 * Math.min(this.width, this.height));
    this.focus = Math.max(0, this.tree.isLabel(i) ? this.tree.parent[i] : i);
    this.showPath();
  }
  hover(i, event) {
    if (i !== this.hovered) { this.hovered = i; this.paint(); }
    showTip(i < 0 ? null : this.tree.describe(i), event);
  }
  mark(label) {
    this.marked = this.tree.circleOf.get(label) ?? -1;
    this.goTo(this.marked < 0 ? 0 : this.tree.parent[this.marked]);
  }
  showPath() {
    const { tree } = this, marked = this.marked >= 0 ? tree.pathTo(this.marked) : [];
    let path = tree.pathTo(this.focus);
    if (marked.includes(this.focus)) path = marked;
    this.nav.replaceChildren();
    for (const i of path) {
      if (i) this.nav.append(" › ");
      const button = element("button", tree.caption(i), { type: "button", onclick: () => { this.goTo(i); this.canvas.focus(); } });
      if (i === this.focus) button.setAttribute("aria-current", "location");
      if (i === this.marked) button.className = "marked";
      this.nav.append(button);
    }
    if (missing.has(this)) this.nav.append(" · this tree does not hold the label");
  }

  /* ---- drawing ---- */

  paint() {
    if (this.waiting || this.moving) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }
  draw() {
    const { tree, view, width, height } = this, pen = this.canvas.getContext("2d");
    const ratio = this.canvas.width / (width || 1);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const at = i => [(tree.x[i] - view.x) * view.scale + width / 2, (tree.y[i] - view.y) * view.scale + height / 2, tree.radius[i] * view.scale];
    const levels = [], labels = [], todo = [0];
    while (todo.length) {
      const i = todo.pop(), [x, y, r] = at(i);
      if (x + r < 0 || y + r < 0 || x - r > width || y - r > height || r < 0.4) continue;
      (tree.isLabel(i) ? labels : levels[tree.level[i]] ??= []).push([i, x, y, r]);
      const below = tree.childrenOf(i);
      // labels too small to tell apart are one disc: no frame draws more than fit on the screen
      if (below.length && tree.isLabel(below[0]) && tree.radius[below[0]] * view.scale < 1.5) labels.push([i, x, y, r * 0.94]);
      else if (r >= 1) for (const child of below) todo.push(child);
    }
    // the circles of a level do not overlap: one path for all of them
    const fill = (list, colour, edge) => {
      pen.beginPath();
      for (const [, x, y, r] of list) { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 7); }
      pen.fillStyle = colour;
      pen.fill();
      pen.beginPath();
      for (const [, x, y, r] of list) if (r > 5) { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 7); }
      pen.globalAlpha = 0.45;
      pen.lineWidth = 0.7;
      pen.strokeStyle = edge;
      pen.stroke();
      pen.globalAlpha = 1;
    };
    levels.forEach((list, level) => fill(list, colours.levels[level], colours.edge));
    fill(labels, colours.leaf, colours.edge);
    const ring = (i, line, least) => {
      const [x, y, r] = at(i);
      pen.beginPath();
      pen.arc(x, y, Math.max(r, least), 0, 7);
      pen.lineWidth = line;
      pen.strokeStyle = colours.mark;
      pen.stroke();
    };
    if (this.marked >= 0) {
      const [x, y, r] = at(this.marked);
      pen.beginPath();
      pen.arc(x, y, Math.max(r, 3.5), 0, 7);
      pen.fillStyle = colours.mark;
      pen.globalAlpha = r < 14 ? 1 : 0.25;
      pen.fill();
      pen.globalAlpha = 1;
      for (const i of tree.pathTo(this.marked).slice(1)) ring(i, tree.isLabel(i) ? 3 : 2, tree.isLabel(i) ? 7 : 0);
    }
    if (this.hovered >= 0) ring(this.hovered, 2, 3);
    if (tree.isLabel(this.focus)) ring(this.focus, 3, 3);
    for (const [i, x, y, r] of labels) if (r > 16 && tree.isLabel(i)) write(pen, names[tree.labelOf(i)], x, y, r, colours.leafInk);
    const below = tree.childrenOf(this.focus);
    if (!this.moving && below.length && !tree.isLabel(below[0])) for (const i of below) {
      const [x, y, r] = at(i);
      if (r > 38) write(pen, names[tree.frequent(i)[0]] + (tree.size(i) > 1 ? "\u00a0…" : ""), x, y, Math.min(r, 110), colours.ink, colours.halo);
    }
  }
}

/* Text within a circle, in lines; what does not fit ends in “…”. */
function write(pen, text, x, y, radius, colour, halo) {
  const words = text.split(" "), room = 1.75 * radius, font = size => `${halo ? "600 " : ""}${size}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  let size = Math.max(10, Math.min(halo ? 15 : 22, radius * 0.28));
  pen.font = font(size);
  const longest = Math.max(...words.map(word => pen.measureText(word).width));
  size = Math.max(halo ? 10 : 9, Math.min(size, size * room / longest));
  pen.font = font(size);
  const line = size * 1.15;
  const most = Math.max(1, Math.floor(1.3 * radius / line));
  const lines = [""];
  for (const word of words) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(longer).width <= room || !lines.at(-1)) lines[lines.length - 1] = longer; else lines.push(word);
  }
  const shown = lines.slice(0, most);
  if (lines.length > most) shown[most - 1] += " …";
  shown.forEach((part, i) => {
    const offset = (i - (shown.length - 1) / 2) * line;
    const chord = 1.9 * Math.sqrt(Math.max(radius ** 2 - (Math.abs(offset) + line / 2) ** 2, 0));
    if (pen.measureText(part).width > chord) {
      const letters = [...part.replace(/ ?…$/, "")];
      while (letters.length > 1 && pen.measureText(letters.join("") + "…").width > chord) letters.pop();
      part = letters.join("") + "…";
    }
    if (halo) { pen.lineWidth = 4; pen.lineJoin = "round"; pen.strokeStyle = halo; pen.strokeText(part, x, y + offset); }
    pen.fillStyle = colour;
    pen.fillText(part, x, y + offset);
  });
}

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
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 4))}px`;
}

/* ---- search ------------------------------------------------------------------------------------ */

const missing = new Set();
const fold = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
const folded = names.map(fold);
const query = byId("query"), hits = byId("hits");
let found = [], chosen = -1;

/* names that begin so, then those with a word that does, then the others; frequent ones first */
function search(text) {
  const wanted = fold(text.trim()), rank = [];
  if (!wanted) return [];
  folded.forEach((name, label) => {
    const place = name.indexOf(wanted);
    if (place >= 0) rank.push([place === 0 ? 0 : name.includes(" " + wanted) ? 1 : 2, label]);
  });
  rank.sort((a, b) => a[0] - b[0] || (counts ? counts[b[1]] - counts[a[1]] : 0) || names[a[1]].length - names[b[1]].length || a[1] - b[1]);
  return rank.map(([, label]) => label);
}
function list() {
  const all = search(query.value);
  found = all.slice(0, FOUND);
  chosen = found.length ? 0 : -1;
  hits.replaceChildren(...found.map((label, i) => {
    const item = element("li", undefined, { id: `hit${i}`, onpointerdown: event => { event.preventDefault(); select(label); } });
    item.setAttribute("role", "option");
    item.append(element("span", names[label]), element("span", counts ? plural(counts[label], "row") : "", { className: "faint" }));
    return item;
  }));
  if (all.length > found.length) hits.append(element("li", `and ${number(all.length - found.length)} more`, { className: "faint" }));
  if (!all.length && query.value.trim()) hits.append(element("li", "No label has this in its name", { className: "faint" }));
  for (const item of hits.children) if (!item.id) item.setAttribute("role", "presentation");
  byId("said").textContent = query.value.trim() ? `${plural(all.length, "label")} found` : "";
  choose(chosen);
  open(hits.children.length > 0);
}
function open(shown) { hits.hidden = !shown; query.setAttribute("aria-expanded", String(shown)); }
function choose(i) {
  chosen = i;
  found.forEach((_, k) => hits.children[k].setAttribute("aria-selected", String(k === i)));
  if (i >= 0) query.setAttribute("aria-activedescendant", `hit${i}`); else query.removeAttribute("aria-activedescendant");
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
    return `${tree.name}: ${circle === undefined ? "not there" : tree.pathTo(circle).map(i => tree.caption(i)).join(", then ")}`;
  }).join(". ");
}
function clear() {
  missing.clear();
  for (const panel of panels) { panel.marked = -1; panel.showPath(); panel.paint(); }
}
query.addEventListener("input", () => { if (!query.value) clear(); list(); });
query.addEventListener("focus", () => { if (found.length && query.value && names[found[chosen]] !== query.value) open(true); });
query.addEventListener("blur", () => open(false));
query.addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && found.length) { event.preventDefault(); open(true); choose((chosen + step + found.length) % found.length); }
  else if (event.key === "Enter" && chosen >= 0) select(found[chosen]);
  else if (event.key === "Escape") { event.preventDefault(); if (hits.hidden) { query.value = ""; clear(); } open(false); }
});

/* ---- begin ------------------------------------------------------------------------------------- */

byId("title").textContent = data.title;
byId("note").textContent = data.note;
byId("note").hidden = !data.note;
readColours();
const panels = data.trees.map(tree => new Panel(new Tree(tree)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); panels.forEach(panel => panel.paint()); });
