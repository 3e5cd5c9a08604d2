// Everything with text and handles: builds the page's parts and the list of cells. Nothing here
// draws on the canvas.

// JupyterLab takes arrow keys, digits and signs for its shortcuts unless the element says so.
const KEEP_KEYS = { "data-lm-suppress-shortcuts": "true" };

// What each mode shows when it is chosen; the check boxes change it afterwards.
const MODES = {
  outlines: { label: "Outlines", title: "Outlines of both runs", lines: true, opacity: 1 },
  curtain: { label: "Curtain", title: "A left of the handle, B right", lines: true, opacity: 1 },
  blink: { label: "Blink", title: "A and B in turn", lines: true, opacity: 1 },
  categories: { label: "Difference", title: "Only what differs", areas: true, opacity: 0.9 },
  agreement: { label: "Agreement", title: "How many of all runs agree", votes: true, opacity: 0.85 },
};

// Each kind of change: its sign for those who see no colours, its colour, and what it says.
const KINDS = {
  lost: { sign: "\u2212", colour: "only_a", says: "a cell of A that B does not have" },
  gained: { sign: "+", colour: "only_b", says: "a cell of B that A does not have" },
  split: { sign: "1\u2192n", colour: "other_object", says: "one cell of A is several of B" },
  merged: { sign: "n\u21921", colour: "other_object", says: "several cells of A are one of B" },
  moved: { sign: "\u2248", colour: "", says: "in both, but its place or outline changed" },
  kept: { sign: "=", colour: "", says: "the same cell in both" },
};

// What two of them say where A or B is the ground truth.
const BESIDE_TRUTH = {
  missed: "a cell of the truth that the run does not have",
  extra: "a cell of the run that the truth does not have",
};

// What each kind of change is called: beside the truth, a cell is missed or extra.
function wordsBeside(truthIs) {
  const words = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, kind]));
  if (truthIs === "a") Object.assign(words, { lost: "missed", gained: "extra" });
  if (truthIs === "b") Object.assign(words, { lost: "extra", gained: "missed" });
  return words;
}

// The columns of the list of cells: what row `r` of the story `s` says there, and sorts by.
const COLUMNS = [
  {
    key: "kind",
    label: "change",
    title: "what became of the cell",
    width: "88px",
    order: (s, r) => Object.keys(KINDS).indexOf(s.kind[r]) * 2 + s.iou[r],
    text: (s, r) => badge(s.kind[r], s.words[s.kind[r]]),
  },
  {
    key: "cell",
    label: "cell",
    title: "its number in A, or in B",
    width: "minmax(36px, 1fr)",
    order: (s, r) => (s.labels_a[r].length ? s.labels_a : s.labels_b)[r][0],
    text: (s, r) => cellNumbers(s, r),
  },
  {
    key: "iou",
    label: "IoU",
    title: "overlap: intersection over union",
    width: "46px",
    number: true,
    order: (s, r) => s.iou[r],
    text: (s, r) => (s.area_a[r] && s.area_b[r] ? s.iou[r].toFixed(2) : "\u2013"),
  },
  {
    key: "area",
    label: "area, px",
    title: "area in A, and how much larger it is in B",
    width: "88px",
    number: true,
    order: (s, r) => s.area_a[r] || s.area_b[r],
    text: (s, r) => {
      const [p, q] = [s.area_a[r], s.area_b[r]];
      return p && q ? `${grouped(p)} ${signed(q - p)}` : grouped(p || q);
    },
  },
  {
    key: "runs",
    label: "in runs",
    title: "how many of all runs have this cell",
    width: "62px",
    number: true,
    where: (s) => s.runs !== undefined,
    order: (s, r) => s.runs[r] ?? -1,
    text: (s, r) => (s.runs[r] === null ? "\u2013" : `${s.runs[r]} of ${s.n_runs}`),
  },
];

const ROW_CSS = 26; // height of a row of the list
const SPARE_ROWS = 6; // drawn above and below what is seen

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u00a0");
}

