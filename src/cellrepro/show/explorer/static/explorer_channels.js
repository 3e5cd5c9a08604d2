// How the channels of the image are shown: which of them, in which colour, between which values.
// The mixing is done here, so that nothing is asked of the kernel while one drags.

const BINS = 96; // of a histogram
const HISTOGRAM_VALUES = 2 ** 18; // of a channel that are counted at most
const HANDLE_STEPS = 1000; // of a handle between the least and the greatest value

class Channels {
  constructor(explorer) {
    this.explorer = explorer;
    this.all = []; // of each channel: shown, colour (its name), low and high (stored values)
    this.gamma = 1;
  }

  // Take over the image of a scene. Its other planes keep what was chosen; another image with as
  // many channels keeps which are shown and their colours.
  take(plane, isSameStack) {
    const n = plane.shape[2];
    const isNew = this.all.length !== n;
    this.plane = plane;
    if (isNew) {
      const { channels } = this.explorer.style;
      const names = Object.keys(channels[Math.min(n, channels.length) - 1]);
      this.all = Array.from({ length: n }, (_, c) => ({ shown: c < names.length, colour: names[c] ?? "grey" }));
    }
    if (isNew || !isSameStack) this.setLimits(plane.low, plane.high);
    this.fill();
  }

  setLimits(low, high) {
    this.all.forEach((channel, c) => Object.assign(channel, { low: low[c], high: high[c] }));
  }

  // The limits of which every channel has these, if all have them.
  get limits() {
    const { low, high } = this.plane;
    const are = (lows, highs) => this.all.every((each, c) => each.low === lows[c] && each.high === highs[c]);
    if (are(low, high)) return "auto";
    return are(...this.wholeRange()) ? "full" : "own";
  }

  // The least and the greatest value of each channel; of a photograph, whose channels are stretched
  // alike, those of all of them.
  wholeRange() {
    const { low, high, lowest, highest } = this.plane;
    const areAlike = low.length > 1 && [low, high].every((limits) => limits.every((each) => each === limits[0]));
    if (areAlike) return [lowest.map(() => Math.min(...lowest)), highest.map(() => Math.max(...highest, 1))];
    return [lowest, highest.map((value, c) => Math.max(value, lowest[c] + 1))];
  }

  picture() {
    const { channel_colours: colours } = this.explorer.style;
    const looks = this.all.map(({ shown, colour, low, high }) => ({ shown, colour: colours[colour], low, high }));
    return coloured(this.explorer.data.image, this.plane, looks, this.gamma);
  }

  changed() {
    this.show();
    this.explorer.recolour();
  }

  // ---- the panel ---------------------------------------------------------------------------

  // Build a row for each channel.
  fill() {
    const { channels } = this.explorer.parts;
    if (!this.explorer.scene.has_image) {
      channels.replaceChildren();
      this.rows = undefined;
      return;
    }
    if (this.rows?.length !== this.all.length) {
      this.rows = this.all.map((_, c) => this.row(c));
      channels.replaceChildren(...this.rows.map(({ root }) => root), this.forAll());
    }
    this.rows.forEach((row, c) => drawHistogram(row.histogram, this.counts(c)));
    this.show();
  }

  row(c) {
    const channel = this.all[c];
    const name = this.all.length > 1 ? `channel ${c}` : "image";
    const shown = make("input", "", { ...KEEP_KEYS, type: "checkbox", "data-channel": String(c), "aria-label": `show ${name}` });
    const names = Object.keys(this.explorer.style.channel_colours);
    const colour = select("cre-colour", `colour of ${name}`, names);
    const swatch = make("span", "cre-swatch", { "aria-hidden": "true" });
    swatch.hidden = this.all.length === 1; // alone it looks like a box without a name
    const histogram = make("canvas", "cre-histogram", { width: String(BINS), height: "28", "aria-hidden": "true" });
    const handle = (end, label) => {
      const attributes = { min: "0", max: String(HANDLE_STEPS), step: "5", "aria-label": `${name}: ${label}` };
      const input = range(`cre-limit cre-limit-${end}`, attributes);
      input.addEventListener("input", () => this.drag(c, end, Number(input.value) / HANDLE_STEPS));
      return input;
    };
    const low = handle("low", "value that is shown black");
    const high = handle("high", "value that is shown brightest");
    const values = make("span", "cre-amount cre-limits");
    shown.addEventListener("change", () => {
      channel.shown = shown.checked;
      this.changed();
    });
    colour.addEventListener("change", () => {
      this.all[c].colour = names[Number(colour.value)];
      this.changed();
    });
    const title = `${name}, counted from 0`; // as `--readout mean_intensity:0` counts them
    const which = make("label", "cre-which", { title }, shown, this.all.length > 1 ? String(c) : "");
    which.hidden = this.all.length === 1; // the image itself can be switched off
    const stretch = make("div", "cre-stretch", {}, histogram, low, high);
    const root = make("div", "cre-channel", { role: "group", "aria-label": name }, which, swatch, colour, stretch, values);
    return { root, shown, colour, swatch, histogram, low, high, values, names };
  }

