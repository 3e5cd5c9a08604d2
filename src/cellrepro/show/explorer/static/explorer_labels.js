// The names, numbers and switches around the picture, as the scene has them.

const SHORT_NAME = 5; // letters beside a number; longer ones would be cut

class Labels {
  constructor(explorer) {
    this.explorer = explorer;
    this.parts = explorer.parts;
  }

  show() {
    this.parts.line.textContent = unbroken(this.explorer.scene.line);
    this.showNames();
    this.showAmounts();
    this.showImageRow();
    this.showTruthRow();
    this.showAgreementButton();
    this.showPlaneSlider();
    this.describeCanvas();
    this.showChoice();
  }

  showNames() {
    const { parts } = this;
    const { names, scene } = this.explorer;
    const { short } = scene;
    parts.names.only_a.textContent = `only ${short.a.length > SHORT_NAME ? "A" : short.a}`;
    parts.names.only_b.textContent = `only ${short.b.length > SHORT_NAME ? "B" : short.b}`;
    for (const side of ["a", "b"]) {
      const name = names[side];
      const letter = side.toUpperCase();
      const full = name === letter ? name : `${letter}  ${name}`;
      parts.names[side].textContent = parts.selects[side] ? letter : full; // once is enough
      parts.rows[side].title = full;
      parts[`tag${letter}`].textContent = full;
      parts.heads[side].textContent = short[side];
    }
  }

  showAmounts() {
    const { amounts } = this.parts;
    const { counts, n_objects: nObjects } = this.explorer.scene;
    for (const area of AREAS) amounts[area].textContent = `${grouped(counts[area])} px`;
    for (const side of ["a", "b"]) {
      const n = nObjects[side];
      amounts[side].textContent = `${grouped(n)} ${n === 1 ? "cell" : "cells"}`;
    }
  }

  // Masks can be looked at without their image.
  showImageRow() {
    const { parts } = this;
    const { scene } = this.explorer;
    parts.rows.image.hidden = !scene.has_image;
    parts.reads.value.hidden = !scene.has_image;
    parts.rows.scale_bar.hidden = !scene.pixel_size;
    parts.channels.hidden = !scene.has_image;
  }

  // Where the truth is A or B, its outline is that of A or B.
  showTruthRow() {
    const { parts } = this;
    const { scene } = this.explorer;
    const hasTruth = "truth" in scene.planes && scene.truth_is === "";
    parts.rows.truth.hidden = !hasTruth;
    parts.reads.truth.hidden = !hasTruth;
    if (!hasTruth) this.explorer.shown.truth = false;
  }

  showAgreementButton() {
    const { agreement } = this.parts.buttons;
    const hasVotes = this.explorer.scene.planes.cells !== undefined;
    agreement.disabled = !hasVotes;
    agreement.title = hasVotes ? "How many of all runs agree (5)" : "Needs three or more runs";
  }

  showPlaneSlider() {
    const { parts } = this;
    const { z, n_planes: n } = this.explorer.scene;
    parts.zRow.hidden = n < 2;
    parts.z.max = String(n - 1);
    parts.z.value = String(z);
    parts.zText.textContent = `z ${z} of 0\u2013${n - 1}`;
  }

  describeCanvas() {
    const { names, scene } = this.explorer;
    this.parts.canvas.setAttribute(
      "aria-label",
      `Masks of ${names.a} and ${names.b} on ${names.image}. ${scene.line}. Arrow keys move, plus ` +
        "and minus zoom, 0 shows everything, shift with arrows reads pixels, enter tells the " +
        "story of a cell, n and p go through the changed cells, page up and page down through planes (from 0).",
    );
  }

  showChoice() {
    const { selects, previous, next } = this.parts;
    const { model, scene } = this.explorer;
    for (const [key, element] of Object.entries(selects)) {
      element.value = String(scene[key]);
      element.title = element.selectedOptions[0]?.text ?? ""; // whole, where the page is narrow
      if (key === "view") continue;
      [...element.options].forEach((option, i) => {
        const otherSide = scene[key === "a" ? "b" : "a"];
        option.disabled = i === otherSide || !scene.sides.includes(i);
      });
    }
    if (previous) previous.disabled = scene.view === 0;
    if (next) next.disabled = scene.view === model.get("images").length - 1;
  }
}