// Numbers such as 18 829 must not be torn apart at the end of a line.
function unbroken(text) {
  return text.replace(/(\d) (?=\d{3}(?!\d))/g, "$1\u00a0");
}

function signed(number) {
  if (number === 0) return "\u00b10";
  return `${number > 0 ? "+" : "\u2212"}${grouped(Math.abs(number))}`;
}

function make(tag, className, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function button(className, text, attributes = {}) {
  return make("button", className, { ...KEEP_KEYS, type: "button", ...attributes }, text);
}

function range(className, attributes) {
  return make("input", className, { ...KEEP_KEYS, type: "range", ...attributes });
}

function select(className, label, names) {
  const options = names.map((name, i) => make("option", "", { value: String(i) }, name));
  return make("select", className, { ...KEEP_KEYS, "aria-label": label }, ...options);
}

function heading(text) {
  return make("h4", "", {}, text);
}

// Which image and which two runs: only what there is more than one of can be chosen.
function choices(model, parts) {
  const [images, runs] = [model.get("images"), model.get("runs")];
  const row = make("div", "cre-choices");
  parts.selects = {};
  const chosen = (key, label, names, swatch) => {
    parts.selects[key] = select(`cre-select cre-select-${key}`, label, names);
    const text = swatch ? [swatch, label] : [label];
    return make("label", "cre-choice", {}, make("span", "cre-of", {}, ...text), parts.selects[key]);
  };
  if (images.length > 1) {
    parts.previous = button("cre-step", "\u2039", { title: "previous image (,)" });
    parts.next = button("cre-step", "\u203a", { title: "next image (.)" });
    parts.previous.setAttribute("aria-label", "previous image");
    parts.next.setAttribute("aria-label", "next image");
    const steps = make("span", "cre-steps", {}, parts.previous, parts.next);
    row.append(make("div", "cre-with-steps", {}, chosen("view", "Image", images), steps));
  }
  if (runs.length > 2) {
    row.append(chosen("a", "A", runs, line("a")));
    parts.swap = button("cre-swap", "\u21c4", { title: "exchange A and B (x)" });
    parts.swap.setAttribute("aria-label", "exchange A and B");
    row.append(parts.swap, chosen("b", "B", runs, line("b")));
  }
  return row;
}

function line(key) {
  return make("span", `cre-line cre-line-${key}`);
}

function area(key) {
  return make("span", `cre-area cre-area-${key}`);
}

function legend(parts) {
  const box = (key, swatch, name) => {
    const input = make("input", "", { ...KEEP_KEYS, type: "checkbox", "data-show": key });
    parts.boxes[key] = input;
    parts.names[key] = make("span", "cre-name", {}, name);
    parts.amounts[key] = make("span", "cre-amount");
    const label = make("label", "", {}, input, swatch, parts.names[key], parts.amounts[key]);
    parts.rows[key] = label;
    return label;
  };
  parts.opacity = range("cre-opacity", { min: "0", max: "100", "aria-label": "Opacity" });
  parts.votes = make("div", "cre-votes");
  parts.vote = make(
    "select",
    "cre-vote",
    { ...KEEP_KEYS, "aria-label": "What the runs agree on" },
    make("option", "", { value: "cells" }, "call the pixel cell"),
    make("option", "", { value: "objects" }, "give it the same cell"),
  );
  parts.ramp = make("div", "cre-ramp");
  parts.votes.append(make("label", "", {}, "runs that ", parts.vote), parts.ramp);
  const group = (title, ...boxes) => make("div", "", {}, heading(title), ...boxes);
  const outlines = group(
    "Outlines",
    box("a", line("a"), "A"),
    box("b", line("b"), "B"),
    box("truth", line("truth"), "truth"),
  );
  const pixels = group(
    "Pixels",
    box("only_a", area("only_a"), "only A"),
    box("only_b", area("only_b"), "only B"),
    box("other_object", area("other_object"), "other object"),
    box("agree", area("agree"), "agree"),
  );
  const opacity = make("label", "cre-opacity-row", {}, "opacity", parts.opacity);
  const image = box("image", area("image"), "image");
  const patterns = box("patterns", area("patterns"), "patterns");
  const picture = make("div", "cre-picture", {}, image, patterns, opacity);
  return make("div", "cre-legend", {}, outlines, pixels, picture, parts.votes);
}

// A row with what it sets, the slider and what belongs to it.
function slider(what, className, ...children) {
  const name = make("span", "cre-end cre-what", {}, what);
  return make("div", `cre-slider ${className}`, {}, name, ...children);
}

function sliders(parts) {
  const limits = (min, max, rest) => ({ min: String(min), max: String(max), ...rest });
  parts.zoom = range("cre-zoom", limits(0, 1000, { step: "5", "aria-label": "Zoom" }));
  parts.closer = button("cre-round", "+", { "aria-label": "closer", title: "closer (+)" });
  parts.farther = button("cre-round", "\u2212", { "aria-label": "farther", title: "farther (\u2212)" });
  parts.whole = button("cre-small", "Fit", { title: "show everything (0)" });
  parts.scale = make("span", "cre-amount cre-scale");
  const label = "Curtain: A to the left, B to the right";
  const half = { value: "500", step: "5", "aria-label": label };
  parts.curtain = range("cre-curtain", limits(0, 1000, half));
  parts.play = button("cre-small cre-play", "Pause", { title: "let A and B take turns" });
  parts.turn = button("cre-small", "Other", { title: "show the other run (space)" });
  const speed = { value: "10", "aria-label": "Speed: changes in ten seconds" };
  parts.speed = range("cre-speed", limits(2, 30, speed));
  parts.z = range("cre-z", limits(0, 0, { step: "1", "aria-label": "Plane" }));
  parts.zText = make("span", "cre-amount");
  parts.zRow = slider("plane", "", parts.z, parts.zText);
  const { farther, zoom, closer, scale, whole, speed: pace, play, turn } = parts;
  return make(
    "div",
    "cre-sliders",
    {},
    parts.zRow,
    slider("curtain", "cre-for-curtain", parts.curtain),
    slider("speed", "cre-for-blink", pace, play, turn),
    slider("zoom", "", farther, zoom, closer, scale, whole),
  );
}

function readout(parts) {
  const row = make("div", "cre-readout");
  for (const [key, name] of Object.entries({
    pixel: "y, x",
    value: "image",
    a: "A",
    b: "B",
    truth: "truth",
    votes: "runs",
  })) {
    parts.cells[key] = make("span", "cre-cell", { "data-cell": key }, "\u2013");
    parts.heads[key] = make("span", "cre-of", {}, name);
    parts.reads[key] = make("div", "", {}, parts.heads[key], parts.cells[key]);
    parts.reads[key].hidden = key === "votes";
    row.append(parts.reads[key]);
  }
  parts.cells.category = make("span", "cre-words", { "data-cell": "category" });
  parts.cells.category.textContent = "Point at the picture to read its pixels.";
  row.append(parts.cells.category);
  return row;
}

const HELP = [
  ["Wheel or pinch", "zoom"],
  ["Drag", "move"],
  ["Click", "a cell\u2019s story"],
  ["1 \u2013 5", "view"],
  ["Arrows + \u2212 0", "move, zoom, fit"],
  ["Shift arrows", "read pixel by pixel"],
  ["Enter", "story of that cell"],
  ["N P", "next, previous change"],
  ["Space", "A or B"],
  ["T H", "truth, patterns"],
  ["X", "exchange A and B"],
  [", .", "image"],
  ["Esc", "nothing chosen"],
];

// The whole page of the explorer; returns the parts that the drawing needs.
function build(model, el) {
  const { colours } = model.get("drawing");
  const parts = { buttons: {}, boxes: {}, cells: {}, heads: {}, reads: {} };
  Object.assign(parts, { names: {}, amounts: {}, rows: {} });
  const modes = make("div", "cre-modes", { role: "group", "aria-label": "View" });
  Object.entries(MODES).forEach(([mode, { label, title }], i) => {
    const attributes = { "data-choose": mode, title: `${title} (${i + 1})` };
    parts.buttons[mode] = button("", label, attributes);
    modes.append(parts.buttons[mode]);
  });
  parts.canvas = make("canvas", "cre-canvas", { ...KEEP_KEYS, tabindex: "0", role: "application" });
  parts.divider = make("div", "cre-divider", {}, make("span", "cre-handle", {}, "\u25c2\u25b8"));
  parts.tagA = make("span", "cre-tag cre-tag-a");
  parts.tagB = make("span", "cre-tag cre-tag-b");
  const frame = make("div", "cre-frame", {}, parts.canvas, parts.divider, parts.tagA, parts.tagB);
  parts.stage = make("div", "cre-stage", {}, frame, sliders(parts), readout(parts));

  parts.story = make("div", "cre-story", { "aria-live": "polite" });
  parts.list = new CellList();
  parts.kinds = make("div", "cre-kinds", { role: "group", "aria-label": "Kinds in the list" });
  const side = make(
    "div",
    "cre-side",
    {},
    legend(parts),
    make("section", "", {}, heading("Cell"), parts.story),
    make("section", "cre-list", {}, heading("Changed cells"), parts.kinds, parts.list.root),
  );

  parts.exports = {};
  const exports = make("div", "cre-exports", {}, make("span", "cre-of", {}, "Download"));
  for (const [key, text, title] of [
    ["png", "Picture", "what is seen, as PNG"],
    ["a", "Masks A", "label image of A, TIFF for napari and Fiji"],
    ["b", "Masks B", "label image of B, TIFF for napari and Fiji"],
    ["categories", "Difference", "TIFF: 1 agree, 2 only A, 3 only B, 4 other object"],
  ]) {
    parts.exports[key] = button("cre-small", text, { "data-export": key, title });
    exports.append(parts.exports[key]);
  }
  const help = make("p", "cre-help");
  for (const [keys, does] of HELP) {
    help.append(make("span", "", {}, make("kbd", "", {}, keys), ` ${does}`), " ");
  }

  parts.line = make("p", "cre-counts", { "data-line": "" });
  parts.message = make("p", "cre-message", { role: "status" }, "Unpacking the masks\u2026");
  const header = make("div", "cre-header");
  if (model.get("title")) header.append(make("h3", "", {}, model.get("title")));
  header.append(parts.line);
  if (model.get("note")) header.append(make("p", "cre-hint", {}, model.get("note")));
  const toolbar = make("div", "cre-toolbar", {}, modes);
  parts.body = make("div", "cre-body", {}, parts.stage, side);
  parts.root = make(
    "div",
    "cellrepro-explorer",
    { "data-ready": "0", "data-loading": "0" },
    header,
    choices(model, parts),
    toolbar,
    parts.message,
    parts.body,
    make("div", "cre-footer", {}, exports, help),
  );
  for (const [key, colour] of Object.entries(colours)) {
    parts.root.style.setProperty(`--${key.replace("_", "-")}`, colour);
  }
  el.append(parts.root);
  return parts;
}

// A sortable list of which only the rows in sight are in the page.
class CellList {
  constructor() {
    this.rows = []; // numbers of changes
    this.chosen = -1; // position in rows
    this.sorted = { key: "kind", down: false };
    this.head = make("div", "cre-head");
    this.space = make("div", "cre-space");
    this.window = make("div", "cre-window", {
      ...KEEP_KEYS,
      tabindex: "0",
      role: "listbox",
      "aria-label": "Changed cells; arrow keys choose one and show it",
    }, this.space);
    this.root = make("div", "cre-table", {}, this.head, this.window);
    this.window.addEventListener("scroll", () => this.paint(), { passive: true });
    this.window.addEventListener("keydown", (event) => this.key(event));
    this.window.addEventListener("click", (event) => {
      const row = event.target.closest("[data-row]");
      if (row) this.choose(Number(row.dataset.row));
    });
  }

  fill(story, rows, chosen) {
    Object.assign(this, { story, rows });
    this.columns = COLUMNS.filter(({ where }) => !where || where(story));
    this.root.style.setProperty("--columns", this.columns.map(({ width }) => width).join(" "));
    const known = this.columns.some(({ key }) => key === this.sorted.key);
    this.sort(known ? this.sorted : { key: "kind", down: false }, chosen);
  }

  sort(sorted, chosen = this.rows[this.chosen]) {
    const focused = this.head.contains(document.activeElement);
    this.sorted = sorted;
    const { order } = this.columns.find(({ key }) => key === sorted.key);
    const sign = sorted.down ? -1 : 1;
    const values = new Map(this.rows.map((row) => [row, order(this.story, row)]));
    this.rows.sort((p, q) => {
      const [x, y] = [values.get(p), values.get(q)];
      return (x < y ? -sign : x > y ? sign : 0) || p - q;
    });
    this.head.replaceChildren(
      ...this.columns.map(({ key, label, title, number }) => {
        const here = key === sorted.key;
        const element = button(`cre-sort${number ? " cre-number" : ""}`, label, {
          title,
          "data-sort": key,
          "aria-sort": here ? (sorted.down ? "descending" : "ascending") : "none",
        });
        const next = { key, down: here && !sorted.down };
        element.addEventListener("click", () => this.sort(next));
        return element;
      }),
    );
    if (focused) this.head.querySelector(`[data-sort="${sorted.key}"]`).focus();
    this.chosen = this.rows.indexOf(chosen);
    this.space.style.height = `${this.rows.length * ROW_CSS}px`;
    this.window.scrollTop = 0;
    this.reveal();
    this.paint();
  }

  // Choose by the number of a change, without telling anybody.
  mark(row) {
    this.chosen = this.rows.indexOf(row);
    this.reveal();
    this.paint();
  }

  choose(position) {
    if (!this.rows.length) return;
    this.chosen = Math.min(this.rows.length - 1, Math.max(0, position));
    this.reveal();
    this.paint();
    this.onchoose?.(this.rows[this.chosen]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.window.clientHeight / ROW_CSS) - 1);
    const to = {
      ArrowDown: this.chosen + 1,
      ArrowUp: this.chosen - 1,
      PageDown: this.chosen + page,
      PageUp: this.chosen - page,
      Home: 0,
      End: this.rows.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(to);
  }

  reveal() {
    if (this.chosen < 0) return;
    const { scrollTop, clientHeight } = this.window;
    const top = this.chosen * ROW_CSS;
    if (top < scrollTop) this.window.scrollTop = top;
    else if (top + ROW_CSS > scrollTop + clientHeight) {
      this.window.scrollTop = top + ROW_CSS - clientHeight;
    }
  }

  paint() {
    const { scrollTop, clientHeight } = this.window;
    const first = Math.max(0, Math.floor(scrollTop / ROW_CSS) - SPARE_ROWS);
    const seen = Math.ceil((clientHeight || 10 * ROW_CSS) / ROW_CSS) + 2 * SPARE_ROWS;
    const rows = [];
    for (let i = first; i < Math.min(this.rows.length, first + seen); i++) {
      const change = this.rows[i];
      const row = make("div", "cre-row", {
        role: "option",
        "data-row": String(i),
        "data-kind": this.story.kind[change],
        "aria-selected": String(i === this.chosen),
        "aria-posinset": String(i + 1),
        "aria-setsize": String(this.rows.length),
      });
      row.style.top = `${i * ROW_CSS}px`;
      for (const { number, text } of this.columns) {
        row.append(make("span", number ? "cre-number" : "", {}, text(this.story, change)));
      }
      rows.push(row);
    }
    if (!rows.length) rows.push(make("p", "cre-none", {}, "No cell of these kinds."));
    this.space.replaceChildren(...rows);
  }
}

function cellNumbers(story, row) {
  const [a, b] = [story.labels_a[row], story.labels_b[row]];
  return (a.length ? a : b).join(" + ");
}

function badge(kind, word) {
  const sign = make("span", `cre-sign cre-sign-${kind}`, { "aria-hidden": "true" }, KINDS[kind].sign);
  return make("span", "cre-badge", {}, sign, word);
}
