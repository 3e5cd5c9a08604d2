// The browser's half of cellrepro.show.explorer: it receives each array once, then draws alone.
//
// browser_code.py joins the files of this folder into the one module that the browser loads:
//   explorer_planes.js     the arrays that the kernel sends
//   explorer_pixels.js     from arrays to pixels
//   explorer_drawing.js    the canvas
//   explorer_files.js      downloads
//   explorer_parts.js      the elements of the page
//   explorer_cells.js      cells, their stories and the list of them
//   explorer_labels.js     names, numbers and switches around the picture
//   explorer_readout.js    what a pixel holds
//   explorer_listening.js  clicks, drags and keys
//   explorer_live.js       sliders of settings
//   explorer.js            this file: the state, and what changes it
//
// Lengths in the code are device pixels unless their name ends in Css.

const LARGEST_PIXEL_CSS = 48; // how big one image pixel can get, in CSS pixels
const WIDE_CSS = 660; // from here on the panel stands beside the picture
const SIDE_CSS = 320; // its least width, with its gap
const CELL_SHARE = 0.14; // of the canvas that a cell takes to which the view moves
const CHOICE = ["view", "a", "b", "z"];
const WHOLE_IMAGE = Object.freeze({ zoom: 1, scale: 1, offsetX: 0, offsetY: 0 });

class Explorer {
  constructor(model, parts, planes) {
    this.model = model;
    this.parts = parts;
    this.planes = planes;
    this.style = model.get("drawing");
    this.heightCss = model.get("height");
    this.drawing = new Drawing(this);
    this.labels = new Labels(this);
    this.readout = new Readout(this);
    this.view = WHOLE_IMAGE;
    this.mode = "outlines";
    this.shown = { image: true, truth: false, patterns: true }; // by the names of check boxes
    this.opacity = Object.fromEntries(Object.entries(MODES).map(([m, o]) => [m, o.opacity]));
    this.curtain = 0.5; // share of the width that shows A
    this.vote = "cells";
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.blink = { side: "a", playing: !isCalm, perSecond: 1 };
    this.kindsListed = new Set(["lost", "gained", "split", "merged", "moved"]);
    this.chosen = -1; // number of a change
    this.wanted = undefined; // choice that the kernel has not answered yet
    this.ahead = undefined; // scene that is shown before the kernel has answered
    this.loads = 0; // under way
    this.listening = new AbortController();
  }

  async start() {
    await this.load();
    this.chooseMode("outlines");
    listen(this);
    this.resizing = new ResizeObserver(() => this.fitCanvas());
    this.resizing.observe(this.parts.root);
    this.watchRatio();
    this.onScene = () => {
      const { ahead, wanted } = this;
      const scene = this.model.get("scene");
      const isShown = ahead && CHOICE.every((key) => scene[key] === ahead[key]);
      if (ahead && wanted && !isShown) return; // the answer to a step before the last one
      this.ahead = undefined;
      if (!isShown) this.reload();
    };
    this.onProblem = () => this.showMessage(this.model.get("problem"));
    this.onAnswer = () => {
      if (this.model.get("answered") >= this.planes.lastRequest) {
        this.wanted = undefined;
        clearTimeout(this.patience);
      }
      this.showLoading();
    };
    this.model.on("change:scene", this.onScene);
    this.model.on("change:answered", this.onAnswer);
    this.model.on("change:problem", this.onProblem);
    this.fetchNext(0);
  }

