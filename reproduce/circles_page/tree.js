"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const names = data.names.map(name => name.trim() || "(no name)"), counts = data.counts;
const byId = id => document.getElementById(id);
const number = n => n.toLocaleString("en");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const rows = label => counts ? plural(counts[label], "row") : "";
const still = matchMedia("(prefers-reduced-motion: reduce)");
const SHOWN = 5;      // most frequent labels that a description names
const FOUND = 12;     // labels that a search lists
const WHOLE = 1e6;    // radius of a tree in the data
const STEP = 1.6;     // of a zoom by button or key

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
  const depth = Math.max(...data.trees.map(tree => tree.depth));  // shared: a level has the same colour in all trees
  const shade = t => `rgb(${outer.map((c, i) => Math.round(c + t * (inner[i] - c))).join()})`;
  colours = {
    levels: Array.from({ length: depth }, (_, i) => shade(depth > 1 ? i / (depth - 1) : 0.35)),
    leaf: of("leaf"), leafInk: of("leaf-ink"), edge: of("edge"),
    mark: of("mark"), ink: of("ink"), halo: of("halo"),
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
    this.first = new Int32Array(n);  // labels inside a circle are contiguous in `inside`, from first to end
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
    for (const list of this.children) {
      if (!this.isLabel(list[0])) list.sort((a, b) => this.size(b) - this.size(a));
    }
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
      const around = i => Math.hypot(x - this.x[i], y - this.y[i]) <= this.radius[i];
      const inside = next.find(i => this.radius[i] >= least && around(i));
      if (inside === undefined) break;
      found = inside;
      next = this.childrenOf(inside);
    }
    return found;
  }
  caption(i) {
    if (this.isLabel(i)) return names[this.labelOf(i)];
    return i ? plural(this.size(i), "label") : "all labels";
  }
  /* a title, a line and a list */
  describe(i) {
    if (this.isLabel(i)) return [this.caption(i), rows(this.labelOf(i)) || "label", []];
    const below = this.childrenOf(i);
    const inner = below.length === 1 ? "1 child" : `${number(below.length)} children`;
    const kind = this.isLabel(below[0]) ? "leaf" : inner;
    const list = this.frequent(i).map(l => names[l] + (counts ? ` (${number(counts[l])})` : ""));
    if (this.size(i) > list.length) list.push("…");
    const which = counts ? "most frequent" : "among them";
    return [plural(this.size(i), "label"), `level ${this.level[i] + 1}, ${kind}; ${which}:`, list];
  }
}
