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
    const heading = element("div"), labels = plural(tree.inside.length, "label");
    const facts = ` ${labels}, ${plural(tree.nodes, "node")}, ${plural(tree.depth, "level")}`;
    heading.append(element("h2", tree.name), element("span", facts, { className: "faint" }));
    this.nav = element("nav", undefined, { className: "path" });
    this.nav.setAttribute("aria-label", `Place in ${tree.name}`);
    this.stage = element("div", undefined, { className: "stage" });
    this.canvas = element("canvas", undefined, { tabIndex: 0 });
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "zoomable circles");
    this.canvas.setAttribute("aria-label", `${tree.name}: ${labels} as nested circles`);
    this.canvas.setAttribute("aria-describedby", "help");
    const zoom = element("div", undefined, { className: "zoom" });
    for (const [sign, name, act] of [
      ["+", "Zoom in", () => this.zoomBy(STEP)],
      ["−", "Zoom out", () => this.zoomBy(1 / STEP)],
      ["⌂", "Show all", () => this.goTo(0)],
    ]) {
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
      const pixels = event.deltaY * [1, 16, 400][event.deltaMode];  // it may be in lines or pages
      const speed = event.ctrlKey ? 0.01 : 0.002;  // with Ctrl it is the pinch of a touchpad, in small steps
      this.zoomAt(this.place(event), Math.exp(-speed * Math.max(-300, Math.min(300, pixels))));
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
    const mean = (list, axis) => list.reduce((sum, place) => sum + place[axis], 0) / list.length;
    const middle = list => ({ x: mean(list, "x"), y: mean(list, "y") });
    const [from, to] = [middle(old), middle(now)];
    this.view.x -= (to.x - from.x) / this.view.scale;
    this.view.y -= (to.y - from.y) / this.view.scale;
    if (now.length > 1) {
      const spread = list => Math.hypot(list[0].x - list[1].x, list[0].y - list[1].y) || 1;
      this.zoomAt(to, spread(now) / spread(old));
    }
    this.paint();
  }

  /* one step towards the circle at the click; outside of the current circle, one step out */
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
      ArrowDown: () => this.goTo(tree.childrenOf(focus)[0] ?? focus),
      ArrowUp: () => this.goTo(Math.max(tree.parent[focus], 0)),
      ArrowRight: () => this.goTo(beside(1)),
      ArrowLeft: () => this.goTo(beside(-1)),
      Enter: () => tree.isLabel(focus) ? select(tree.labelOf(focus)) : acts.ArrowDown(),
      Home: () => this.goTo(0),
      "+": () => this.zoomBy(STEP),
      "-": () => this.zoomBy(1 / STEP),
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
    this.draw();  // immediately: resizing clears the canvas
  }
  viewOf(i) {
    const { tree } = this, room = Math.min(this.width, this.height) * (tree.isLabel(i) ? 0.18 : 0.485);
    return { x: tree.x[i], y: tree.y[i], scale: room / Math.max(tree.radius[i], 1) };
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
      // around one fixed point, so that the path is straight
      const zooms = Math.abs(to.scale / from.scale - 1) > 1e-3;
      const part = zooms ? (1 / scale - 1 / from.scale) / (1 / to.scale - 1 / from.scale) : eased;
      this.view = { x: from.x + part * (to.x - from.x), y: from.y + part * (to.y - from.y), scale };
      this.moving = t < 1 ? requestAnimationFrame(step) : 0;
      this.draw();
    };
    this.moving = requestAnimationFrame(step);
  }
  stop() { cancelAnimationFrame(this.moving); this.moving = 0; }
  zoomBy(factor) {
    this.zoomAt({ x: this.width / 2, y: this.height / 2 }, factor);
    this.refocus();
  }
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
      const go = () => { this.goTo(i); this.canvas.focus(); };  // the button itself is replaced
      const button = element("button", tree.caption(i), { type: "button", onclick: go });
      if (i === this.focus) button.setAttribute("aria-current", "location");
      if (i === this.marked) button.className = "marked";
      this.nav.append(button);
    }
    if (missing.has(this)) this.nav.append(" · this tree does not contain the label");
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
    const onScreen = (value, centre, size) => (value - centre) * view.scale + size / 2;
    const at = i =>
      [onScreen(tree.x[i], view.x, width), onScreen(tree.y[i], view.y, height), tree.radius[i] * view.scale];
    const levels = [], labels = [], todo = [0];
    while (todo.length) {
      const i = todo.pop(), [x, y, r] = at(i);
      if (x + r < 0 || y + r < 0 || x - r > width || y - r > height || r < 0.4) continue;
      (tree.isLabel(i) ? labels : levels[tree.level[i]] ??= []).push([i, x, y, r]);
      const below = tree.childrenOf(i), isLeaf = tree.isLabel(below[0]);
      // labels too small to tell apart are drawn as one disc: frames with many of them would be slow
      if (isLeaf && tree.radius[below[0]] * view.scale < 1.5) labels.push([i, x, y, r * 0.94]);
      else if (r >= 1) for (const child of below) todo.push(child);
    }
    // the circles of a level do not overlap: they share paths, but short ones, which are quicker to fill
    const trace = (list, finish) => {
      for (let start = 0; start < list.length; start += 200) {
        pen.beginPath();
        for (const [, x, y, r] of list.slice(start, start + 200)) { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 7); }
        finish();
      }
    };
    const fill = (list, colour) => {
      pen.fillStyle = colour;
      trace(list, () => pen.fill());
      Object.assign(pen, { globalAlpha: 0.45, lineWidth: 0.7, strokeStyle: colours.edge });
      trace(list.filter(([, , , r]) => r > 5), () => pen.stroke());
      pen.globalAlpha = 1;
    };
    levels.forEach((list, level) => fill(list, colours.levels[level]));
    fill(labels, colours.leaf);
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
      for (const i of tree.pathTo(this.marked).slice(1, -1)) ring(i, 2, 0);
      ring(this.marked, 3, 7);
    }
    if (this.hovered >= 0) ring(this.hovered, 2, 3);
    if (tree.isLabel(this.focus)) ring(this.focus, 3, 3);
    for (const [i, x, y, r] of labels) {
      if (r > 16 && tree.isLabel(i)) write(pen, names[tree.labelOf(i)], x, y, r, colours.leafInk);
    }
    const below = this.moving ? [] : tree.childrenOf(this.focus);
    for (const i of below) {
      const [x, y, r] = at(i);
      if (r < 38 || tree.isLabel(i)) continue;
      const text = names[tree.frequent(i)[0]] + (tree.size(i) > 1 ? "\u00a0…" : "");
      write(pen, text, x, y, Math.min(r, 110), colours.ink, colours.halo);
    }
  }
}

/* Text within a circle, in lines; what does not fit ends in “…”. */
function write(pen, text, x, y, radius, colour, halo) {
  const words = text.split(" "), room = 1.75 * radius;
  const font = size => `${halo ? "600 " : ""}${size}px system-ui, sans-serif`;
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
    const last = lines.length - 1, longer = lines[last] ? `${lines[last]} ${word}` : word;
    if (!lines[last] || pen.measureText(longer).width <= room) lines[last] = longer;
    else lines.push(word);
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
    if (halo) {
      Object.assign(pen, { lineWidth: 4, lineJoin: "round", strokeStyle: halo });
      pen.strokeText(part, x, y + offset);
    }
    pen.fillStyle = colour;
    pen.fillText(part, x, y + offset);
  });
}
