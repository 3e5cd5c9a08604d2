// The canvas: draws the state of an explorer, and changes nothing of it.
//
// Two kinds of canvas. Layers (picture, outlines of A, B and truth, and where A and B have the same,
// categories, votes, the chosen cell of each side) have the size of the screen canvas and are drawn again only when the view moves: pan,
// zoom, resize. Everything else (curtain, blinking, opacity, boxes, modes) only composites them.

const MARKS = { mark_b: "b", mark_a: "a" }; // the chosen cell, by the side that has it
const RIMS = { rim_truth: "truth", rim_a: "a", rim_b: "b" }; // by layer: what is seen on bright cells by it
const OF_CHOSEN = [...Object.keys(MARKS), "mark_both", "ring"];
const LAYERS = ["image", "categories", "votes", ...Object.keys(RIMS), "truth", "a", "b", "both", ...OF_CHOSEN]; // from the bottom up
const AREAS = ["agree", "only_a", "only_b", "other_object"];

class Drawing {
  constructor(explorer) {
    this.explorer = explorer;
    this.canvas = explorer.parts.canvas;
    this.context = this.canvas.getContext("2d");
    this.layers = Object.fromEntries(LAYERS.map((name) => [name, new Layer()]));
    this.marks = new Layer(); // the part of such a layer around the cells
    this.others = new Layer(); // the same of the other side
    this.stale = new Set(LAYERS);
  }

