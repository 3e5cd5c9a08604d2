// Sliders of Cellpose's settings beside the picture, where the model has `live`, see live_view.py.

const LIVE_MS = 60; // between two messages while a slider is dragged
const ANSWER_MS = 3000; // after which a command that does not follow the sliders is not copied
const LIVE_SIGNS = {
  exact: "\u2713",
  preview: "\u2026",
  waiting: "\u2026",
  "needs-pass": "\u25b6",
  problem: "!",
  empty: "!",
};

// A command in parts, so that no line ends within an option.
function wordsOf(command) {
  const shown = (word) => (word.startsWith("-") ? make("span", "cre-option", {}, word) : word);
  return command.split(" ").flatMap((word, i) => (i ? [" ", shown(word)] : [shown(word)]));
}

// What is typed, as a number where it is one; 0,5 is one, too.
function numberIn(text) {
  const number = Number(text.replace(",", "."));
  return text.trim() !== "" && Number.isFinite(number) ? number : text;
}

class LiveSettings {
  constructor(model, parts) {
    this.model = model;
    this.parts = parts;
    this.rows = new Map(); // by the name of a slider
    this.commandRows = [];
    this.withPass = false; // whether Enter was pressed, so that the network runs where it has to
    this.waiting = []; // for the answer to what was sent last
    this.section = make("section", "crl", { "aria-label": "Settings of Cellpose" });
    parts.root.dataset.live = "1";
    this.build();
    this.show();
    this.onLive = () => this.show();
    model.on("change:live", this.onLive);
  }

  // In the panel beside the picture; on a narrow page below the picture, which stays in sight, and its
  // zoom. The legend stands where it leaves least empty.
  place(isBeside, isLow) {
    const { sliders, side, stage, legend } = this.parts;
    const placed = `${isBeside} ${isLow}`;
    if (this.placed === placed) return;
    this.placed = placed;
    if (isBeside) side.prepend(this.section);
    else sliders.after(this.section);
    (isBeside && !isLow ? stage : side).append(legend);
  }

  close() {
    clearTimeout(this.timer);
    this.model.off("change:live", this.onLive);
  }

  build() {
    const { controls } = this.model.get("live");
    this.atOnce = heading("");
    const group = (title, isOfPass) => {
      const grid = make("div", "crl-grid");
      const those = controls.filter((control) => control.needs_pass === isOfPass);
      for (const control of those) grid.append(this.row(control));
      return make("div", "crl-group", {}, title, grid);
    };
    this.atOnce = heading("");
    this.run = button("crl-run", "Run the network");
    this.run.addEventListener("click", () => this.send({ do: "run" }));
    this.sign = make("span", "crl-sign", { "aria-hidden": "true" });
    this.line = make("span", "crl-text", { role: "status", "aria-live": "polite" });
    this.setReference = button("cre-small", "Set as reference (A)", {
      title: "from now on changes are counted beside the masks of now",
    });
    this.setReference.addEventListener("click", () => this.send({ do: "reference" }));
    this.back = button("cre-small", "Back to the reference", {
      title: "put all sliders where the masks of the reference were made",
    });
    this.back.addEventListener("click", () => this.send({ do: "back" }));
    this.commands = make("div", "crl-commands");
    const status = make("div", "crl-status", {}, this.sign, this.line, this.run);
    const acts = make("div", "crl-acts", {}, this.setReference, this.back);
    this.section.append(
      make(
        "div",
        "crl-groups",
        {},
        group(this.atOnce, false),
        group(heading("The network runs again for these"), true),
      ),
      status,
      acts,
      this.commands,
    );
  }

