// What the pixel under the pointer holds, or under the cursor that keys move.

class Readout {
  constructor(explorer) {
    this.explorer = explorer;
    this.cursor = undefined; // row and column that are read by keyboard
    this.pointed = undefined; // where the pointer is on a pane
  }

  readAt(x, y) {
    this.point([x, y]);
    const p = this.explorer.pixelAt(x, y);
    if (p !== undefined) this.readPixel(p);
  }

  // Show on both sides where the pointer is.
  point(position) {
    this.pointed = position;
    if (this.explorer.mode === "sides") this.explorer.redraw();
  }

  readPixel(p) {
    const { columns, data, imagePlane, mode, nVotes, parts, style, vote } = this.explorer;
    const [row, column] = [Math.floor(p / columns), p % columns];
    const label = (name) => {
      const number = data[name][p];
      return number ? `cell ${givenNumber(data.story, name, number)}` : "background";
    };
    const words = {
      background: "background in both",
      agree: "the same cell",
      only_a: "only A",
      only_b: "only B",
      other_object: OTHER_OBJECT,
    };
    const name = CATEGORIES[data.categories[p]];
    const { cells, root } = parts;
    cells.pixel.textContent = `${row}, ${column}`;
    cells.value.textContent = imageValue(data.image, imagePlane, p);
    cells.a.textContent = label("a");
    cells.b.textContent = label("b");
    cells.truth.textContent = parts.reads.truth.hidden ? "" : label("truth");
    const votes = mode === "agreement" && data[vote];
    parts.reads.votes.hidden = !votes;
    cells.votes.textContent = votes ? `${votes[p]} of ${nVotes}` : "";
    cells.category.textContent = words[name];
    cells.category.style.setProperty("--colour", style.colours[name] ?? "transparent");
    const texts = Object.values(cells).map((cell) => cell.textContent);
    root.dataset.readout = texts.filter((text) => text).join(" | ");
  }

  // Read one pixel on; the first step begins in the middle of what is seen.
  moveCursor(down, right) {
    const { explorer } = this;
    const { columns, rows, view } = explorer;
    const { width, height } = explorer.pane;
    const middle = explorer.pixelAt(width / 2, height / 2);
    const [row, column] = this.cursor ?? [Math.floor(middle / columns), middle % columns];
    const to = (value, limit) => Math.min(limit - 1, Math.max(0, value));
    const y = to(row + (this.cursor ? down : 0), rows);
    const x = to(column + (this.cursor ? right : 0), columns);
    this.cursor = [y, x];
    const { scale, offsetX, offsetY } = view;
    const [left, top] = [x * scale + offsetX, y * scale + offsetY];
    if (left < 0 || top < 0 || left + scale > width || top + scale > height) {
      explorer.moveView(view.zoom, offsetX + width / 2 - left, offsetY + height / 2 - top);
    }
    this.readPixel(y * columns + x);
    explorer.redraw();
  }
}