  close() {
    this.listening.abort();
    this.resizing?.disconnect();
    this.drawing.close();
    clearTimeout(this.blinkTimer);
    clearTimeout(this.patience);
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
        this.fitCanvas();
        this.watchRatio();
      },
      { once: true, signal: this.listening.signal },
    );
  }

  // ---- the scene: an image and two runs --------------------------------------------------------

  // Get the planes of the scene, then take it over.
  async load() {
    const scene = this.ahead ?? this.model.get("scene");
    const names = scene.planes;
    const contents = ["image", "a", "b", "categories", "story"];
    if (names.truth) contents.push("truth");
    if (this.mode === "agreement" && names[this.vote]) contents.push(this.vote);
    const loaded = await Promise.all(contents.map((content) => this.planes.get(names[content])));
    if ((this.ahead ?? this.model.get("scene")) !== scene) return this.load(); // chosen anew
    const planes = Object.fromEntries(contents.map((content, i) => [content, loaded[i]]));
    this.takeOver(scene, planes);
    return undefined;
  }

  takeOver(scene, planes) {
    const isSameImage = this.scene?.planes.image === scene.planes.image;
    if (this.scene?.planes.story !== scene.planes.story) this.chosen = -1; // a row of another story
    this.scene = scene;
    this.names = scene.names;
    this.data = Object.fromEntries(Object.entries(planes).map(([key, { values }]) => [key, values]));
    this.data.story.words = kindWords(scene.truth_is);
    this.nVotes = planes[this.vote]?.n_runs ?? 0;
    const [rows, columns] = planes.image.shape;
    if (this.rows !== rows || this.columns !== columns) this.fitted = undefined;
    this.rows = rows;
    this.columns = columns;
    this.imagePlane = planes.image;
    if (!isSameImage) this.levels = halved(coloured(this.data.image, planes.image, this.channels()));
    this.differs = differing(this.data.categories);
    this.showScene();
  }

  // The colours of the image's channels by name; of more than three the first three are shown.
  channels() {
    const { channels } = this.style;
    return channels[Math.min(this.imagePlane.shape[2], channels.length) - 1];
  }

  async reload() {
    this.loads += 1;
    this.showLoading();
    try {
      const before = this.scene;
      await this.load();
      const { scene } = this;
      if (scene.planes.story !== before.planes.story) this.chooseChange(-1);
      const isOtherImage = scene.view !== before.view;
      if (isOtherImage) this.view = WHOLE_IMAGE;
      if (this.mode === "agreement" && !this.data[this.vote]) this.chooseMode("outlines");
      this.showMessage("");
      if (!this.fitted) this.fitCanvas();
      else if (isOtherImage) this.moveView(1, 0, 0);
      else this.redraw(...LAYERS);
      this.fetchNext(scene.z - before.z);
    } catch (error) {
      this.giveUp(String(error.message ?? error));
    } finally {
      this.loads -= 1;
      this.showLoading();
    }
  }

  // Of a stack fetch the planes to which the next steps will lead, if they go on as the last one;
  // at the beginning those on both sides.
  fetchNext(lastStep) {
    const { z, n_planes: n, planes } = this.scene;
    const shown = Object.keys(this.data).filter((content) => content !== "story");
    const direction = Math.sign(lastStep);
    const steps = direction ? [direction, 2 * direction] : [1, -1];
    for (const next of steps.map((step) => z + step)) {
      if (next < 0 || next >= n) continue;
      const names = ofPlane(planes, next);
      for (const content of shown) {
        this.planes.get(names[content]).catch(() => {}); // it is shown when the plane is chosen
      }
    }
  }

  showLoading() {
    this.parts.root.dataset.loading = this.loads || this.wanted ? "1" : "0";
  }

  showMessage(text) {
    this.parts.message.textContent = text;
    this.parts.message.hidden = !text;
    this.parts.root.dataset.problem = text;
    if (!text || !this.scene) return;
    this.labels.showChoice(); // what could not be shown is not chosen
    this.labels.showPlaneSlider();
  }

  showScene() {
    const { scene } = this;
    this.labels.show();
    if (this.storyShown === scene.planes.story) return; // another plane of the same stack
    this.storyShown = scene.planes.story;
    this.showKinds();
    this.indexStory();
    this.fillList();
    this.showStory();
  }

  // What was chosen last, whether or not the kernel has followed.
  choice() {
    // Not `this.scene`: its planes may still be on their way.
    const { view, a, b, z } = this.wanted ?? this.model.get("scene");
    return { view, a, b, z };
  }

  // Ask the kernel for another scene.
  request(change) {
    const before = this.choice();
    if (Object.keys(change).every((key) => change[key] === before[key])) {
      if (!this.wanted) this.showMessage("");
      return;
    }
    this.wanted = { ...before, ...change };
    this.showLoading();
    // Numbered, or asking again for what was refused would change nothing.
    this.planes.lastRequest += 1;
    this.model.set("choice", { ...this.wanted, asked: this.planes.lastRequest });
    this.model.save_changes();
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.giveUp(NO_ANSWER), PATIENCE_MS);
    this.showAhead();
  }

  // What was asked for did not come: what is shown stays chosen, and can be left again.
  giveUp(reason) {
    this.wanted = undefined;
    this.ahead = undefined;
    this.showMessage(reason);
    this.showLoading();
  }

  // Another plane of the same stack is shown without waiting for the kernel to say what is in it.
  showAhead() {
    const { scene, wanted } = this;
    if (CHOICE.some((key) => key !== "z" && wanted[key] !== scene[key])) return;
    this.ahead = { ...scene, z: wanted.z, planes: ofPlane(scene.planes, wanted.z) };
    this.reload();
  }

  // Exchange A and B.
  swap() {
    const { a, b } = this.choice();
    this.request({ a: b, b: a });
  }

  stepImage(by) {
    const view = this.choice().view + by;
    if (view >= 0 && view < this.model.get("images").length) this.request({ view });
  }

  stepPlane(by) {
    const z = this.choice().z + by;
    if (z >= 0 && z < this.scene.n_planes) this.request({ z });
  }

  // ---- cells and their stories -----------------------------------------------------------------

  // Know the row of the story by the label of a cell.
  indexStory() {
    const { story } = this.data;
    const rowsByLabel = (labelsOfRows) => {
      const rows = new Map();
      labelsOfRows.forEach((labels, row) => labels.forEach((label) => rows.set(label, row)));
      return rows;
    };
    this.rowOf = { a: rowsByLabel(story.labels_a), b: rowsByLabel(story.labels_b) };
  }

  // A button for each kind of change, which lists its cells or not.
  showKinds() {
    const { kinds } = this.parts;
    const focused = kinds.contains(document.activeElement) && document.activeElement.dataset.kind;
    kinds.replaceChildren();
    const { words } = this.data.story;
    for (const [kind, says] of Object.entries(KINDS)) {
      const title = TRUTH_WORDS[words[kind]] ?? says;
      const chip = button(`cre-chip cre-chip-${kind}`, "", { "data-kind": kind, title });
      chip.append(
        make("span", `cre-sign cre-sign-${kind}`, { "aria-hidden": "true" }, SIGNS[kind]),
        `${words[kind]} `,
        make("b", "", {}, grouped(this.scene.kinds[kind] ?? 0)),
      );
      chip.setAttribute("aria-pressed", String(this.kindsListed.has(kind)));
      chip.addEventListener("click", () => {
        if (!this.kindsListed.delete(kind)) this.kindsListed.add(kind);
        this.showKinds();
        this.fillList();
      });
      kinds.append(chip);
      if (focused === kind) chip.focus();
    }
  }

  fillList() {
    const { story } = this.data;
    const rows = story.kind.map((_, row) => row).filter((r) => this.kindsListed.has(story.kind[r]));
    this.parts.list.fill(story, rows, this.chosen);
    this.parts.list.onchoose = (row) => this.goToChange(row);
  }

  showStory() {
    const { story } = this.data;
    if (this.chosen >= 0) {
      this.parts.story.replaceChildren(...storyElements(story, this.chosen, this.scene.short));
      return;
    }
    const hint = story.kind.length
      ? "Click a cell, or choose one in the list below."
      : "Neither A nor B has a cell in this image.";
    this.parts.story.replaceChildren(make("p", "cre-hint", {}, hint));
  }

  // Choose a change, or none with -1; its cells are marked on the picture.
  chooseChange(row) {
    this.chosen = row;
    this.showStory();
    this.parts.list.mark(row);
    this.redraw("mark");
    const { story } = this.data;
    const keys = ["kind", "labels_a", "labels_b", "iou", "position", "area_a", "area_b", "moved"];
    const change = row < 0 ? {} : Object.fromEntries(keys.map((key) => [key, story[key][row]]));
    this.model.set("selected", change);
    this.model.save_changes();
  }

  // Choose the cell at a point of the canvas; at the same point again, the other run's cell.
  chooseChangeAt(x, y) {
    const p = this.pixelAt(x, y);
    if (p === undefined) return;
    const rows = ["a", "b"]
      .map((side) => this.rowOf[side].get(this.data[side][p]))
      .filter((row) => row !== undefined);
    if (!rows.length) this.chooseChange(-1);
    else this.chooseChange(rows[0] === this.chosen ? rows.at(-1) : rows[0]);
  }

  chooseChangeAtCursor() {
    const { scale, offsetX, offsetY } = this.view;
    if (!this.readout.cursor) this.readout.moveCursor(0, 0);
    const [row, column] = this.readout.cursor;
    this.chooseChangeAt((column + 0.5) * scale + offsetX, (row + 0.5) * scale + offsetY);
  }

  // Choose a change and move the view to its cells.
  goToChange(row) {
    const { story } = this.data;
    const position = story.position[row];
    const isStack = position.length === 3;
    const z = isStack ? Math.round(position[0]) : this.scene.z;
    this.chooseChange(row);
    const [y, x] = position.slice(-2);
    const area = Math.max(story.area_a[row], story.area_b[row]);
    const size = Math.sqrt(isStack ? area ** (2 / 3) : area);
    const { width, height } = this.parts.canvas;
    const closeZoom = (CELL_SHARE * Math.min(width, height)) / size / this.fitted;
    const zoom = this.clampedZoom(Math.max(this.view.zoom, closeZoom));
    const scale = this.fitted * zoom;
    this.moveView(zoom, width / 2 - (x + 0.5) * scale, height / 2 - (y + 0.5) * scale);
    if (z !== this.scene.z) this.request({ z });
  }

  nextChange(by) {
    const { list } = this.parts;
    const isFirstStepBack = list.chosen < 0 && by < 0;
    list.choose(isFirstStepBack ? Infinity : list.chosen + by);
  }

  // ---- what is shown -------------------------------------------------------------------------

  chooseMode(mode) {
    if (mode === "agreement" && !this.data[this.vote]) {
      if (this.scene.planes[this.vote]) this.fetchVotes(mode);
      return;
    }
    this.mode = mode;
    const { lines = false, areas = false, votes = false } = MODES[mode];
    Object.assign(this.shown, { a: lines, b: lines, agree: false, votes });
    Object.assign(this.shown, { only_a: areas, only_b: areas, other_object: areas });
    for (const [name, element] of Object.entries(this.parts.buttons)) {
      element.setAttribute("aria-pressed", String(name === mode));
    }
    this.showBoxes();
    this.parts.opacity.value = String(Math.round(this.opacity[mode] * 100));
    this.showRamp();
    this.scheduleBlink();
    this.redraw("categories", "votes");
  }

  showBoxes() {
    for (const [key, input] of Object.entries(this.parts.boxes)) input.checked = this.shown[key];
  }

  chooseVote(vote) {
    this.vote = vote;
    this.chooseMode("agreement");
  }

  setOpacity(opacity) {
    this.opacity[this.mode] = opacity;
    this.redraw();
  }

  toggle(key) {
    if (key === "truth" && this.parts.rows.truth.hidden) return;
    this.shown[key] = !this.shown[key];
    this.showBoxes();
    if (AREAS.includes(key) || key === "patterns") this.redraw("categories");
    else this.redraw();
  }

  async fetchVotes(mode) {
    const { scene, vote } = this;
    this.loads += 1;
    this.showLoading();
    try {
      const plane = await this.planes.get(scene.planes[vote]);
      if (this.scene !== scene) return;
      this.data[vote] = plane.values;
      this.nVotes = plane.n_runs;
      this.chooseMode(mode);
    } catch (error) {
      this.showMessage(String(error.message ?? error));
    } finally {
      this.loads -= 1;
      this.showLoading();
    }
  }

  showRamp() {
    const { ramp, vote } = this.parts;
    vote.value = this.vote;
    if (this.mode !== "agreement") return;
    const colours = voteColours(this.style.agreement, this.nVotes);
    ramp.replaceChildren(make("span", "cre-of", {}, "1 run"));
    for (const colour of colours) {
      const swatch = make("span", "cre-area");
      swatch.style.background = colour;
      ramp.append(swatch);
    }
    ramp.append(make("span", "cre-of", {}, `all ${this.nVotes}`));
  }

  moveCurtain(share) {
    this.curtain = Math.min(1, Math.max(0, share));
    this.parts.curtain.value = String(Math.round(this.curtain * 1000));
    if (this.mode !== "curtain") this.chooseMode("curtain");
    else this.redraw();
  }

  togglePlaying() {
    this.blink.playing = !this.blink.playing;
    this.scheduleBlink();
    this.redraw();
  }

  setBlinkSpeed(perSecond) {
    this.blink.perSecond = perSecond;
    this.scheduleBlink();
    this.redraw();
  }

  // While it plays, A and B change places every 1 / perSecond seconds.
  scheduleBlink() {
    clearTimeout(this.blinkTimer);
    const { blink, parts } = this;
    parts.play.textContent = blink.playing ? "Pause" : "Play";
    if (this.mode !== "blink" || !blink.playing) return;
    this.blinkTimer = setTimeout(() => {
      this.showOtherRun();
      this.scheduleBlink();
    }, 1000 / blink.perSecond);
  }

  showOtherRun() {
    this.blink.side = this.blink.side === "a" ? "b" : "a";
    this.redraw();
  }

  turnByHand() {
    if (this.mode !== "blink") this.chooseMode("blink");
    this.blink.playing = false;
    this.scheduleBlink();
    this.showOtherRun();
  }

  // ---- the view ------------------------------------------------------------------------------

  // Size of the canvas: the whole image at zoom 1, as large as page and height allow.
  fitCanvas() {
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
    this.moveView(this.view.zoom, this.view.offsetX * grown, this.view.offsetY * grown);
    this.parts.list.paint();
  }

  largestZoom() {
    return Math.max(1, (LARGEST_PIXEL_CSS * this.ratio) / this.fitted);
  }

  clampedZoom(zoom) {
    return Math.min(this.largestZoom(), Math.max(1, zoom));
  }

  // Move the view; the image always covers the canvas. `fitted` is the scale at zoom 1.
  moveView(zoom, offsetX, offsetY) {
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
    const wanted = this.clampedZoom(zoom);
    const grown = (this.fitted * wanted) / scale; // what lies at (x, y) stays there
    this.moveView(wanted, x - (x - offsetX) * grown, y - (y - offsetY) * grown);
  }

  panBy(x, y) {
    this.moveView(this.view.zoom, this.view.offsetX + x, this.view.offsetY + y);
  }

  // Draw before the next frame, first the layers named here.
  redraw(...layers) {
    this.drawing.request(...layers);
  }

  // The state, for tests and for style sheets.
  report(layersMs, compositeMs) {
    const { zoom, scale, offsetX, offsetY } = this.view;
    const { parts, chosen } = this;
    const { story } = this.data;
    parts.zoom.value = String(Math.round((1000 * Math.log(zoom)) / Math.log(this.largestZoom() || 2)) || 0);
    parts.scale.textContent = `${((100 * scale) / this.ratio).toFixed(0)} %`;
    parts.canvas.style.touchAction = zoom > 1 ? "none" : "pan-y";
    const shown = Object.keys(this.shown).filter((key) => this.shown[key] && key !== "patterns");
    Object.assign(parts.root.dataset, {
      mode: this.mode,
      shows: shown.sort().join(" "),
      patterns: this.shown.patterns ? "1" : "0",
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
      const live = model.get("live") && new LiveSettings(model, parts);
      let closed = false;
      explorer
        .start()
        .then(() => {
          explorer.showMessage(model.get("problem"));
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
        live?.close();
        explorer.close();
      };
    },
  };
};