  row(control) {
    const { name, label, min, max, step, hint, usual, finer } = control;
    const limits = { min: String(min), max: String(max), step: finer ? "any" : String(step) };
    const reach = max - min;
    // A finer slider stands at the square root of its value, so that small ones have room.
    const placeOf = (value) => (finer ? min + Math.sqrt(Math.max(0, value - min) * reach) : value);
    const valueAt = (place) => (finer ? Math.round((min + (place - min) ** 2 / reach) / step) * step : place);
    const slide = range("crl-slide", { ...limits, "aria-label": label });
    const number = make("input", "crl-number", {
      ...KEEP_KEYS,
      type: "text", // a browser hides what is no number from the page, and it has to be said
      inputmode: "decimal",
      placeholder: usual === 0 ? "not set" : "",
      "aria-label": `${label}, as a number`,
    });
    const mark = make("span", "crl-mark", { "aria-hidden": "true" });
    // Where the choice is Cellpose's, the number is empty, and "not set" is seen.
    const write = (value) => {
      number.value = usual === 0 && Number(value) === 0 ? "" : String(value);
    };
    slide.addEventListener("input", () => {
      write(valueAt(Number(slide.value)));
      this.changed();
    });
    number.addEventListener("change", () => {
      if (number.value.trim() === "" && usual !== null) write(usual);
      slide.value = placeOf(numberIn(number.value));
      this.changed();
    });
    number.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      this.withPass = true;
      this.changed();
    });
    this.rows.set(name, { slide, number, mark, write, placeOf, usual });
    const title = make("span", "crl-name", {}, label);
    const track = make("span", "crl-track", {}, mark, slide);
    return make("label", "crl-row", { title: hint }, title, track, number, make("span", "cre-hint crl-hint", {}, hint));
  }

  values() {
    const valueIn = ({ number, usual }) => (number.value === "" && usual === 0 ? 0 : numberIn(number.value));
    return Object.fromEntries([...this.rows].map(([name, row]) => [name, valueIn(row)]));
  }

  // What stands on the sliders is sent soon, and only what stands there last.
  changed() {
    this.touched = Date.now();
    this.timer ??= setTimeout(() => this.sendNow(), LIVE_MS);
  }

  sendNow() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.sent = this.values();
    this.send({ set: this.sent, with_pass: this.withPass });
    this.withPass = false;
  }

  // Wait until the commands are those of what stands on the sliders.
  async settled() {
    if (this.timer !== undefined) this.sendNow();
    if (this.sent === undefined) return;
    await new Promise((then, fail) => {
      this.waiting.push(then);
      setTimeout(fail, ANSWER_MS);
    });
  }

  // Whether what was sent last is answered: taken, or refused.
  noteAnswer({ state, refusal, values }) {
    const names = Object.keys(this.sent ?? {});
    if (!refusal && state !== "problem" && names.some((name) => this.sent[name] !== values[name])) return;
    this.sent = undefined;
    for (const then of this.waiting.splice(0)) then();
  }

  send(message) {
    if (message.do) this.touched = 0; // the sliders follow the answer
    this.model.send({ live: message });
  }

  show() {
    const live = this.model.get("live");
    const isDragged = this.timer !== undefined || Date.now() - (this.touched ?? 0) < 500;
    for (const [name, { slide, number, mark, write, placeOf }] of this.rows) {
      const value = live.values[name];
      const reference = live.reference[name];
      const [low, high] = [Number(slide.min), Number(slide.max)];
      const share = (placeOf(Math.min(high, Math.max(low, reference))) - low) / (high - low);
      mark.style.left = `calc(8px + ${share} * (100% - 16px))`;
      mark.title = `reference: ${reference}`;
      const isRefused = (live.refusal || live.state === "problem") && this.timer === undefined;
      if (!isRefused && (isDragged || document.activeElement === number)) continue;
      slide.value = String(placeOf(value));
      write(value);
    }
    const state = live.refusal ? "problem" : live.state;
    this.section.dataset.state = state;
    // What is shown is of other settings than those of the sliders.
    const isStale = ["needs-pass", "waiting"].includes(live.state);
    this.parts.root.dataset.stale = isStale ? "1" : "0";
    this.atOnce.textContent = isStale ? "Answer after the network" : "Answers at once";
    this.sign.textContent = LIVE_SIGNS[state] ?? "";
    this.line.textContent = unbroken([live.refusal, live.line].filter(Boolean).join(". So they give: "));
    this.run.hidden = live.state !== "needs-pass";
    this.showCommands(live.commands);
    this.noteAnswer(live);
  }

  showCommands(commands) {
    while (this.commandRows.length < commands.length) this.addCommandRow(this.commandRows.length);
    this.commandRows.forEach(({ row, code }, i) => {
      row.hidden = i >= commands.length;
      if (row.hidden || code.textContent === commands[i]) return;
      code.replaceChildren(...wordsOf(commands[i]));
    });
  }

  addCommandRow(i) {
    const code = make("code");
    const textOf = async () => {
      await this.settled();
      return code.textContent;
    };
    const copy = copyButton("Copy the command", textOf, {
      title: "it segments with the settings of the sliders",
    });
    const row = make("div", "cre-command", {}, code, copy);
    this.commandRows.push({ row, code });
    this.commands.append(row);
  }
}
