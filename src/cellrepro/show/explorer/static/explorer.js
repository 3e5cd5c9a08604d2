// The browser's half of cellrepro.show.explorer: it receives each array once, then draws alone.
//
// browser_code.py joins the files of this folder into the one module that the browser loads:
//   explorer_planes.js     the arrays that the kernel sends
//   explorer_pixels.js     from arrays to pixels
//   explorer_channels.js   colours and contrast of the image's channels
//   explorer_blink.js      A and B in turn
//   explorer_panes.js      one picture, or A and B side by side
//   explorer_scale_bar.js  a bar of a round length
//   explorer_overview.js   where changed cells lie in a large image, and in a stack
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
const LIVE_CSS = { wide: 800, side: 420 }; // the same where sliders of settings stand in it
const SEEN_SHARE = 0.45; // of the window's height that a picture takes which stays above the sliders
const LOW_SHARE = 0.8; // of the height there is, up to which two pictures side by side are low
const CELL_SHARE = 0.14; // of the canvas that a cell takes to which the view moves
const STYLES = ["patterns", "scale_bar"]; // how things are shown, and nothing that is shown
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
    this.channels = new Channels(this);
    this.overview = new Overview(this);
    this.panes = panesOf("outlines");
    this.view = WHOLE_IMAGE;
    this.mode = "outlines";
    this.shown = { image: true, truth: false, patterns: true, scale_bar: true }; // by the names of check boxes
    this.opacity = Object.fromEntries(Object.entries(MODES).map(([m, o]) => [m, o.opacity]));
    this.curtain = 0.5; // share of the width that shows A
    this.vote = "cells";
    this.blink = new Blink(this);
    this.kindsListed = new Set(Object.keys(KINDS).filter((kind) => kind !== "kept"));
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
    this.onSaid = (content) => {
      if (content?.said !== undefined) this.showMessage(content.said);
    };
    this.onProblem = () => this.showMessage(this.model.get("problem"));
    this.onAnswer = () => {
      if (this.model.get("answered") >= this.planes.lastRequest) {
        this.wanted = undefined;
        clearTimeout(this.patience);
      }
      this.showLoading();
    };
    this.onSelected = () => this.showSelected();
    this.model.on("change:selected", this.onSelected);
    this.model.on("change:scene", this.onScene);
    this.model.on("change:answered", this.onAnswer);
    this.model.on("change:problem", this.onProblem);
    this.model.on("msg:custom", this.onSaid);
    this.fetchNext(0);
  }

  close() {
    this.listening.abort();
    this.resizing?.disconnect();
    this.drawing.close();
    this.blink.close();
    clearTimeout(this.patience);
    this.model.off("change:selected", this.onSelected);
    this.model.off("change:scene", this.onScene);
    this.model.off("change:answered", this.onAnswer);
    this.model.off("change:problem", this.onProblem);
    this.model.off("msg:custom", this.onSaid);
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
    const isSameStack = this.scene?.view === scene.view;
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
    if (!isSameImage) {
      this.pictures = undefined;
      this.channels.take(planes.image, isSameStack);
    }
    this.differs = differing(this.data.categories);
    this.showScene();
  }

  // The picture of the image and smaller copies of it.
  levels() {
    this.pictures ??= halved(this.channels.picture());
    return this.pictures;
  }

  // Mix the channels of the image anew.
  recolour() {
    this.pictures = undefined;
    this.overview.refresh();
    this.redraw("image");
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
    this.overview.refresh();
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

  // Sides and images that can be chosen: all, unless the page around shows two runs only.
  choosable() {
    const views = this.model.get("images").map((_, view) => view);
    return { sides: this.scene.sides, views, ...this.model.get("only") };
  }

  stepImage(by) {
    const { views } = this.choosable();
    const view = views[views.indexOf(this.choice().view) + by];
    if (view !== undefined) this.request({ view });
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
    kinds.replaceChildren(make("span", "cre-of", {}, "listed:"));
    const { words } = this.data.story;
    const counts = {};
    this.data.story.kind.forEach((_, row) => {
      const fate = fateOf(this.data.story, row);
      counts[fate] = (counts[fate] ?? 0) + 1;
    });
    for (const [kind, says] of Object.entries(KINDS)) {
      if (kind === "resized" && !counts[kind]) continue;
      const title = `${TRUTH_WORDS[words[kind]] ?? says}; click to list these cells or not`;
      const chip = button(`cre-chip cre-chip-${kind}`, "", { "data-kind": kind, title });
      chip.append(
        make("span", "cre-tick", { "aria-hidden": "true" }),
        make("span", `cre-sign cre-sign-${kind}`, { "aria-hidden": "true" }, SIGNS[kind]),
        `${kind === "kept" && counts.resized ? "other kept" : words[kind]} `,
        make("b", "", {}, grouped(counts[kind] ?? 0)),
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

  // The rows of the story that are of the kinds that are listed.
  listedChanges() {
    const { story } = this.data;
    return story.kind.map((_, row) => row).filter((row) => this.kindsListed.has(fateOf(story, row)));
  }

  fillList() {
    const listed = this.listedChanges();
    this.parts.listTitle.textContent = `List of cells (${grouped(listed.length)})`;
    this.parts.list.fill(this.data.story, listed, this.chosen);
    this.overview.refresh();
    this.redraw();
    this.parts.list.onchoose = (row) => this.goToChange(row);
  }

  showStory() {
    const { story } = this.data;
    if (this.chosen >= 0) {
      this.parts.story.replaceChildren(...storyElements(story, this.chosen));
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
    this.redraw(...OF_CHOSEN);
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
    const { width, height } = this.pane;
    const closeZoom = (CELL_SHARE * Math.min(width, height)) / size / this.fitted;
    this.centreOn(y + 0.5, x + 0.5, this.clampedZoom(Math.max(this.view.zoom, closeZoom)));
    if (z !== this.scene.z) this.request({ z });
  }

  // Go to the cell that the page around the explorer, or the kernel, has chosen.
  showSelected() {
    const { labels_a: ofA = [], labels_b: ofB = [] } = this.model.get("selected") ?? {};
    const row = this.rowOf?.a.get(ofA[0]) ?? this.rowOf?.b.get(ofB[0]);
    if (row !== undefined && row !== this.chosen) this.goToChange(row);
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
    if (this.pane) this.fitCanvas(); // A and B side by side have a pane each
    const { lines = false, areas = false, votes = false } = MODES[mode];
    Object.assign(this.shown, { a: lines, b: lines, agree: false, votes });
    Object.assign(this.shown, { only_a: areas, only_b: areas, other_object: areas });
    for (const [name, element] of Object.entries(this.parts.buttons)) {
      element.setAttribute("aria-pressed", String(name === mode));
    }
    this.showBoxes();
    this.parts.opacity.value = String(Math.round(this.opacity[mode] * 100));
    this.parts.opacityOf.textContent = `opacity of ${lines ? "outlines" : "colours"}`;
    this.showRamp();
    this.blink.schedule();
    this.redraw("categories", "votes");
  }

  showBoxes() {
    for (const [key, input] of Object.entries(this.parts.boxes)) input.checked = this.shown[key];
    this.parts.bothRow.hidden = !this.drawing.isVisible("both");
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
    if (key === "image") this.overview.refresh();
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
    ramp.replaceChildren(make("span", "cre-of", {}, "1"));
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

  // ---- the view ------------------------------------------------------------------------------

  // Size of the canvas: the whole image at zoom 1, as large as page and height allow.
  fitCanvas() {
    const { root, canvas, body, frame, stage, side, aboutCells, live } = this.parts;
    if (body.clientWidth === 0) return; // hidden, for example in a collapsed cell
    const room = live ? LIVE_CSS : { wide: WIDE_CSS, side: SIDE_CSS };
    const beside = body.clientWidth >= room.wide;
    root.dataset.wide = beside ? "1" : "0";
    const widthCss = body.clientWidth - (beside ? room.side : 0);
    const heightCss = live && !beside ? Math.min(this.heightCss, SEEN_SHARE * window.innerHeight) : this.heightCss;
    const { isBeside, pixelCss } =
      this.mode === "sides"
        ? areBeside(this.columns, this.rows, widthCss, heightCss, beside || live)
        : { pixelCss: Math.min(widthCss / this.columns, heightCss / this.rows) };
    const isLow = beside && isBeside === true && this.rows * pixelCss < LOW_SHARE * heightCss;
    const cells = isLow ? stage : side; // below a low picture, where else nothing stands
    if (aboutCells[0].parentElement !== cells) cells.append(...aboutCells);
    live?.place(beside, isLow);
    this.ratio = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(this.columns * pixelCss * this.ratio));
    const height = Math.max(1, Math.round(this.rows * pixelCss * this.ratio));
    this.panes = panesOf(this.mode, isBeside, width, height, Math.round(GAP_CSS * this.ratio));
    const last = this.panes.at(-1);
    const size = [last.x + width, last.y + height];
    if (this.pane?.width === width && this.pane.height === height && canvas.width === size[0]) {
      if (this.fitted && canvas.height === size[1]) return;
    }
    const grown = this.fitted ? width / this.pane.width : 1;
    this.pane = { width, height };
    [canvas.width, canvas.height] = size;
    canvas.style.width = `${canvas.width / this.ratio}px`;
    canvas.style.height = `${canvas.height / this.ratio}px`;
    frame.style.width = canvas.style.width;
    stage.style.width = live && !beside ? "" : canvas.style.width; // sliders need more than a small picture
    root.dataset.panes = this.mode !== "sides" ? "one" : isBeside ? "beside" : "below";
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
    const { width, height } = this.pane;
    const scale = this.fitted * zoom;
    this.view = {
      zoom,
      scale,
      offsetX: Math.min(0, Math.max(width - this.columns * scale, offsetX)),
      offsetY: Math.min(0, Math.max(height - this.rows * scale, offsetY)),
    };
    this.redraw(...LAYERS);
  }

  // Move the view so that a place of the image, in its pixels, is in the middle.
  centreOn(y, x, zoom) {
    const { width, height } = this.pane;
    const scale = this.fitted * zoom;
    this.moveView(zoom, width / 2 - x * scale, height / 2 - y * scale);
  }

  // The bar that says how long something is; none where the file does not say it.
  scaleBar() {
    const { pixel_size: pixelSize } = this.scene;
    if (!pixelSize || !this.shown.scale_bar) return undefined;
    return scaleBar(pixelSize / this.view.scale, this.pane.width);
  }

  zoomBy(factor, x, y) {
    this.zoomTo(this.view.zoom * factor, x, y);
  }

  zoomTo(zoom, x = this.pane.width / 2, y = this.pane.height / 2) {
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
    const shown = Object.keys(this.shown).filter((key) => this.shown[key] && !STYLES.includes(key));
    Object.assign(parts.root.dataset, {
      mode: this.mode,
      shows: shown.sort().join(" "),
      patterns: this.shown.patterns ? "1" : "0",
      bar: this.scaleBar()?.text.replace("\u00a0", " ") ?? "",
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
      pointed: (this.mode === "sides" && this.readout.pointed?.map(Math.round).join(", ")) || "",
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
      if (model.get("live")) parts.live = new LiveSettings(model, parts);
      const explorer = new Explorer(model, parts, planes);
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
        parts.live?.close();
        explorer.close();
      };
    },
  };
};
