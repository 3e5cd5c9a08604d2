// The browser's half of cellrepro.show.explorer: receives each array once, then draws alone.
//
// Two kinds of canvas. Layers (picture, outlines of A, B and truth, categories, votes, the chosen
// cell) have the size of the screen canvas and are drawn again only when the view moves: pan,
// zoom, resize. Everything else (curtain, blinking, opacity, boxes, modes) composites them.
//
// Lengths in the code are device pixels unless their name ends in Css.

const LAYERS = ["image", "categories", "votes", "truth", "a", "b", "mark"]; // from the bottom up
const LARGEST_PIXEL_CSS = 48; // how big one image pixel can get, in CSS pixels
const WIDE_CSS = 660; // from here on the panel stands beside the picture
const SIDE_CSS = 320; // its least width, with its gap
const AREAS = ["agree", "only_a", "only_b", "other_object"];
const CHOSEN = ["view", "a", "b", "z"];
const HELD_ARRAYS = 30; // unpacked at a time; what is dropped is unpacked again, not sent again

// The planes of one model as they arrived, deflated; shared by all its views on the page. Those
// that came with the model stay, as a saved page has no kernel to ask; of the others, as many as
// fit into `held_bytes`, the last ones used.
class Planes {
  constructor(model) {
    this.model = model;
    this.waiting = new Map();
    this.atOnce = new Map();
    this.arrived = new Map();
    this.arrays = new Map();
    this.asks = model.get("answered"); // number of the last choice sent to the kernel
    for (const [name, plane] of Object.entries(model.get("planes"))) {
      this.atOnce.set(name, packed(plane, plane.data));
    }
    model.on("msg:custom", (content, buffers) => {
      if (!content || !content.plane) return;
      if (content.error) this.waiting.get(content.plane)?.reject(new Error(content.error));
      else this.keep(content.plane, packed(content, buffers[0]));
    });
  }

  keep(name, plane) {
    this.arrived.delete(name); // the last one used comes last
    this.arrived.set(name, plane);
    let excess = -this.model.get("held_bytes");
    for (const { bytes } of this.arrived.values()) excess += bytes.length;
    for (const [old, { bytes }] of this.arrived) {
      if (excess <= 0) break;
      this.arrived.delete(old);
      excess -= bytes.length;
    }
    this.waiting.get(name)?.resolve(plane);
  }

  // The plane as it was sent, asked for from the kernel if it never came or was dropped.
  async deflated(name) {
    let plane = this.atOnce.get(name) ?? this.arrived.get(name);
    if (plane === undefined) {
      if (!this.waiting.has(name)) {
        const waits = {};
        waits.promise = new Promise((resolve, reject) => Object.assign(waits, { resolve, reject }));
        this.waiting.set(name, waits);
        this.want(name);
      }
      try {
        plane = await this.waiting.get(name).promise;
      } finally {
        this.waiting.delete(name);
      }
    } else if (this.arrived.delete(name)) {
      this.arrived.set(name, plane); // the last one used
    }
    return plane;
  }

  // Ask for a plane; what is asked for at one time travels as one message.
  want(name) {
    if (this.wanted === undefined) {
      this.wanted = [];
      queueMicrotask(() => {
        this.model.send({ want: this.wanted });
        this.wanted = undefined;
      });
    }
    this.wanted.push(name);
  }

  // The plane with its values.
  async get(name) {
    const plane = await this.deflated(name);
    if (!this.arrays.has(name)) this.arrays.set(name, unpacked(plane));
    const values = this.arrays.get(name);
    this.arrays.delete(name); // the last ones used stay
    this.arrays.set(name, values);
    for (const old of [...this.arrays.keys()].slice(0, -HELD_ARRAYS)) this.arrays.delete(old);
    return { ...plane, values: await values };
  }
}

// A plane as it travels: what is said of it, and its deflated bytes.
function packed({ dtype, shape, data: _, ...facts }, data) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { ...facts, dtype, shape, bytes };
}

class Explorer {
  constructor(model, parts, planes) {
    Object.assign(this, { model, parts, planes });
    this.drawing = model.get("drawing");
    this.heightCss = model.get("height");
    this.context = parts.canvas.getContext("2d");
    this.layers = Object.fromEntries(LAYERS.map((name) => [name, new Layer()]));
    this.stale = new Set(LAYERS);
    this.view = { zoom: 1, scale: 1, offsetX: 0, offsetY: 0 };
    this.show = { image: true, truth: false, patterns: true };
    this.opacity = Object.fromEntries(Object.entries(MODES).map(([m, o]) => [m, o.opacity]));
    this.curtain = 0.5;
    this.vote = "cells";
    this.kindsShown = new Set(["lost", "gained", "split", "merged", "moved"]);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.blink = { side: "a", playing: !calm, perSecond: 1 };
    this.chosen = -1; // number of a change
    this.wanted = undefined; // choice that the kernel has not answered yet
    this.loads = 0; // under way
    this.pointers = new Map();
    this.listening = new AbortController();
    this.mode = "outlines";
  }

