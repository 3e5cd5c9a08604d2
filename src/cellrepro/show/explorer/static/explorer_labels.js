// The names, numbers and switches around the picture, as the scene has them.

class Labels {
  constructor(explorer) {
    this.explorer = explorer;
    this.parts = explorer.parts;
  }

  show() {
    const beside = this.parts.root.dataset.live ? "Now, compared with the reference: " : "";
    this.parts.line.textContent = unbroken(beside + this.explorer.scene.line);
    this.showNames();
    this.showAmounts();
    this.showImageRow();
    this.showTruthRow();
    this.showAgreementButton();
    this.showNapariCall();
    this.showHelp();
    this.showPlaneSlider();
    this.describeCanvas();
    this.showChoice();
  }

  showNames() {
    const { parts } = this;
    const { names } = this.explorer;
    for (const [side, other] of [["a", "b"], ["b", "a"]]) {
      const letter = side.toUpperCase();
      const whole = nameElements(letter, names[side], names[other]);
      parts.names[side].replaceChildren(...(parts.selects[side] ? [letter] : whole)); // once is enough
      parts.rows[side].title = names[side];
      parts[`tag${letter}`].replaceChildren(...nameElements(letter, names[side], names[other]));
      parts.heads[side].textContent = letter;
    }
  }

  showAmounts() {
    const { amounts, pixelsHeading } = this.parts;
    const { counts, n_objects: nObjects, n_planes: nPlanes } = this.explorer.scene;
    pixelsHeading.textContent = nPlanes > 1 ? "Voxels of the whole stack" : "Pixels";
    for (const area of AREAS) amounts[area].textContent = grouped(counts[area]);
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

  showTruthRow() {
    const { parts } = this;
    const hasTruth = hasTruthOfItsOwn(this.explorer.scene);
    parts.rows.truth.hidden = !hasTruth;
    parts.reads.truth.hidden = !hasTruth;
    if (!hasTruth) this.explorer.shown.truth = false;
  }

  showAgreementButton() {
    this.parts.buttons.agreement.hidden = !hasVotes(this.explorer.scene);
  }

  // What was read from files can be opened from them elsewhere.
  showNapariCall() {
    const { napari, napariCall, napariCommand } = this.parts;
    const { napari_call: call } = this.explorer.scene;
    napariCall.hidden = !call || napari !== undefined;
    napariCommand.hidden = true;
    napariCommand.querySelector("code").textContent = call;
  }

  // Only the keys that do something here.
  showHelp() {
    const { scene } = this.explorer;
    const { views } = this.explorer.choosable();
    const lines = HELP.filter(([, , holds]) => !holds || holds(scene, views.length));
    const element = ([keys, does]) => make("span", "", {}, make("kbd", "", {}, keys), ` ${does}`);
    this.parts.help.replaceChildren(...lines.flatMap((each) => [element(each), " "]));
  }

  showPlaneSlider() {
    const { parts } = this;
    const { z, n_planes: n } = this.explorer.scene;
    parts.zRow.hidden = n < 2;
    parts.z.max = String(n - 1);
    parts.z.value = String(z);
    parts.zText.textContent = `z ${z} of 0\u2013${n - 1}`;
    parts.z.setAttribute("aria-valuetext", parts.zText.textContent);
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
    const { sides, views } = this.explorer.choosable();
    const isLimited = Boolean(model.get("only"));
    for (const [key, element] of Object.entries(selects)) {
      element.value = String(scene[key]);
      element.title = element.selectedOptions[0]?.text ?? ""; // whole, where the page is narrow
      const possible = key === "view" ? views : sides;
      const otherSide = { a: scene.b, b: scene.a }[key];
      [...element.options].forEach((option, i) => {
        option.disabled = i === otherSide || !possible.includes(i);
        option.hidden = isLimited && !possible.includes(i);
      });
    }
    if (previous) previous.disabled = scene.view === views[0];
    if (next) next.disabled = scene.view === views.at(-1);
  }
}