  // What holds for all channels.
  forAll() {
    this.auto = button("cre-small", "Auto", { title: "from percentile 1 to 99 of each channel", "data-limits": "auto" });
    this.full = button("cre-small", "Full", { title: "from the least to the greatest value of each channel", "data-limits": "full" });
    this.auto.addEventListener("click", () => {
      this.setLimits(this.plane.low, this.plane.high);
      this.changed();
    });
    this.full.addEventListener("click", () => {
      this.setLimits(...this.wholeRange());
      this.changed();
    });
    const gamma = range("cre-gamma", { min: "-100", max: "100", step: "5", value: "0", "aria-label": "Gamma" });
    this.gammaText = make("span", "cre-amount");
    gamma.addEventListener("input", () => {
      this.gamma = Number((10 ** (Number(gamma.value) / 200)).toFixed(2));
      gamma.setAttribute("aria-valuetext", String(this.gamma));
      this.changed();
    });
    const label = make("label", "cre-gamma-row", {}, "gamma", gamma, this.gammaText);
    return make("div", "cre-channel-all", {}, make("span", "cre-of", {}, "contrast"), this.auto, this.full, label);
  }

  show() {
    const { explorer, all, plane } = this;
    const isMixed = all.length > 1;
    all.forEach(({ shown, colour, low, high }, c) => {
      const row = this.rows[c];
      row.shown.checked = shown;
      row.colour.value = String(row.names.indexOf(colour));
      row.swatch.style.background = explorer.style.channel_colours[colour];
      row.root.style.setProperty("--channel", explorer.style.channel_colours[colour]);
      row.root.dataset.off = isMixed && !shown ? "1" : "0";
      const share = (value) => (value - plane.lowest[c]) / Math.max(1, plane.highest[c] - plane.lowest[c]);
      for (const [end, value] of [["low", low], ["high", high]]) {
        row[end].value = String(Math.round(share(value) * HANDLE_STEPS));
        row[end].setAttribute("aria-valuetext", this.value(value));
        row.root.style.setProperty(`--${end}`, String(Math.min(1, Math.max(0, share(value)))));
      }
      row.values.textContent = `${this.value(low)} to ${this.value(high)}`;
    });
    const { limits } = this;
    this.auto.setAttribute("aria-pressed", String(limits === "auto"));
    this.full.setAttribute("aria-pressed", String(limits === "full"));
    this.gammaText.textContent = this.gamma.toFixed(2);
    explorer.parts.root.dataset.channels = all
      .map((each) => (each.shown ? `${each.colour} ${this.value(each.low)} to ${this.value(each.high)}` : "off"))
      .join("; ");
  }

  // A stored value as the image has it, in few digits.
  value(stored) {
    const { offset, step, exact } = this.plane;
    const number = offset + stored * step;
    return grouped(exact ? Math.round(number) : Number(number.toPrecision(3)));
  }

  // Move one end of a channel's contrast; the other makes way.
  drag(c, end, share) {
    const { lowest, highest } = this.plane;
    const channel = this.all[c];
    const [least, most] = [lowest[c], Math.max(highest[c], lowest[c] + 1)];
    const value = Math.round(least + share * (most - least));
    if (end === "low") {
      channel.low = Math.min(value, most - 1);
      channel.high = Math.max(channel.high, channel.low + 1);
    } else {
      channel.high = Math.max(value, least + 1);
      channel.low = Math.min(channel.low, channel.high - 1);
    }
    this.changed();
  }

  // How many pixels of the plane have about each value of a channel, of so many values.
  counts(c) {
    const { values, shape, lowest, highest } = this.plane;
    const n = shape[2];
    const counts = new Uint32Array(BINS);
    const span = Math.max(1, highest[c] - lowest[c]);
    const step = n * Math.max(1, Math.floor(values.length / n / HISTOGRAM_VALUES));
    for (let i = c; i < values.length; i += step) {
      counts[Math.min(BINS - 1, Math.floor(((values[i] - lowest[c]) / span) * BINS))] += 1;
    }
    return counts;
  }
}

// Bars whose height grows with the logarithm of the count, or the background would hide the rest.
function drawHistogram(canvas, counts) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const tallest = Math.log1p(Math.max(...counts));
  context.clearRect(0, 0, width, height);
  context.fillStyle = "#9e9e9e";
  counts.forEach((n, bin) => {
    const bar = tallest ? Math.round((Math.log1p(n) / tallest) * height) : 0;
    context.fillRect(bin, height - bar, 1, bar);
  });
}
