// The browser's half of cellrepro.show.explorer: receives the arrays once, then draws alone.
//
// Two kinds of canvas. Layers (picture, outlines of A, B and truth, categories) have the size of
// the screen canvas and are drawn again only when the view moves: pan, zoom, resize. Everything
// else (curtain, opacity, check boxes, modes) composites the finished layers.
//
// Lengths in the code are device pixels unless their name ends in Css.

const CATEGORIES = ["background", "agree", "only_a", "only_b", "other_object"];
const LAYERS = ["image", "categories", "truth", "a", "b"]; // from the bottom up
const LARGEST_PIXEL_CSS = 48; // how big one image pixel can get, in CSS pixels
const SIDE_CSS = 240; // width of the panel beside the picture, with its gap and the margins

// What each mode shows when it is chosen; the check boxes change it afterwards.
const MODES = {
  outlines: { label: "Outlines", a: true, b: true, differences: false, opacity: 1 },
  categories: { label: "Categories", a: false, b: false, differences: true, opacity: 0.85 },
  curtain: { label: "Curtain", a: true, b: true, differences: false, opacity: 1 },
};

const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };

async function unpacked(plane) {
  const view = plane.data;
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new ARRAYS[plane.dtype](await new Response(stream).arrayBuffer());
}

// Same rule as `grey` in explorer.py.
function grey(values, { shape, low, high }) {
  const channels = shape[2];
  const result = new Uint8Array(shape[0] * shape[1]);
  for (let p = 0, i = 0; p < result.length; p++) {
    let sum = 0;
    for (let c = 0; c < channels; c++, i++) {
      sum += Math.min(1, Math.max(0, (values[i] - low[c]) / (high[c] - low[c])));
    }
    result[p] = Math.floor((sum / channels) * 255 + 0.5);
  }
  return result;
}