  // Draw before the next frame. The layers named here are drawn anew, once they are visible.
  request(...layers) {
    for (const layer of layers) this.stale.add(layer).add(`rim_${layer}`);
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      if (this.explorer.fitted) this.draw();
    });
  }

  close() {
    cancelAnimationFrame(this.frame);
  }

  draw() {
    const started = performance.now();
    for (const name of LAYERS) {
      if (!this.stale.has(name) || !this.isVisible(name)) continue;
      this.drawLayer(name);
      this.stale.delete(name);
    }
    const layersDone = performance.now();
    this.composite();
    this.explorer.overview.draw();
    this.explorer.report(layersDone - started, performance.now() - layersDone);
  }

  isVisible(layer) {
    const { shown, data, chosen, vote, mode } = this.explorer;
    if (layer === "categories") return AREAS.some((name) => shown[name]);
    if (layer in RIMS) return this.isVisible(RIMS[layer]);
    const areTogether = !MODES[mode].apart;
    if (layer === "both") return shown.a && shown.b && areTogether;
    if (layer === "mark_both") return chosen >= 0 && areTogether;
    if (OF_CHOSEN.includes(layer)) return chosen >= 0;
    if (layer === "votes") return shown.votes && data[vote] !== undefined;
    return shown[layer] && data[layer] !== undefined;
  }

  drawLayer(name) {
    if (name === "image") paintPicture(this.layers.image, this.explorer.levels(), this.placement());
    else if (name === "categories") this.drawCategories();
    else if (name === "votes") this.drawVotes();
    else if (name === "both") this.drawOutlinesOfBoth();
    else if (OF_CHOSEN.includes(name)) this.drawMark(name);
    else if (name in RIMS) this.drawRim(name);
    else this.drawOutline(name);
  }

  // How the image lies on a pane, for the functions that paint.
  placement() {
    const { view, columns, rows, pane } = this.explorer;
    return { view, columns, rows, ...pane };
  }

  // One pixel of the screen where the image is shrunk, two where it is enlarged.
  lineWidth() {
    const { view, ratio } = this.explorer;
    const widthCss = view.scale < ratio ? 1 : 2;
    return Math.max(1, Math.round(widthCss * ratio));
  }

  dash(name) {
    const { style, ratio } = this.explorer;
    return style.dashes[name]?.map((length) => Math.max(1, Math.round(length * ratio)));
  }

  drawOutline(name) {
    const { data, style } = this.explorer;
    outline(this.layers[name], data[name], {
      ...this.placement(),
      thickness: this.lineWidth(),
      colour: packedColour(style.colours[name]),
      dash: this.dash(name),
    });
  }

  // Dark, inside of the outline and below all of them; the same rule as `with_outlines`.
  drawRim(name) {
    outline(this.layers[name], this.explorer.data[RIMS[name]], {
      ...this.placement(),
      thickness: this.lineWidth() + Math.max(1, Math.round(this.explorer.ratio)),
      colour: packedColour("#000000"),
    });
  }

  // Where A and B have the same outline, in a colour of neither; the same rule as `with_outlines` in
  // figures/pixels.py.
  drawOutlinesOfBoth() {
    const { data, style } = this.explorer;
    const { a, both } = this.layers; // that of A has no gaps
    const look = { thickness: this.lineWidth(), colour: packedColour(style.colours.agree), unfinished: true };
    outline(both, data.b, { ...this.placement(), ...look });
    for (let p = 0; p < both.pixels.length; p++) if (a.pixels[p] === 0) both.pixels[p] = 0;
    both.finish();
  }

  drawCategories() {
    const { data, differs, shown, style, ratio } = this.explorer;
    const coloursOf = (brightness) =>
      CATEGORIES.map((name) => {
        const alpha = name === "agree" ? style.agree_share : 1;
        return shown[name] ? packedColour(style.colours[name], alpha, brightness) : 0;
      });
    paintCategories(this.layers.categories, data.categories, differs, {
      ...this.placement(),
      colours: coloursOf(1),
      darker: shown.patterns ? coloursOf(style.darker) : undefined,
      unit: Math.max(1, Math.round(ratio)),
    });
  }

  drawVotes() {
    const { data, vote, nVotes, style } = this.explorer;
    const alphaOf = (i) => (i === nVotes - 1 ? style.agreed : 1); // what all runs say is faint
    const ramp = voteColours(style.agreement, nVotes);
    const colours = [0, ...ramp.map((colour, i) => packedColour(colour, alphaOf(i)))];
    paintNumbers(this.layers.votes, data[vote], { ...this.placement(), colours });
  }

  // The chosen cells of a side, or a ring around their place.
  drawMark(name) {
    const layer = this.layers[name];
    const { pane } = this.explorer;
    layer.canvas.width = pane.width; // which clears it
    layer.canvas.height = pane.height;
    if (name === "ring") this.drawRing(layer.context);
    else if (name === "mark_both") this.drawChosenCells(layer.context, "a", "b");
    else this.drawChosenCells(layer.context, MARKS[name]);
  }

  // Bold outlines on black in the colour of a side; with another side only where both have the same.
  drawChosenCells(context, side, other) {
    const { data, chosen, view, columns, ratio, style } = this.explorer;
    const { story } = data;
    const pixel = Math.max(1, Math.round(ratio));
    const bold = this.lineWidth() + pixel;
    const black = bold + 2 * pixel;
    const cellsOf = (each) => new Set(story[`labels_${each}`][chosen]);
    const box = this.screenBox(side, cellsOf(side), black);
    if (!box) return;
    const { left, top, width, height } = box;
    const line = (layer, each, look) =>
      outline(layer, data[each], {
        view: { ...view, offsetX: view.offsetX - left, offsetY: view.offsetY - top },
        columns,
        width,
        height,
        only: cellsOf(each),
        add: true,
        unfinished: true,
        thickness: bold,
        ...look,
      });
    const colour = packedColour(other ? style.colours.agree : style.colours[side]);
    this.marks.cleared(width, height);
    if (other) {
      this.others.cleared(width, height);
      line(this.marks, side, { colour });
      line(this.others, other, { colour });
      for (let p = 0; p < this.marks.pixels.length; p++) if (!this.others.pixels[p]) this.marks.pixels[p] = 0;
    } else {
      line(this.marks, side, { thickness: black, colour: packedColour("#000000") });
      line(this.marks, side, { colour, dash: this.dash(side) });
    }
    this.marks.finish();
    context.drawImage(this.marks.canvas, left, top);
  }

  // Around the place of the chosen cell, which a side may lack.
  drawRing(context) {
    const { data, chosen, view, ratio } = this.explorer;
    const { story } = data;
    const position = story.position[chosen];
    const area = Math.max(story.area_a[chosen], story.area_b[chosen]);
    const radius = Math.sqrt(area / Math.PI) * view.scale;
    if (position.length === 3) return; // of a stack, where an area says nothing of one plane
    const [row, column] = position;
    const x = (column + 0.5) * view.scale + view.offsetX;
    const y = (row + 0.5) * view.scale + view.offsetY;
    for (const [colour, width] of [["#000000", 4], ["#ffffff", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = width * ratio;
      context.beginPath();
      context.arc(x, y, radius + 10 * ratio, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // The part of the canvas that holds some cells of a side; none if they are out of sight.
  screenBox(side, labels, margin) {
    const { data, columns, view } = this.explorer;
    let [top, left, bottom, right] = [Infinity, Infinity, -Infinity, -Infinity];
    const boxes = boxesOf(data[side], columns);
    for (const label of labels) {
      const box = boxes.get(label);
      if (!box) continue; // in another plane
      top = Math.min(top, box[0]);
      left = Math.min(left, box[1]);
      bottom = Math.max(bottom, box[2]);
      right = Math.max(right, box[3]);
    }
    const { scale, offsetX, offsetY } = view;
    const { width, height } = this.explorer.pane;
    const x0 = Math.max(0, Math.floor(left * scale + offsetX) - margin);
    const y0 = Math.max(0, Math.floor(top * scale + offsetY) - margin);
    const x1 = Math.min(width, Math.ceil((right + 1) * scale + offsetX) + margin);
    const y1 = Math.min(height, Math.ceil((bottom + 1) * scale + offsetY) + margin);
    if (x1 <= x0 || y1 <= y0) return undefined;
    return { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
  }

  composite() {
    const { context } = this;
    const { panes, pane, curtain, parts } = this.explorer;
    context.globalAlpha = 1;
    context.fillStyle = "#000";
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    for (const { x, y, without } of panes) {
      context.save();
      context.beginPath();
      context.rect(x, y, pane.width, pane.height);
      context.clip();
      context.translate(x, y);
      this.compositePane(without);
      context.restore();
    }
    parts.divider.style.left = `${curtain * 100}%`;
  }

  // Put the layers of one pane on each other, without one of the sides.
  compositePane(without) {
    const { context } = this;
    const { mode, curtain, blink, pane, ratio } = this.explorer;
    const { cursor, pointed } = this.explorer.readout;
    const { width, height } = pane;
    const spans = {}; // columns of the canvas in which a layer is seen; default all
    if (mode === "curtain") {
      const split = Math.round(curtain * width);
      spans.a = [0, split];
      spans.b = [split, width];
    }
    if (without) spans[without] = [0, 0];
    for (const [mark, side] of Object.entries(MARKS)) spans[mark] = spans[side];
    if (mode === "blink") spans[blink.side === "a" ? "b" : "a"] = [0, 0]; // the mark stays
    for (const name of LAYERS) {
      const [from, to] = spans[RIMS[name] ?? name] ?? [0, width];
      if (!this.isVisible(name) || to <= from) continue;
      context.globalAlpha = this.opacityOf(name);
      const area = [from, 0, to - from, height];
      context.drawImage(this.layers[name].canvas, ...area, ...area);
    }
    context.globalAlpha = 1;
    if (cursor) this.drawCursor(cursor);
    else if (pointed && without) this.drawCross(pointed);
    const bar = this.explorer.scaleBar();
    if (bar) drawScaleBar(context, bar, width, height, ratio);
  }

  // Where the pointer is, on both panes.
  drawCross(position) {
    const { ratio } = this.explorer;
    const [x, y] = position.map((value) => Math.floor(value) + 0.5); // sharp lines
    const arm = 8 * ratio;
    for (const [colour, width] of [["#000000", 3], ["#ffffff", 1]]) {
      this.context.strokeStyle = colour;
      this.context.lineWidth = width * ratio;
      this.context.beginPath();
      this.context.moveTo(x - arm, y);
      this.context.lineTo(x + arm, y);
      this.context.moveTo(x, y - arm);
      this.context.lineTo(x, y + arm);
      this.context.stroke();
    }
  }

  opacityOf(name) {
    const { mode, opacity } = this.explorer;
    if (name === "image") return this.imageBrightness();
    if (OF_CHOSEN.includes(name)) return 1;
    return opacity[mode] * (name === "categories" ? MODES[mode].tint ?? 1 : 1); // below outlines, a tint
  }

  // Differences stand out on a dimmed image, also on cells as bright as their colours.
  imageBrightness() {
    const { mode, style } = this.explorer;
    return mode === "categories" || mode === "agreement" ? style.dimmed : 1;
  }

  // A frame around the pixel that is read by keyboard.
  drawCursor([row, column]) {
    const { view, ratio } = this.explorer;
    const size = Math.max(view.scale, 7 * ratio);
    const left = (column + 0.5) * view.scale + view.offsetX - size / 2;
    const top = (row + 0.5) * view.scale + view.offsetY - size / 2;
    for (const [colour, width] of [["#000000", 3], ["#ffffff", 1]]) {
      this.context.strokeStyle = colour;
      this.context.lineWidth = width * ratio;
      this.context.strokeRect(left, top, size, size);
    }
  }
}

// Colours of 1 to n votes, from few runs (bright) to all runs (dark), between the given stops.
function voteColours(stops, n) {
  const channels = stops.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const colours = [];
  for (let votes = 1; votes <= n; votes++) {
    const position = n === 1 ? 0 : ((votes - 1) / (n - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(position));
    const share = position - low;
    const mixed = channels[low].map((value, i) => value + (channels[low + 1][i] - value) * share);
    const digits = mixed.map((value) => Math.round(value).toString(16).padStart(2, "0"));
    colours.push(`#${digits.join("")}`);
  }
  return colours;
}