  async start() {
    await this.load();
    this.choose("outlines");
    this.listen();
    this.resizing = new ResizeObserver(() => this.fit());
    this.resizing.observe(this.parts.root);
    this.watchRatio();
    this.onScene = () => {
      const { ahead, wanted } = this;
      const told = this.model.get("scene");
      const same = ahead && CHOSEN.every((key) => told[key] === ahead[key]);
      if (ahead && wanted && !same) return; // the answer to a step before the last one
      this.ahead = undefined;
      if (!same) this.reload();
    };
    this.onProblem = () => this.say(this.model.get("problem"));
    this.onAnswer = () => {
      if (this.model.get("answered") >= this.planes.asks) this.wanted = undefined;
      this.tellLoading();
    };
    this.model.on("change:scene", this.onScene);
    this.model.on("change:answered", this.onAnswer);
    this.model.on("change:problem", this.onProblem);
    this.fetchNext(0);
  }

  close() {
    this.listening.abort();
    this.resizing?.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.model.off("change:scene", this.onScene);
    this.model.off("change:answered", this.onAnswer);
    this.model.off("change:problem", this.onProblem);
  }

  // A page moved to a finer screen, or zoomed, keeps its size in CSS pixels.
  watchRatio() {
    if (this.listening.signal.aborted) return;
    matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`).addEventListener(
      "change",
      () => {
        this.fit();
        this.watchRatio();
      },
      { once: true, signal: this.listening.signal },
    );
  }

  // ---- the scene: an image and two runs --------------------------------------------------------

  async load() {
    const scene = this.ahead ?? this.model.get("scene");
    const names = scene.planes;
    const wanted = ["image", "a", "b", "categories", "story"].concat(names.truth ? ["truth"] : []);
    if (this.mode === "agreement" && names[this.vote]) wanted.push(this.vote);
    const found = await Promise.all(wanted.map((key) => this.planes.get(names[key])));
    if ((this.ahead ?? this.model.get("scene")) !== scene) return this.load(); // chosen anew
    const planes = Object.fromEntries(wanted.map((key, i) => [key, found[i]]));
    const sameImage = this.scene && this.scene.planes.image === names.image;
    if (this.scene?.planes.story !== names.story) this.chosen = -1; // a row of another story
    this.scene = scene;
    this.names = scene.names;
    this.data = Object.fromEntries(wanted.map((key) => [key, planes[key].values]));
    this.data.story.words = wordsBeside(scene.truth_is);
    this.nVotes = planes[this.vote]?.n_runs ?? 0;
    const [rows, columns] = planes.image.shape;
    const sameShape = this.rows === rows && this.columns === columns;
    Object.assign(this, { rows, columns, imagePlane: planes.image });
    if (!sameImage) this.levels = halved(grey(this.data.image, planes.image), rows, columns);
    this.differs = differing(this.data.categories);
    this.tell();
    if (!sameShape) this.fitted = undefined;
    return undefined;
  }

  async reload() {
    this.loads += 1;
    this.tellLoading();
    try {
      const before = this.scene;
      await this.load();
      const { scene } = this;
      if (scene.planes.story !== before.planes.story) this.pick(-1);
      if (scene.view !== before.view) this.view = { zoom: 1, scale: 1, offsetX: 0, offsetY: 0 };
      if (this.mode === "agreement" && !this.data[this.vote]) this.choose("outlines");
      this.say("");
      if (this.fitted) this.redraw(...LAYERS);
      else this.fit();
      this.fetchNext(scene.z - before.z);
    } catch (error) {
      this.say(String(error.message ?? error));
    } finally {
      this.loads -= 1;
      this.tellLoading();
    }
  }

  // Of a stack the planes to which the next steps will lead, if they go on as the last one; at the
  // beginning those on both sides.
  fetchNext(by) {
    const { z, n_planes: n, planes } = this.scene;
    const shown = Object.keys(this.data).filter((key) => key !== "story");
    const ahead = by ? [Math.sign(by), 2 * Math.sign(by)] : [1, -1];
    for (const next of ahead.map((steps) => z + steps)) {
      if (next < 0 || next >= n) continue;
      const names = ofPlane(planes, next);
      for (const key of shown) this.planes.get(names[key]).catch(() => {}); // said when it is chosen
    }
  }

  tellLoading() {
    this.parts.root.dataset.loading = this.loads || this.wanted ? "1" : "0";
  }

  say(text) {
    this.parts.message.textContent = text;
    this.parts.message.hidden = !text;
    this.parts.root.dataset.problem = text;
    if (text) this.tellChoice(); // what could not be shown is not chosen
  }

  // Put names, numbers and switches of the scene where they belong.
  tell() {
    const { parts, names, scene } = this;
    const { counts } = scene;
    parts.line.textContent = unbroken(scene.line);
    const { short } = scene;
    const said = { only_a: `only ${short.a}`, only_b: `only ${short.b}` };
    for (const key of ["a", "b"]) {
      const [name, letter] = [names[key], key.toUpperCase()];
      const whole = name === letter ? name : `${letter}  ${name}`;
      said[key] = parts.selects[key] ? letter : whole; // said once is enough
      parts[`tag${letter}`].textContent = whole;
      parts.rows[key].title = whole;
    }
    for (const [key, text] of Object.entries(said)) parts.names[key].textContent = text;
    for (const key of AREAS) parts.amounts[key].textContent = `${grouped(counts[key])} px`;
    for (const key of ["a", "b"]) {
      const n = scene.n_objects[key];
      parts.amounts[key].textContent = `${grouped(n)} ${n === 1 ? "cell" : "cells"}`;
      parts.heads[key].textContent = short[key];
    }
    // Where it is A or B, its outline stands there.
    const hasTruth = "truth" in scene.planes && scene.truth_is === "";
    parts.rows.truth.hidden = !hasTruth;
    parts.reads.truth.hidden = !hasTruth;
    if (!hasTruth) this.show.truth = false;
    const votes = scene.planes.cells !== undefined;
    parts.buttons.agreement.disabled = !votes;
    parts.buttons.agreement.title = votes
      ? "How many of all runs agree (5)"
      : "Needs three or more runs";
    parts.zRow.hidden = scene.n_planes < 2;
    parts.z.max = String(scene.n_planes - 1);
    parts.z.value = String(scene.z);
    parts.zText.textContent = `${scene.z + 1} of ${scene.n_planes}`;
    parts.canvas.setAttribute(
      "aria-label",
      `Masks of ${names.a} and ${names.b} on ${names.image}. ${scene.line}. Arrow keys move, plus ` +
        "and minus zoom, 0 shows everything, shift with arrows reads pixels, enter tells the " +
        "story of a cell, n and p go through the changed cells.",
    );
    this.tellChoice();
    if (this.told === scene.planes.story) return; // another plane of the same stack
    this.told = scene.planes.story;
    this.tellKinds();
    this.index();
    this.fillList();
    this.tellStory();
  }

  tellChoice() {
    const { selects, previous, next } = this.parts;
    const { scene } = this;
    for (const [key, element] of Object.entries(selects)) {
      element.value = String(scene[key]);
      element.title = element.selectedOptions[0]?.text ?? ""; // whole, where the page is narrow
      if (key === "view") continue;
      [...element.options].forEach((option, i) => {
        const other = scene[key === "a" ? "b" : "a"];
        option.disabled = i === other || !scene.sides.includes(i);
      });
    }
    if (previous) previous.disabled = scene.view === 0;
    if (next) next.disabled = scene.view === this.model.get("images").length - 1;
  }

  // What was chosen last, whether or not the kernel has followed.
  choice() {
    // Not `this.scene`: its planes may still be on their way.
    const { view, a, b, z } = this.wanted ?? this.model.get("scene");
    return { view, a, b, z };
  }

  ask(change) {
    const before = this.choice();
    if (Object.keys(change).every((key) => change[key] === before[key])) {
      if (!this.wanted) this.say("");
      return;
    }
    this.wanted = { ...before, ...change };
    this.tellLoading();
    // Numbered, or asking again for what was refused would change nothing.
    this.model.set("choice", { ...this.wanted, asked: (this.planes.asks += 1) });
    this.model.save_changes();
    this.goAhead();
  }

  // Another plane of the same stack is shown without waiting for the kernel to say what is in it.
  goAhead() {
    const { scene, wanted } = this;
    if (CHOSEN.some((key) => key !== "z" && wanted[key] !== scene[key])) return;
    this.ahead = { ...scene, z: wanted.z, planes: ofPlane(scene.planes, wanted.z) };
    this.reload();
  }

  step(by) {
    const view = this.choice().view + by;
    if (view >= 0 && view < this.model.get("images").length) this.ask({ view });
  }

  // ---- cells and their stories -----------------------------------------------------------------

  index() {
    const { story } = this.data;
    const fill = (labels) => {
      const found = new Map();
      labels.forEach((of, row) => of.forEach((label) => found.set(label, row)));
      return found;
    };
    this.rowOf = { a: fill(story.labels_a), b: fill(story.labels_b) };
  }

  tellKinds() {
    const { kinds } = this.parts;
    const focused = kinds.contains(document.activeElement) && document.activeElement.dataset.kind;
    kinds.replaceChildren();
    const { words } = this.data.story;
    for (const [kind, { sign, says }] of Object.entries(KINDS)) {
      const chip = button(`cre-chip cre-chip-${kind}`, "", { "data-kind": kind, title: BESIDE_TRUTH[words[kind]] ?? says });
      chip.append(
        make("span", `cre-sign cre-sign-${kind}`, { "aria-hidden": "true" }, sign),
        `${words[kind]} `,
        make("b", "", {}, grouped(this.scene.kinds[kind] ?? 0)),
      );
      chip.setAttribute("aria-pressed", String(this.kindsShown.has(kind)));
      chip.addEventListener("click", () => {
        if (!this.kindsShown.delete(kind)) this.kindsShown.add(kind);
        this.tellKinds();
        this.fillList();
      });
      kinds.append(chip);
      if (focused === kind) chip.focus();
    }
  }

  fillList() {
    const { story } = this.data;
    const rows = story.kind.map((_, row) => row).filter((r) => this.kindsShown.has(story.kind[r]));
    this.parts.list.fill(story, rows, this.chosen);
    this.parts.list.onchoose = (row) => this.jump(row);
  }

  tellStory() {
    const { story: place } = this.parts;
    const { story } = this.data;
    const row = this.chosen;
    if (row < 0) {
      const told = story.kind.length
        ? "Click a cell, or choose one in the list below."
        : "Neither A nor B has a cell in this image.";
      place.replaceChildren(make("p", "cre-hint", {}, told));
      return;
    }
    const { a, b } = this.scene.short;
    const kind = story.kind[row];
    const words = {
      kept: "the same cell in both",
      moved: "in both, elsewhere or with another outline",
      lost: `only ${a} has it`,
      gained: `only ${b} has it`,
      split: `one cell of ${a} is ${story.labels_b[row].length} cells of ${b}`,
      merged: `${story.labels_a[row].length} cells of ${a} are one cell of ${b}`,
    }[kind];
    const facts = make("dl", "cre-facts");
    const fact = (name, text) => facts.append(make("dt", "", {}, name), make("dd", "", {}, text));
    const at = (position) => position.map((value) => value.toFixed(1)).join(", ");
    const axes = story.position[row].length === 3 ? "z, y, x" : "y, x";
    const [p, q] = [story.area_a[row], story.area_b[row]];
    const unit = axes.length > 4 ? "voxels" : "px";
    if (p) fact(`in ${a}`, `cell ${story.labels_a[row].join(" + ")}, ${grouped(p)} ${unit}`);
    if (q) fact(`in ${b}`, `cell ${story.labels_b[row].join(" + ")}, ${grouped(q)} ${unit}`);
    if (p && q) {
      const share = ((q - p) / p) * 100;
      fact("area", `${signed(q - p)} ${unit} (${share < 0 ? "\u2212" : "+"}${Math.abs(share).toFixed(1)} %)`);
      fact("IoU", story.iou[row].toFixed(3));
    }
    fact(`centre (${axes})`, at(story.position[row]));
    const cuts = story.cut_between[row].map((planes) => `${planes.join(" and ")}`);
    if (cuts.length) fact("cut between", `planes z ${cuts.join("; ")}`);
    if (story.moved[row] !== null) fact("moved by", `${story.moved[row].toFixed(2)} px`);
    if (story.runs && story.runs[row] !== null) {
      const [n, all] = [story.runs[row], story.n_runs];
      fact("stable in", `${n} of ${all} runs (${Math.round((n / all) * 100)} %)`);
    }
    const title = make("p", "cre-told", {}, badge(kind, story.words[kind]), make("span", "", {}, words));
    place.replaceChildren(title, facts);
  }

  // Choose a change, or none with -1; its cells are marked on the picture.
  pick(row) {
    this.chosen = row;
    this.tellStory();
    this.parts.list.mark(row);
    this.redraw("mark");
    const { story } = this.data;
    const keys = ["kind", "labels_a", "labels_b", "iou", "position", "area_a", "area_b", "moved"];
    const told = row < 0 ? {} : Object.fromEntries(keys.map((key) => [key, story[key][row]]));
    this.model.set("selected", told);
    this.model.save_changes();
  }

  // The cell at a place on the canvas; again at the same place: the other run's cell there.
  pickAt(x, y) {
    const p = this.pixelAt(x, y);
    if (p === undefined) return;
    const here = ["a", "b"]
      .map((side) => this.rowOf[side].get(this.data[side][p]))
      .filter((row) => row !== undefined);
    if (!here.length) this.pick(-1);
    else this.pick(here[0] === this.chosen ? here.at(-1) : here[0]);
  }

  jump(row) {
    const { story } = this.data;
    const place = story.position[row];
    const z = place.length === 3 ? Math.round(place[0]) : this.scene.z;
    this.pick(row);
    const [y, x] = place.slice(-2);
    const area = Math.max(story.area_a[row], story.area_b[row]);
    const size = Math.sqrt(place.length === 3 ? area ** (2 / 3) : area);
    const { width, height } = this.parts.canvas;
    const near = (0.14 * Math.min(width, height)) / size / this.fitted;
    const zoom = this.clamped(Math.max(this.view.zoom, near));
    const scale = this.fitted * zoom;
    this.look(zoom, width / 2 - (x + 0.5) * scale, height / 2 - (y + 0.5) * scale);
    if (z !== this.scene.z) this.ask({ z });
  }

  nextChange(by) {
    this.parts.list.choose(this.parts.list.chosen < 0 && by < 0 ? Infinity : this.parts.list.chosen + by);
  }

  // ---- what is shown -------------------------------------------------------------------------

  choose(mode) {
    if (mode === "agreement" && !this.data[this.vote]) {
      if (this.scene.planes[this.vote]) this.fetchVotes(mode);
      return;
    }
    this.mode = mode;
    const { lines = false, areas = false, votes = false } = MODES[mode];
    Object.assign(this.show, { a: lines, b: lines, agree: false, votes });
    Object.assign(this.show, { only_a: areas, only_b: areas, other_object: areas });
    for (const [name, element] of Object.entries(this.parts.buttons)) {
      element.setAttribute("aria-pressed", String(name === mode));
    }
    this.tellBoxes();
    this.parts.opacity.value = String(Math.round(this.opacity[mode] * 100));
    this.tellRamp();
    this.beat();
    this.redraw("categories", "votes");
  }

  tellBoxes() {
    for (const [key, input] of Object.entries(this.parts.boxes)) input.checked = this.show[key];
  }

  toggle(key) {
    if (key === "truth" && this.parts.rows.truth.hidden) return;
    this.show[key] = !this.show[key];
    this.tellBoxes();
    if (AREAS.includes(key) || key === "patterns") this.redraw("categories");
    else this.redraw();
  }

  async fetchVotes(mode) {
    const { scene, vote } = this;
    this.loads += 1;
    this.tellLoading();
    try {
      const plane = await this.planes.get(scene.planes[vote]);
      if (this.scene !== scene) return;
      this.data[vote] = plane.values;
      this.nVotes = plane.n_runs;
      this.choose(mode);
    } catch (error) {
      this.say(String(error.message ?? error));
    } finally {
      this.loads -= 1;
      this.tellLoading();
    }
  }

  // Colours from few runs (bright) to all runs (dark), also told by numbers.
  voteColours() {
    const stops = this.drawing.agreement;
    const channels = stops.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    const colours = [];
    for (let n = 1; n <= this.nVotes; n++) {
      const place = this.nVotes === 1 ? 0 : ((n - 1) / (this.nVotes - 1)) * (stops.length - 1);
      const low = Math.min(stops.length - 2, Math.floor(place));
      const rgb = channels[low].map((v, i) => v + (channels[low + 1][i] - v) * (place - low));
      colours.push(`#${rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`);
    }
    return colours;
  }

  tellRamp() {
    const { ramp, vote } = this.parts;
    vote.value = this.vote;
    if (this.mode !== "agreement") return;
    const colours = this.voteColours();
    ramp.replaceChildren(make("span", "cre-of", {}, "1 run"));
    for (const colour of colours) {
      const swatch = make("span", "cre-area");
      swatch.style.background = colour;
      ramp.append(swatch);
    }
    ramp.append(make("span", "cre-of", {}, `all ${this.nVotes}`));
  }

  drawCurtainAt(share) {
    this.curtain = Math.min(1, Math.max(0, share));
    this.parts.curtain.value = String(Math.round(this.curtain * 1000));
    if (this.mode !== "curtain") this.choose("curtain");
    else this.redraw();
  }

  // Blinking: a change every 1 / perSecond seconds while it plays; never more than three.
  beat() {
    clearTimeout(this.timer);
    const { blink, parts } = this;
    parts.play.textContent = blink.playing ? "Pause" : "Play";
    if (this.mode !== "blink" || !blink.playing) return;
    this.timer = setTimeout(() => {
      this.turn();
      this.beat();
    }, 1000 / blink.perSecond);
  }

  turn() {
    this.blink.side = this.blink.side === "a" ? "b" : "a";
    this.redraw();
  }

  turnByHand() {
    if (this.mode !== "blink") this.choose("blink");
    this.blink.playing = false;
    this.beat();
    this.turn();
  }

  // ---- the view ------------------------------------------------------------------------------

  // Size of the canvas: the whole image at zoom 1, as large as page and height allow.
  fit() {
    const { root, canvas, body, stage } = this.parts;
    if (body.clientWidth === 0) return; // hidden, for example in a collapsed cell
    const beside = body.clientWidth >= WIDE_CSS;
    root.dataset.wide = beside ? "1" : "0";
    const widthCss = body.clientWidth - (beside ? SIDE_CSS : 0);
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
    this.parts.list.paint();
  }

  largest() {
    return Math.max(1, (LARGEST_PIXEL_CSS * this.ratio) / this.fitted);
  }

  clamped(zoom) {
    return Math.min(this.largest(), Math.max(1, zoom));
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
    this.zoomTo(this.view.zoom * factor, x, y);
  }

  zoomTo(zoom, x = this.parts.canvas.width / 2, y = this.parts.canvas.height / 2) {
    const { scale, offsetX, offsetY } = this.view;
    const wanted = this.clamped(zoom);
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
      if (name === "image") paintPicture(this.layers.image, this.levels, this.place());
      else if (name === "categories") this.drawCategories();
      else if (name === "votes") this.drawVotes();
      else if (name === "mark") this.drawMark();
      else this.drawOutline(name);
      this.stale.delete(name);
    }
    const layered = performance.now();
    this.composite();
    this.report(layered - started, performance.now() - layered);
  }

  seen(layer) {
    if (layer === "categories") return AREAS.some((name) => this.show[name]);
    if (layer === "mark") return this.chosen >= 0;
    if (layer === "votes") return this.show.votes && this.data[this.vote] !== undefined;
    return this.show[layer] && this.data[layer] !== undefined;
  }

  // Differences stand out on a dimmed image, also on cells as bright as their colours.
  brightness() {
    return this.mode === "categories" || this.mode === "agreement" ? this.drawing.dimmed : 1;
  }

  place() {
    const { width, height } = this.parts.canvas;
    return { view: this.view, columns: this.columns, rows: this.rows, width, height };
  }

  dash(name) {
    return this.drawing.dashes[name]?.map((n) => Math.max(1, Math.round(n * this.ratio)));
  }

  drawOutline(name) {
    const thicknessCss = this.view.scale < this.ratio ? 1 : 2;
    outline(this.layers[name], this.data[name], {
      ...this.place(),
      thickness: Math.max(1, Math.round(thicknessCss * this.ratio)),
      colour: packedColour(this.drawing.colours[name]),
      dash: this.dash(name),
    });
  }

  drawCategories() {
    const { colours, agree_share: agreeShare, darker } = this.drawing;
    const packed = (share) =>
      CATEGORIES.map((name) => {
        const alpha = name === "agree" ? agreeShare : 1;
        return this.show[name] ? packedColour(colours[name], alpha, share) : 0;
      });
    paintCategories(this.layers.categories, this.data.categories, this.differs, {
      ...this.place(),
      colours: packed(1),
      darker: this.show.patterns ? packed(darker) : undefined,
      unit: Math.max(1, Math.round(this.ratio)),
    });
  }

  drawVotes() {
    const { agreed } = this.drawing;
    const alpha = (i) => (i === this.nVotes - 1 ? agreed : 1); // what nobody disputes is faint
    const colours = [0, ...this.voteColours().map((colour, i) => packedColour(colour, alpha(i)))];
    paintNumbers(this.layers.votes, this.data[this.vote], { ...this.place(), colours });
  }

  // The chosen cells in white, A solid and B dashed on black, with a ring where they are small.
  drawMark() {
    const { story } = this.data;
    const row = this.chosen;
    const layer = this.layers.mark;
    const { width, height } = this.parts.canvas;
    const white = Math.max(1, Math.round((this.view.scale < this.ratio ? 1 : 2) * this.ratio));
    const black = white + Math.max(1, Math.round(this.ratio));
    const sides = [
      ["a", new Set(story.labels_a[row])],
      ["b", new Set(story.labels_b[row])],
    ].filter(([, only]) => only.size);
    layer.canvas.width = width; // which clears it
    layer.canvas.height = height;
    const box = this.screenBox(sides, black);
    if (box) {
      const [left, top, boxWidth, boxHeight] = box;
      const view = { ...this.view };
      view.offsetX -= left;
      view.offsetY -= top;
      this.small ??= new Layer();
      this.small.cleared(boxWidth, boxHeight);
      const common = { view, columns: this.columns, width: boxWidth, height: boxHeight };
      Object.assign(common, { add: true, unfinished: true });
      const [dark, light] = [packedColour("#000000"), packedColour("#ffffff")];
      for (const [side, only] of sides) {
        outline(this.small, this.data[side], { ...common, only, thickness: black, colour: dark });
      }
      for (const [side, only] of [...sides].reverse()) {
        const look = { ...common, only, thickness: white, colour: light, dash: this.dash(side) };
        outline(this.small, this.data[side], look);
      }
      this.small.finish();
      layer.context.drawImage(this.small.canvas, left, top);
    }
    const [y, x] = story.position[row].slice(-2);
    const { scale, offsetX, offsetY } = this.view;
    const area = Math.max(story.area_a[row], story.area_b[row]);
    const radius = Math.sqrt(area / Math.PI) * scale;
    if (radius > 14 * this.ratio || story.position[row].length === 3) return;
    const { context } = layer;
    for (const [colour, wide] of [["#000000", 4], ["#ffffff", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide * this.ratio;
      context.beginPath();
      const place = [(x + 0.5) * scale + offsetX, (y + 0.5) * scale + offsetY];
      context.arc(...place, radius + 10 * this.ratio, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // Where the chosen cells are on the canvas: left, top, width, height; none if out of sight.
  screenBox(sides, margin) {
    let [top, left, bottom, right] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const [side, only] of sides) {
      const boxes = boxesOf(this.data[side], this.columns);
      for (const label of only) {
        const box = boxes.get(label);
        if (!box) continue; // in another plane
        [top, left] = [Math.min(top, box[0]), Math.min(left, box[1])];
        [bottom, right] = [Math.max(bottom, box[2]), Math.max(right, box[3])];
      }
    }
    const { scale, offsetX, offsetY } = this.view;
    const { width, height } = this.parts.canvas;
    const x0 = Math.max(0, Math.floor(left * scale + offsetX) - margin);
    const y0 = Math.max(0, Math.floor(top * scale + offsetY) - margin);
    const x1 = Math.min(width, Math.ceil((right + 1) * scale + offsetX) + margin);
    const y1 = Math.min(height, Math.ceil((bottom + 1) * scale + offsetY) + margin);
    return x1 > x0 && y1 > y0 ? [x0, y0, x1 - x0, y1 - y0] : undefined;
  }

  composite() {
    const { context } = this;
    const { width, height } = this.parts.canvas;
    context.globalAlpha = 1;
    context.fillStyle = "#000";
    context.fillRect(0, 0, width, height);
    const split = Math.round(this.curtain * width);
    const spans = {};
    if (this.mode === "curtain") Object.assign(spans, { a: [0, split], b: [split, width] });
    if (this.mode === "blink") spans[this.blink.side === "a" ? "b" : "a"] = [0, 0];
    for (const name of LAYERS) {
      const [from, to] = spans[name] ?? [0, width];
      if (!this.seen(name) || to <= from) continue;
      const full = name === "mark" ? 1 : this.opacity[this.mode];
      context.globalAlpha = name === "image" ? this.brightness() : full;
      const place = [from, 0, to - from, height];
      context.drawImage(this.layers[name].canvas, ...place, ...place);
    }
    context.globalAlpha = 1;
    if (this.cursor) this.drawCursor();
    this.parts.divider.style.left = `${this.curtain * 100}%`;
  }

  // The pixel that is read by keyboard: a frame around it.
  drawCursor() {
    const { scale, offsetX, offsetY } = this.view;
    const [row, column] = this.cursor;
    const size = Math.max(scale, 7 * this.ratio);
    const left = (column + 0.5) * scale + offsetX - size / 2;
    const top = (row + 0.5) * scale + offsetY - size / 2;
    for (const [colour, wide] of [["#000000", 3], ["#ffffff", 1]]) {
      this.context.strokeStyle = colour;
      this.context.lineWidth = wide * this.ratio;
      this.context.strokeRect(left, top, size, size);
    }
  }

  // The state, for tests and for style sheets.
  report(layersMs, compositeMs) {
    const { zoom, scale, offsetX, offsetY } = this.view;
    const { parts, chosen } = this;
    const { story } = this.data;
    parts.zoom.value = String(Math.round((1000 * Math.log(zoom)) / Math.log(this.largest() || 2)) || 0);
    parts.scale.textContent = `${((100 * scale) / this.ratio).toFixed(0)} %`;
    parts.canvas.style.touchAction = zoom > 1 ? "none" : "pan-y";
    const shown = Object.keys(this.show).filter((key) => this.show[key] && key !== "patterns");
    Object.assign(parts.root.dataset, {
      mode: this.mode,
      shows: shown.sort().join(" "),
      patterns: this.show.patterns ? "1" : "0",
      chosen: chosen < 0 ? "" : `${story.kind[chosen]} ${cellNumbers(story, chosen)}`,
      image: this.names.image,
      a: this.names.a,
      b: this.names.b,
      z: String(this.scene.z),
      blink: this.blink.side,
      playing: this.blink.playing ? "1" : "0",
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

  pixelAt(x, y) {
    const column = Math.floor((x - this.view.offsetX) / this.view.scale);
    const row = Math.floor((y - this.view.offsetY) / this.view.scale);
    if (column < 0 || row < 0 || column >= this.columns || row >= this.rows) return undefined;
    return row * this.columns + column;
  }

  read(x, y) {
    const p = this.pixelAt(x, y);
    if (p !== undefined) this.readPixel(p);
  }

  readPixel(p) {
    const [row, column] = [Math.floor(p / this.columns), p % this.columns];
    const label = (name) => (this.data[name][p] ? `cell ${this.data[name][p]}` : "background");
    const words = {
      background: "background in both",
      agree: "same object",
      only_a: `only ${this.scene.short.a}`,
      only_b: `only ${this.scene.short.b}`,
      other_object: "cell in both, but another object",
    };
    const name = CATEGORIES[this.data.categories[p]];
    const { cells, root } = this.parts;
    cells.pixel.textContent = `${row}, ${column}`;
    cells.value.textContent = imageValue(this.data.image, this.imagePlane, p);
    cells.a.textContent = label("a");
    cells.b.textContent = label("b");
    cells.truth.textContent = this.parts.reads.truth.hidden ? "" : label("truth");
    const votes = this.mode === "agreement" && this.data[this.vote];
    this.parts.reads.votes.hidden = !votes;
    cells.votes.textContent = votes ? `${votes[p]} of ${this.nVotes}` : "";
    cells.category.textContent = words[name];
    cells.category.style.setProperty("--colour", this.drawing.colours[name] ?? "transparent");
    const told = Object.values(cells).map((cell) => cell.textContent);
    root.dataset.readout = told.filter((text) => text).join(" | ");
  }

  // Read one pixel on; the first step begins in the middle of what is seen.
  moveCursor(down, right) {
    const { width, height } = this.parts.canvas;
    const middle = this.pixelAt(width / 2, height / 2);
    const [row, column] = this.cursor ?? [Math.floor(middle / this.columns), middle % this.columns];
    const to = (value, limit) => Math.min(limit - 1, Math.max(0, value));
    const y = to(row + (this.cursor ? down : 0), this.rows);
    const x = to(column + (this.cursor ? right : 0), this.columns);
    this.cursor = [y, x];
    const { scale, offsetX, offsetY } = this.view;
    const [left, top] = [x * scale + offsetX, y * scale + offsetY];
    if (left < 0 || top < 0 || left + scale > width || top + scale > height) {
      this.look(this.view.zoom, offsetX + width / 2 - left, offsetY + height / 2 - top);
    }
    this.readPixel(y * this.columns + x);
    this.redraw();
  }

  pickAtCursor() {
    const { scale, offsetX, offsetY } = this.view;
    if (!this.cursor) this.moveCursor(0, 0);
    const [row, column] = this.cursor;
    this.pickAt((column + 0.5) * scale + offsetX, (row + 0.5) * scale + offsetY);
  }

  // ---- files ---------------------------------------------------------------------------------

  save(what) {
    const { image, a, b } = this.names;
    const named = (...words) => words.join("_").replace(/[^\p{L}\p{N}._-]+/gu, "_");
    const stem = this.scene.n_planes > 1 ? `${image}_z${this.scene.z}` : image;
    if (what === "png") {
      this.parts.canvas.toBlob((blob) => download(blob, `${named(stem, a, b, this.mode)}.png`));
      return;
    }
    const who = what === "categories" ? `${a} and ${b}` : this.names[what];
    const ends = { a: [a, "masks"], b: [b, "masks"], categories: [a, b, "difference"] }[what];
    const values = what === "categories" ? this.data[what] : wideEnough(this.data[what]);
    const about = `cellrepro: ${image}, ${who}`.replace(/[^\x20-\x7e]/g, "?");
    download(tiff(values, this.rows, this.columns, about), `${named(stem, ...ends)}.tif`);
  }

  // ---- listening -----------------------------------------------------------------------------

  listen() {
    const { canvas, divider, curtain, opacity, buttons, boxes, selects } = this.parts;
    const { parts } = this;
    const on = (element, type, act, options = {}) =>
      element?.addEventListener(type, act, { ...options, signal: this.listening.signal });
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) * this.ratio, (event.clientY - box.top) * this.ratio];
    };

    for (const [mode, element] of Object.entries(buttons)) {
      on(element, "click", () => this.choose(mode));
    }
    for (const [key, input] of Object.entries(boxes)) on(input, "change", () => this.toggle(key));
    for (const [key, element] of Object.entries(selects)) {
      on(element, "change", () => this.ask({ [key]: Number(element.value) }));
    }
    on(parts.previous, "click", () => this.step(-1));
    on(parts.next, "click", () => this.step(1));
    on(parts.swap, "click", () => this.swap());
    on(parts.z, "input", () => this.ask({ z: Number(parts.z.value) }));
    on(parts.vote, "change", () => {
      this.vote = parts.vote.value;
      this.stale.add("votes");
      this.choose("agreement");
    });
    on(opacity, "input", () => {
      this.opacity[this.mode] = Number(opacity.value) / 100;
      this.redraw();
    });
    on(parts.zoom, "input", () => this.zoomTo(this.largest() ** (Number(parts.zoom.value) / 1000)));
    on(parts.closer, "click", () => this.zoomBy(1.25, canvas.width / 2, canvas.height / 2));
    on(parts.farther, "click", () => this.zoomBy(0.8, canvas.width / 2, canvas.height / 2));
    on(parts.whole, "click", () => this.look(1, 0, 0));
    on(parts.speed, "input", () => {
      this.blink.perSecond = Number(parts.speed.value) / 10;
      this.beat();
      this.redraw();
    });
    on(parts.play, "click", () => this.play());
    on(parts.turn, "click", () => this.turnByHand());
    for (const [what, element] of Object.entries(parts.exports)) {
      on(element, "click", () => this.save(what));
    }
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
      this.pointers.set(event.pointerId, at(event));
      this.wandered = this.pointers.size > 1 ? Infinity : 0;
      this.cursor = undefined;
    });
    on(canvas, "pointermove", (event) => {
      const here = at(event);
      const before = this.pointers.get(event.pointerId);
      if (before) {
        this.wandered += Math.hypot(here[0] - before[0], here[1] - before[1]);
        const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
        if (other) {
          const apart = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]);
          this.zoomBy(apart(here) / Math.max(1, apart(before)), ...other);
        } else if (this.wandered > 3 * this.ratio) {
          this.panBy(here[0] - before[0], here[1] - before[1]);
        }
        this.pointers.set(event.pointerId, here);
      }
      this.read(...here);
    });
    on(canvas, "pointerup", (event) => {
      if (this.pointers.has(event.pointerId) && this.wandered <= 3 * this.ratio) {
        this.read(...at(event));
        this.pickAt(...at(event));
      }
      this.pointers.delete(event.pointerId);
    });
    on(canvas, "pointercancel", (event) => this.pointers.delete(event.pointerId));
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
      const act = event.shiftKey ? this.readingKeys()[event.key] : undefined;
      const does = act ?? this.keys()[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!does) return;
      event.preventDefault();
      event.stopPropagation();
      does();
    });
  }

  readingKeys() {
    return {
      ArrowLeft: () => this.moveCursor(0, -1),
      ArrowRight: () => this.moveCursor(0, 1),
      ArrowUp: () => this.moveCursor(-1, 0),
      ArrowDown: () => this.moveCursor(1, 0),
    };
  }

  keys() {
    const { canvas } = this.parts;
    const [stepX, stepY] = [canvas.width / 10, canvas.height / 10];
    const modes = Object.keys(MODES).map((mode, i) => [String(i + 1), () => this.choose(mode)]);
    return {
      ...Object.fromEntries(modes),
      ArrowLeft: () => this.panBy(stepX, 0),
      ArrowRight: () => this.panBy(-stepX, 0),
      ArrowUp: () => this.panBy(0, stepY),
      ArrowDown: () => this.panBy(0, -stepY),
      "+": () => this.zoomTo(this.view.zoom * 1.25),
      "=": () => this.zoomTo(this.view.zoom * 1.25),
      "-": () => this.zoomTo(this.view.zoom * 0.8),
      0: () => this.look(1, 0, 0),
      " ": () => this.turnByHand(),
      "[": () => this.drawCurtainAt(this.curtain - 0.02),
      "]": () => this.drawCurtainAt(this.curtain + 0.02),
      ",": () => this.step(-1),
      ".": () => this.step(1),
      n: () => this.nextChange(1),
      p: () => this.nextChange(-1),
      t: () => this.toggle("truth"),
      h: () => this.toggle("patterns"),
      i: () => this.toggle("image"),
      x: () => this.swap(),
      Enter: () => this.pickAtCursor(),
      Escape: () => {
        this.cursor = undefined;
        this.pick(-1);
      },
    };
  }

  play() {
    this.blink.playing = !this.blink.playing;
    this.beat();
    this.redraw();
  }

  swap() {
    const { a, b } = this.choice();
    this.ask({ a: b, b: a });
  }
}

// The names of what a scene shows, in another plane of its stack.
function ofPlane(names, z) {
  const named = ([key, name]) => [key, key === "story" ? name : name.replace(/\d+$/, z)];
  return Object.fromEntries(Object.entries(names).map(named));
}

// Label images are stored in 16 or 32 bit, as Cellpose does and napari expects of labels.
function wideEnough(labels) {
  return labels instanceof Uint8Array ? Uint16Array.from(labels) : labels;
}

function download(blob, name) {
  const link = make("a", "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Called once for every model; its views share what arrived.
export default () => {
  let planes;
  return {
    initialize({ model }) {
      planes = new Planes(model);
    },
    render({ model, el }) {
      const parts = build(model, el);
      const explorer = new Explorer(model, parts, planes);
      let closed = false;
      explorer
        .start()
        .then(() => {
          explorer.say(model.get("problem"));
          if (closed) explorer.close();
        })
        .catch((error) => {
          parts.root.dataset.error = String(error.stack ?? error);
          parts.message.textContent =
            `The masks could not be unpacked (${error}). Use a browser of 2023 or later, ` +
            "or show .to_png() instead.";
        });
      return () => {
        closed = true;
        explorer.close();
      };
    },
  };
};