// A colour as ImageData stores it, read as one little-endian 32-bit number.
function packedColour(hex, alpha = 1) {
  const number = parseInt(hex.slice(1), 16);
  const [red, green, blue] = [number >> 16, (number >> 8) & 255, number & 255];
  return ((Math.round(alpha * 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u00a0");
}

// Numbers such as 18 829 must not be torn apart at the end of a line.
function unbroken(text) {
  return text.replace(/(\d) (?=\d{3}(?!\d))/g, "$1\u00a0");
}

function make(tag, className, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// JupyterLab takes arrow keys, digits and signs for its shortcuts unless the element says so.
const KEEP_KEYS = { "data-lm-suppress-shortcuts": "true" };

// One canvas-sized layer whose pixels are written as 32-bit colours.
class Layer {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d");
  }

  cleared(width, height) {
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = this.context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    } else {
      this.pixels.fill(0);
    }
    return this.pixels;
  }

  finish() {
    this.context.putImageData(this.image, 0, 0);
  }
}

// For each screen pixel from -margin to n + margin: the image pixel under its centre, or -1.
function sampling(n, margin, offset, scale, limit) {
  const result = new Int32Array(n + 2 * margin);
  for (let i = 0; i < result.length; i++) {
    const index = Math.floor((i - margin + 0.5 - offset) / scale);
    result[i] = index >= 0 && index < limit ? index : -1;
  }
  return result;
}

// Same rule as `outlined` in explorer.py, on labels sampled at screen pixels. The dashes hang on
// the image (offsetX, offsetY), so that they do not crawl while it is dragged.
function outline(layer, labels, { view, columns, width, height, thickness, colour, dash }) {
  const t = thickness;
  const stride = width + 2 * t;
  const xs = sampling(width, t, view.offsetX, view.scale, columns);
  const ys = sampling(height, t, view.offsetY, view.scale, labels.length / columns);
  const around = new Uint32Array(stride * (height + 2 * t));
  for (let y = 0, p = 0; y < ys.length; y++) {
    const row = ys[y] * columns;
    for (let x = 0; x < stride; x++, p++) {
      if (ys[y] >= 0 && xs[x] >= 0) around[p] = labels[row + xs[x]];
    }
  }
  const pixels = layer.cleared(width, height);
  const [on, off] = dash ?? [1, 0];
  const period = on + off;
  const shiftX = -Math.round(view.offsetX); // the image covers the canvas,
  const shiftY = -Math.round(view.offsetY); // so neither is negative
  for (let y = 0, p = 0; y < height; y++) {
    let q = (y + t) * stride + t;
    for (let x = 0; x < width; x++, p++, q++) {
      const here = around[q];
      if (here === 0) continue;
      if (around[q - t] !== here || around[q + t] !== here) {
        if ((y + shiftY) % period < on) pixels[p] = colour;
      } else if (around[q - t * stride] !== here || around[q + t * stride] !== here) {
        if ((x + shiftX) % period < on) pixels[p] = colour;
      }
    }
  }
  layer.finish();
}

// Categories at screen pixels. Where the picture is smaller than the image, a differing pixel
// still takes one screen pixel: a single one in four million must not vanish.
function paintCategories(layer, categories, { view, columns, width, height, colours }) {
  const rows = categories.length / columns;
  const xs = sampling(width, 0, view.offsetX, view.scale, columns);
  const ys = sampling(height, 0, view.offsetY, view.scale, rows);
  const pixels = layer.cleared(width, height);
  for (let y = 0, p = 0; y < height; y++) {
    for (let x = 0; x < width; x++, p++) {
      if (ys[y] >= 0 && xs[x] >= 0) pixels[p] = colours[categories[ys[y] * columns + xs[x]]];
    }
  }
  if (view.scale < 1) {
    for (let y = 0, p = 0; y < rows; y++) {
      const screenY = Math.floor(y * view.scale + view.offsetY);
      if (screenY < 0 || screenY >= height) {
        p += columns;
        continue;
      }
      for (let x = 0; x < columns; x++, p++) {
        if (categories[p] < 2 || colours[categories[p]] === 0) continue;
        const screenX = Math.floor(x * view.scale + view.offsetX);
        if (screenX >= 0 && screenX < width) {
          pixels[screenY * width + screenX] = colours[categories[p]];
        }
      }
    }
  }
  layer.finish();
}

function paintPicture(layer, picture, { view, columns, rows, width, height }) {
  if (view.scale < 1) {
    layer.cleared(width, height);
    layer.finish();
    layer.context.imageSmoothingEnabled = true;
    layer.context.imageSmoothingQuality = "high";
    layer.context.drawImage(
      picture.canvas,
      view.offsetX,
      view.offsetY,
      columns * view.scale,
      rows * view.scale,
    );
    return;
  }
  const xs = sampling(width, 0, view.offsetX, view.scale, columns);
  const ys = sampling(height, 0, view.offsetY, view.scale, rows);
  const pixels = layer.cleared(width, height);
  for (let y = 0, p = 0; y < height; y++) {
    for (let x = 0; x < width; x++, p++) {
      if (ys[y] >= 0 && xs[x] >= 0) pixels[p] = picture.pixels[ys[y] * columns + xs[x]];
    }
  }
  layer.finish();
}

function wholePicture(values, rows, columns) {
  const layer = new Layer();
  const pixels = layer.cleared(columns, rows);
  for (let p = 0; p < values.length; p++) pixels[p] = 0xff000000 | (values[p] * 0x010101);
  layer.finish();
  return layer;
}

// The image value as it was given: exact for integers, four digits for quantised numbers.
function imageValue(data, plane, p) {
  const channels = plane.shape[2];
  const values = Array.from(data.subarray(p * channels, (p + 1) * channels), (stored) =>
    plane.exact ? plane.offset + stored : Number((plane.offset + stored * plane.step).toPrecision(4)),
  );
  return values.join(" / ");
}

// Everything with text and handles; returns the parts that the drawing needs.
function build(model, el) {
  const [nameA, nameB] = [model.get("name_a"), model.get("name_b")];
  const { colours } = model.get("drawing");
  const counts = model.get("counts");
  const hasTruth = "truth" in model.get("planes");

  const parts = { buttons: {}, boxes: {}, cells: {} };
  const modes = make("div", "cre-modes", { role: "group", "aria-label": "View" });
  for (const [mode, { label }] of Object.entries(MODES)) {
    parts.buttons[mode] = make("button", "", { type: "button", "data-choose": mode }, label);
    modes.append(parts.buttons[mode]);
  }
  parts.canvas = make("canvas", "cre-canvas", {
    ...KEEP_KEYS,
    tabindex: "0",
    role: "img",
    "aria-label":
      `Masks of ${nameA} and ${nameB} over the image. ${model.get("line")}. ` +
      "Arrow keys move, plus and minus zoom, 0 shows everything.",
  });
  parts.divider = make("div", "cre-divider", {}, make("span", "cre-handle", {}, "\u25c2\u25b8"));
  const tagA = make("span", "cre-tag cre-tag-a", { style: `color: ${colours.a}` }, nameA);
  const tagB = make("span", "cre-tag cre-tag-b", { style: `color: ${colours.b}` }, nameB);
  const frame = make("div", "cre-frame", {}, parts.canvas, parts.divider, tagA, tagB);

  parts.curtain = make("input", "cre-curtain", {
    ...KEEP_KEYS,
    type: "range",
    min: "0",
    max: "1000",
    value: "500",
    step: "5",
    "aria-label": `Curtain: ${nameA} to the left, ${nameB} to the right`,
    title: `Left of the handle ${nameA}, right of it ${nameB}`,
  });

  const readout = make("div", "cre-readout");
  const wanted = { pixel: "y, x", value: "image", a: nameA, b: nameB, truth: "truth" };
  for (const [key, name] of Object.entries(wanted)) {
    if (key === "truth" && !hasTruth) continue;
    parts.cells[key] = make("span", "cre-cell", { "data-cell": key }, "\u2013");
    readout.append(make("div", "", {}, make("span", "cre-of", {}, name), parts.cells[key]));
  }
  parts.cells.category = make("span", "cre-words", { "data-cell": "category" });
  parts.cells.category.textContent = "Point at the picture to read its pixels.";
  readout.append(parts.cells.category);

  const box = (key, swatch, name, amount) => {
    const input = make("input", "", { ...KEEP_KEYS, type: "checkbox", "data-show": key });
    parts.boxes[key] = input;
    const label = make("label", "", {}, input, swatch, make("span", "cre-name", {}, name));
    if (amount !== undefined) {
      label.append(make("span", "cre-amount", {}, `${grouped(amount)} px`));
    }
    return label;
  };
  const line = (key) => {
    const swatch = make("span", `cre-line cre-line-${key}`);
    swatch.style.setProperty("--colour", colours[key]);
    return swatch;
  };
  const area = (key) => {
    const swatch = make("span", `cre-area cre-area-${key}`);
    swatch.style.setProperty("--colour", colours[key]);
    return swatch;
  };
  parts.opacity = make("input", "cre-opacity", {
    ...KEEP_KEYS,
    type: "range",
    min: "0",
    max: "100",
    "aria-label": "Opacity of the overlay",
  });
  const legend = make("div", "cre-legend", {}, make("h4", "", {}, "Outlines"));
  legend.append(box("a", line("a"), nameA), box("b", line("b"), nameB));
  if (hasTruth) legend.append(box("truth", line("truth"), "truth"));
  legend.append(make("h4", "", {}, "Pixels"));
  legend.append(
    box("only_a", area("only_a"), `only ${nameA}`, counts.only_a),
    box("only_b", area("only_b"), `only ${nameB}`, counts.only_b),
    box("other_object", area("other_object"), "other object", counts.other_object),
    box("agree", area("agree"), "agree", counts.agree),
    make("h4", "", {}, "Picture"),
    box("image", make("span", "cre-area cre-area-image"), "image"),
    make("label", "cre-opacity-row", {}, "overlay", parts.opacity),
  );
  const help = make(
    "p",
    "cre-help",
    {},
    "Wheel zooms, drag moves, double click shows everything. " +
      "Keys on the picture: arrows, + \u2212 0.",
  );

  const ends = [make("span", "cre-end", {}, nameA), make("span", "cre-end", {}, nameB)];
  const slider = make("div", "cre-slider", {}, ends[0], parts.curtain, ends[1]);
  parts.stage = make("div", "cre-stage", {}, frame, slider, readout);
  parts.message = make("p", "cre-message", { role: "status" }, "Unpacking the masks\u2026");
  const header = make("div", "cre-header", {}, modes);
  if (model.get("title")) header.prepend(make("h3", "", {}, model.get("title")));
  parts.root = make(
    "div",
    "cellrepro-explorer",
    { "data-ready": "0" },
    header,
    make("p", "cre-counts", { "data-line": "" }, unbroken(model.get("line"))),
    parts.message,
    make("div", "cre-body", {}, parts.stage, make("div", "cre-side", {}, legend, help)),
  );
  el.append(parts.root);
  return parts;
}

async function received(model) {
  const planes = model.get("planes");
  const names = Object.keys(planes);
  const arrays = await Promise.all(names.map((name) => unpacked(planes[name])));
  const data = Object.fromEntries(names.map((name, i) => [name, arrays[i]]));
  const [rows, columns] = planes.image.shape;
  const picture = wholePicture(grey(data.image, planes.image), rows, columns);
  return { data, rows, columns, picture, imagePlane: planes.image };
}

class Explorer {
  constructor(model, parts, arrays) {
    Object.assign(this, { parts, ...arrays });
    this.names = { a: model.get("name_a"), b: model.get("name_b") };
    this.drawing = model.get("drawing");
    this.heightCss = model.get("height");
    this.context = parts.canvas.getContext("2d");
    this.layers = Object.fromEntries(LAYERS.map((name) => [name, new Layer()]));
    this.stale = new Set(LAYERS);
    this.view = { zoom: 1, scale: 1, offsetX: 0, offsetY: 0 };
    this.show = { image: true, agree: true, truth: false };
    this.opacity = Object.fromEntries(Object.entries(MODES).map(([m, o]) => [m, o.opacity]));
    this.curtain = 0.5;
    this.listening = new AbortController();
    this.choose("outlines");
    this.listen();
    this.resizing = new ResizeObserver(() => this.fit());
    this.resizing.observe(parts.root);
  }

  close() {
    this.listening.abort();
    this.resizing.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // ---- what is shown -------------------------------------------------------------------------

  choose(mode) {
    this.mode = mode;
    const { a, b, differences } = MODES[mode];
    const areas = { only_a: differences, only_b: differences, other_object: differences };
    Object.assign(this.show, { a, b, agree: differences }, areas);
    for (const [name, button] of Object.entries(this.parts.buttons)) {
      button.setAttribute("aria-pressed", String(name === mode));
    }
    for (const [key, input] of Object.entries(this.parts.boxes)) input.checked = this.show[key];
    this.parts.opacity.value = String(Math.round(this.opacity[mode] * 100));
    this.redraw("categories");
  }

  drawCurtainAt(share) {
    this.curtain = Math.min(1, Math.max(0, share));
    this.parts.curtain.value = String(Math.round(this.curtain * 1000));
    if (this.mode !== "curtain") this.choose("curtain");
    else this.redraw();
  }

  // ---- the view ------------------------------------------------------------------------------

  // Size of the canvas: the whole image at zoom 1, as large as page and height allow.
  fit() {
    const { root, canvas, stage } = this.parts;
    if (root.clientWidth === 0) return; // hidden, for example in a collapsed cell
    const beside = root.clientWidth >= 560;
    root.dataset.wide = beside ? "1" : "0";
    const widthCss = root.clientWidth - (beside ? SIDE_CSS : 0);
    const pixelCss = Math.min(widthCss / this.columns, this.heightCss / this.rows);
    this.ratio = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(this.columns * pixelCss * this.ratio));
    const height = Math.max(1, Math.round(this.rows * pixelCss * this.ratio));
    if (canvas.width === width && canvas.height === height && this.fitted) return;
    const grown = this.fitted ? width / canvas.width : 1;
    canvas.width = width;
    canvas.height = height;
    canvas.style.width = `${width / this.ratio}px`;
    canvas.style.height = `${height / this.ratio}px`;
    stage.style.width = canvas.style.width;
    this.fitted = width / this.columns;
    this.look(this.view.zoom, this.view.offsetX * grown, this.view.offsetY * grown);
  }

  // Move the view; the image always covers the canvas. `fitted` is the scale at zoom 1.
  look(zoom, offsetX, offsetY) {
    const { width, height } = this.parts.canvas;
    const scale = this.fitted * zoom;
    this.view = {
      zoom,
      scale,
      offsetX: Math.min(0, Math.max(width - this.columns * scale, offsetX)),
      offsetY: Math.min(0, Math.max(height - this.rows * scale, offsetY)),
    };
    this.redraw(...LAYERS);
  }

  zoomBy(factor, x, y) {
    const { zoom, scale, offsetX, offsetY } = this.view;
    const largest = Math.max(1, (LARGEST_PIXEL_CSS * this.ratio) / this.fitted);
    const wanted = Math.min(largest, Math.max(1, zoom * factor));
    const grown = (this.fitted * wanted) / scale; // what lies at (x, y) stays there
    this.look(wanted, x - (x - offsetX) * grown, y - (y - offsetY) * grown);
  }

  panBy(x, y) {
    this.look(this.view.zoom, this.view.offsetX + x, this.view.offsetY + y);
  }

  // ---- drawing -------------------------------------------------------------------------------

  // Draw before the next frame, first the layers named here, once they are to be seen.
  redraw(...layers) {
    for (const layer of layers) this.stale.add(layer);
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      if (this.fitted) this.draw();
    });
  }

  draw() {
    const started = performance.now();
    for (const name of this.stale) {
      if (!this.seen(name)) continue;
      if (name === "image") paintPicture(this.layers.image, this.picture, this.place());
      else if (name === "categories") this.drawCategories();
      else this.drawOutline(name);
      this.stale.delete(name);
    }
    const layered = performance.now();
    this.composite();
    this.report(layered - started, performance.now() - layered);
  }

  seen(layer) {
    return layer === "categories" ? CATEGORIES.some((name) => this.show[name]) : this.show[layer];
  }

  // Differences stand out on a dimmed image, also on cells as bright as their colours.
  brightness() {
    return this.mode === "categories" ? this.drawing.dimmed : 1;
  }

  place() {
    const { width, height } = this.parts.canvas;
    return { view: this.view, columns: this.columns, rows: this.rows, width, height };
  }

  drawOutline(name) {
    const thicknessCss = this.view.scale < this.ratio ? 1 : 2;
    outline(this.layers[name], this.data[name], {
      ...this.place(),
      thickness: Math.max(1, Math.round(thicknessCss * this.ratio)),
      colour: packedColour(this.drawing.colours[name]),
      dash: this.drawing.dashes[name]?.map((n) => Math.max(1, Math.round(n * this.ratio))),
    });
  }

  drawCategories() {
    const { colours, agree_share: agreeShare } = this.drawing;
    paintCategories(this.layers.categories, this.data.categories, {
      ...this.place(),
      colours: CATEGORIES.map((name) =>
        this.show[name] ? packedColour(colours[name], name === "agree" ? agreeShare : 1) : 0,
      ),
    });
  }

  composite() {
    const { context } = this;
    const { width, height } = this.parts.canvas;
    context.globalAlpha = 1;
    context.fillStyle = "#000";
    context.fillRect(0, 0, width, height);
    const split = Math.round(this.curtain * width);
    const spans = this.mode === "curtain" ? { a: [0, split], b: [split, width] } : {};
    for (const name of LAYERS) {
      const [from, to] = spans[name] ?? [0, width];
      if (!this.seen(name) || to <= from) continue;
      context.globalAlpha = name === "image" ? this.brightness() : this.opacity[this.mode];
      const place = [from, 0, to - from, height];
      context.drawImage(this.layers[name].canvas, ...place, ...place);
    }
    context.globalAlpha = 1;
    this.parts.divider.style.left = `${this.curtain * 100}%`;
  }

  // The state, for tests and for style sheets.
  report(layersMs, compositeMs) {
    const { zoom, scale, offsetX, offsetY } = this.view;
    Object.assign(this.parts.root.dataset, {
      mode: this.mode,
      shows: Object.keys(this.show).filter((key) => this.show[key]).sort().join(" "),
      zoom: zoom.toFixed(4),
      scale: scale.toFixed(4),
      offsetX: offsetX.toFixed(2),
      offsetY: offsetY.toFixed(2),
      curtain: this.curtain.toFixed(3),
      opacity: this.opacity[this.mode].toFixed(2),
      layersMs: layersMs.toFixed(1),
      compositeMs: compositeMs.toFixed(1),
      ready: "1",
    });
  }

  // ---- what is under the pointer -------------------------------------------------------------

  read(x, y) {
    const column = Math.floor((x - this.view.offsetX) / this.view.scale);
    const row = Math.floor((y - this.view.offsetY) / this.view.scale);
    if (column < 0 || row < 0 || column >= this.columns || row >= this.rows) return;
    const p = row * this.columns + column;
    const label = (name) => (this.data[name][p] ? `cell ${this.data[name][p]}` : "background");
    const words = {
      background: "background in both",
      agree: "same object",
      only_a: `only ${this.names.a}`,
      only_b: `only ${this.names.b}`,
      other_object: "cell in both, but another object",
    };
    const name = CATEGORIES[this.data.categories[p]];
    const { cells, root } = this.parts;
    cells.pixel.textContent = `${row}, ${column}`;
    cells.value.textContent = imageValue(this.data.image, this.imagePlane, p);
    cells.a.textContent = label("a");
    cells.b.textContent = label("b");
    if (cells.truth) cells.truth.textContent = label("truth");
    cells.category.textContent = words[name];
    cells.category.style.setProperty("--colour", this.drawing.colours[name] ?? "transparent");
    root.dataset.readout = Object.values(cells).map((cell) => cell.textContent).join(" | ");
  }

  // ---- listening -----------------------------------------------------------------------------

  listen() {
    const { canvas, divider, curtain, opacity, buttons, boxes } = this.parts;
    const on = (element, type, act, options = {}) =>
      element.addEventListener(type, act, { ...options, signal: this.listening.signal });
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) * this.ratio, (event.clientY - box.top) * this.ratio];
    };

    for (const [mode, button] of Object.entries(buttons)) {
      on(button, "click", () => this.choose(mode));
    }
    for (const [key, input] of Object.entries(boxes)) {
      on(input, "change", () => {
        this.show[key] = input.checked;
        if (CATEGORIES.includes(key)) this.redraw("categories");
        else this.redraw();
      });
    }
    on(opacity, "input", () => {
      this.opacity[this.mode] = Number(opacity.value) / 100;
      this.redraw();
    });
    on(curtain, "input", () => this.drawCurtainAt(Number(curtain.value) / 1000));
    on(divider, "pointerdown", (event) => {
      event.preventDefault();
      divider.setPointerCapture(event.pointerId);
    });
    on(divider, "pointermove", (event) => {
      if (divider.hasPointerCapture(event.pointerId)) {
        this.drawCurtainAt(at(event)[0] / canvas.width);
      }
    });

    on(canvas, "pointerdown", (event) => {
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      this.held = at(event);
    });
    on(canvas, "pointermove", (event) => {
      const [x, y] = at(event);
      if (this.held) {
        this.panBy(x - this.held[0], y - this.held[1]);
        this.held = [x, y];
      }
      this.read(x, y);
    });
    for (const type of ["pointerup", "pointercancel"]) {
      on(canvas, type, () => {
        this.held = undefined;
      });
    }
    on(canvas, "dblclick", () => this.look(1, 0, 0));
    on(
      canvas,
      "wheel",
      (event) => {
        // Zoomed out completely, the wheel scrolls the notebook on.
        if (event.deltaY > 0 && this.view.zoom === 1) return;
        event.preventDefault();
        event.stopPropagation();
        const steps = event.deltaY / (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 3 : 100);
        this.zoomBy(1.25 ** -Math.min(3, Math.max(-3, steps)), ...at(event));
        this.read(...at(event));
      },
      { passive: false },
    );
    on(canvas, "keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const [stepX, stepY] = [canvas.width / 10, canvas.height / 10];
      const centre = [canvas.width / 2, canvas.height / 2];
      const acts = {
        ArrowLeft: () => this.panBy(stepX, 0),
        ArrowRight: () => this.panBy(-stepX, 0),
        ArrowUp: () => this.panBy(0, stepY),
        ArrowDown: () => this.panBy(0, -stepY),
        "+": () => this.zoomBy(1.25, ...centre),
        "=": () => this.zoomBy(1.25, ...centre),
        "-": () => this.zoomBy(0.8, ...centre),
        0: () => this.look(1, 0, 0),
      };
      if (!(event.key in acts)) return;
      event.preventDefault();
      event.stopPropagation();
      acts[event.key]();
    });
  }
}

function render({ model, el }) {
  const parts = build(model, el);
  let explorer;
  let closed = false;
  received(model)
    .then((arrays) => {
      if (closed) return;
      parts.message.remove();
      explorer = new Explorer(model, parts, arrays);
    })
    .catch((error) => {
      parts.root.dataset.error = String(error);
      parts.message.textContent =
        `The masks could not be unpacked (${error}). Use a browser of 2023 or later, ` +
        "or show .to_png() instead.";
    });
  return () => {
    closed = true;
    explorer?.close();
  };
}

export default { render };
