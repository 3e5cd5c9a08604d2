// Everything with text and handles: builds the parts of the page. Nothing here draws on the canvas.

// JupyterLab takes arrow keys, digits and signs for its shortcuts unless the element says so.
const KEEP_KEYS = { "data-lm-suppress-shortcuts": "true" };

// What each mode shows when it is chosen; the check boxes change it afterwards. With `apart`, A and B
// are never seen at one place at one time. Agreement comes last, as two runs do not have it.
const MODES = {
  outlines: { label: "Outlines", title: "Outlines of A and B; what differs is tinted", lines: true, areas: true, tint: 0.4, opacity: 1 },
  curtain: { label: "Curtain", title: "A left of the handle, B right", lines: true, apart: true, opacity: 1 },
  blink: { label: "Blink", title: "A and B in turn", lines: true, apart: true, opacity: 1 },
  categories: { label: "Difference", title: "Only what differs", areas: true, opacity: 0.9 },
  sides: { label: "Side by side", title: "A and B, each by itself, in one view", lines: true, apart: true, opacity: 1 },
  agreement: { label: "Agreement", title: "How many of all runs agree", votes: true, opacity: 0.85 },
};

function grouped(number) {
  const [whole, ...decimals] = String(number).split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, "\u00a0"), ...decimals].join(".");
}

// As `iou_text` in words.py: cut where it would be shown as the 0.5 or 1 that it misses.
function iouText(iou, decimals) {
  const rounded = iou.toFixed(decimals);
  const misses = [0.5, 1].some((limit) => iou < limit && Number(rounded) >= limit);
  const steps = 10 ** decimals;
  return misses ? (Math.floor(iou * steps) / steps).toFixed(decimals) : rounded;
}

// A number such as 18 829 stays on one line with its digits and its unit.
function unbroken(text) {
  return text.replace(/(\d) (?=\d{3}(?!\d)|%|ppm\b|px\b)/g, "$1\u00a0");
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

// A button that puts a text on the clipboard, and says so; the text may be a promise.
function copyButton(label, textOf, attributes = {}) {
  const element = button("cre-small", label, attributes);
  element.addEventListener("click", async () => {
    element.textContent = (await copied(textOf())) ? "Copied" : "Select and copy it";
    setTimeout(() => {
      element.textContent = label;
    }, 1500);
  });
  return element;
}

// Whether a text is on the clipboard; a page without leave to write there says no.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(await text);
    return true;
  } catch {
    return false;
  }
}

function range(className, attributes) {
  return make("input", className, { ...KEEP_KEYS, type: "range", ...attributes });
}

function select(className, label, names) {
  const options = names.map((name, i) => make("option", "", { value: String(i) }, name));
  return make("select", className, { ...KEEP_KEYS, "aria-label": label }, ...options);
}

const FEW_LETTERS = 4;

// The name of a side. Where there is no room for it, it is first cut where it is as that of the other
// side: what tells the two apart stays.
function nameElements(letter, name, other) {
  const [start, end] = tellingPart(name, other);
  const part = (className, text) => (text ? [make("span", className, {}, text)] : []);
  return [
    ...(name === letter ? [] : part("cre-letter", letter)),
    ...part("cre-shared", name.slice(0, start)),
    ...part("cre-telling", name.slice(start, end)),
    ...part("cre-shared", name.slice(end)),
  ];
}

// Where in a name the whole words begin and end that another name does not have; ends of a few
// letters belong to them, as cutting these saves nothing.
function tellingPart(name, other) {
  if (name === other) return [0, name.length];
  const [words, others] = [name, other].map((each) => each.match(/[\p{L}\p{N}]+|[^\p{L}\p{N}]/gu) ?? []);
  const most = Math.min(words.length, others.length);
  let first = 0;
  while (first < most && words[first] === others[first]) first += 1;
  let last = 0;
  while (last < most - first && words.at(-1 - last) === others.at(-1 - last)) last += 1;
  const start = words.slice(0, first).join("").length;
  const end = words.slice(0, words.length - last).join("").length;
  const isCut = (nLetters) => nLetters > FEW_LETTERS;
  return [isCut(start) ? start : 0, isCut(name.length - end) ? end : name.length];
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
    parts.swap = button("cre-swap", "\u21c4", { title: "exchange A and B (x)" });
    parts.swap.setAttribute("aria-label", "exchange A and B");
    const [a, b] = ["a", "b"].map((key) => chosen(key, key.toUpperCase(), runs, line(key)));
    row.append(make("div", "cre-pair", {}, a, parts.swap, b));
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
  parts.opacity = range("cre-opacity", { min: "0", max: "100" });
  parts.opacityOf = make("span");
  parts.bothRow = make("div", "cre-both", {}, line("both"), make("span", "cre-name", {}, "A and B alike"));
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
  const group = (title, ...boxes) => make("div", "cre-group", {}, title, ...boxes);
  parts.pixelsHeading = heading("Pixels");
  const outlines = group(
    heading("Outlines"),
    box("a", line("a"), "A"),
    box("b", line("b"), "B"),
    parts.bothRow,
    box("truth", line("truth"), "truth"),
  );
  const pixels = group(
    parts.pixelsHeading,
    box("only_a", area("only_a"), "only A"),
    box("only_b", area("only_b"), "only B"),
    box("other_object", area("other_object"), OTHER_OBJECT),
    box("agree", area("agree"), "agree"),
    box("patterns", area("patterns"), "with patterns"),
  );
  const opacity = make("label", "cre-opacity-row", {}, parts.opacityOf, parts.opacity);
  const image = box("image", area("image"), "image");
  const bar = box("scale_bar", make("span", "cre-bar"), "scale bar");
  parts.channels = make("div", "cre-channels");
  const picture = make("div", "cre-picture", {}, image, bar, opacity, parts.channels);
  parts.legend = make("div", "cre-legend", {}, outlines, pixels, picture, parts.votes);
  return parts.legend;
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
  parts.zStrip = make("canvas", "cre-strip", { "aria-hidden": "true" });
  const planes = make("span", "cre-planes", {}, parts.z, parts.zStrip);
  parts.zRow = slider("plane", "", planes, parts.zText);
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

// Keys, what they do, and of which scenes and how many images.
const HELP = [
  ["Wheel or pinch", "zoom"],
  ["Drag", "move"],
  ["Click", "a cell\u2019s story"],
  ...Object.entries(MODES).map(([mode, { label }], i) => [
    String(i + 1),
    label.toLowerCase(),
    (scene) => mode !== "agreement" || hasVotes(scene),
  ]),
  ["Arrows + \u2212 0", "move, zoom, fit"],
  ["Shift arrows", "read pixel by pixel"],
  ["Enter", "story of that cell"],
  ["N P", "next, previous cell of the list"],
  ["Space", "A or B"],
  ["[ ]", "move the curtain"],
  ["H", "patterns"],
  ["I", "image", (scene) => scene.has_image],
  ["B", "scale bar", (scene) => scene.pixel_size],
  ["T", "truth", hasTruthOfItsOwn],
  ["X", "exchange A and B"],
  [", .", "image before, next image", (_, nImages) => nImages > 1],
  ["Page \u2191 \u2193 or < >", "plane of the stack", (scene) => scene.n_planes > 1],
  ["Esc", "nothing chosen"],
];

// Of three runs or more it is known how many agree.
function hasVotes(scene) {
  return scene.planes.cells !== undefined;
}

// Where the truth is A or B, its outline is that of A or B.
function hasTruthOfItsOwn(scene) {
  return "truth" in scene.planes && scene.truth_is === "";
}

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
  parts.frame = make("div", "cre-frame", {}, parts.canvas, parts.divider, parts.tagA, parts.tagB);
  parts.sliders = sliders(parts);
  parts.stage = make("div", "cre-stage", {}, parts.frame, parts.sliders, readout(parts));

  parts.story = make("div", "cre-story", { "aria-live": "polite" });
  parts.list = new CellList();
  parts.kinds = make("div", "cre-kinds", { role: "group", "aria-label": "Kinds of cells in the list" });
  parts.overview = make("canvas", "cre-overview", {
    role: "img",
    "aria-label": "Where the changed cells lie in the whole image; click to go there",
    title: "click or drag to go there",
  });
  const where = heading("Where they lie");
  parts.overviewSection = make("section", "cre-where", {}, where, parts.overview);
  parts.listTitle = heading("List of cells");
  parts.aboutCells = [
    make("section", "", {}, heading("Cell"), parts.story),
    parts.overviewSection,
    make("section", "cre-list", {}, parts.listTitle, parts.kinds, parts.list.root),
  ];
  parts.side = make("div", "cre-side", {}, legend(parts), ...parts.aboutCells);

  parts.exports = {};
  const exports = make("div", "cre-exports", {}, make("span", "cre-of", {}, "Download"));
  for (const [key, text, title] of [
    ["png", "Picture", "what is seen, as PNG"],
    ["a", "Masks A", "label image of A, TIFF for napari and Fiji"],
    ["b", "Masks B", "label image of B, TIFF for napari and Fiji"],
    ["categories", "Difference", `TIFF: 1 agree, 2 only A, 3 only B, 4 ${OTHER_OBJECT}`],
  ]) {
    parts.exports[key] = button("cre-small", text, { "data-export": key, title });
    exports.append(parts.exports[key]);
  }
  if (model.get("has_napari")) {
    parts.napari = button("cre-small", "Open in napari", {
      title: "image and masks as layers in napari, on the computer of the kernel",
    });
    exports.append(parts.napari);
  }
  const call = make("code", "", { "data-call": "napari" });
  parts.napariCommand = make("div", "cre-command", {}, call);
  parts.napariCall = copyButton("Copy the napari call", () => call.textContent, {
    title: "Python that opens image, A and B as layers, where cellrepro and napari are installed",
  });
  parts.napariCall.addEventListener("click", () => {
    parts.napariCommand.hidden = false; // also to select it
  });
  exports.append(parts.napariCall);
  parts.help = make("p", "cre-help");

  parts.line = make("p", "cre-counts", { "data-line": "" });
  parts.message = make("p", "cre-message", { role: "status" }, "Unpacking the masks\u2026");
  const header = make("div", "cre-header");
  if (model.get("title")) header.append(make("h3", "", {}, model.get("title")));
  header.append(parts.line);
  if (model.get("note")) header.append(make("p", "cre-hint", {}, model.get("note")));
  const toolbar = make("div", "cre-toolbar", {}, modes);
  parts.body = make("div", "cre-body", {}, parts.stage, parts.side);
  parts.root = make(
    "div",
    "cellrepro-explorer",
    { ...KEEP_KEYS, tabindex: "-1", "data-ready": "0", "data-loading": "0" }, // a click gives it the keys
    header,
    choices(model, parts),
    toolbar,
    parts.message,
    parts.body,
    make("div", "cre-footer", {}, exports, parts.napariCommand, parts.help),
  );
  for (const [key, colour] of Object.entries(colours)) {
    parts.root.style.setProperty(`--${key.replace("_", "-")}`, colour);
  }
  el.append(parts.root);
  return parts;
}
