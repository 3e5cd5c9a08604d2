// From arrays to pixels. Nothing here knows of the page or of the explorer's state.

const CATEGORIES = ["background", "agree", "only_a", "only_b", "other_object"];

// The picture of an image: its channels, each stretched and in its colour, added up. Same rule as
// `shown_image` in figures/pixels.py. `looks` has for each channel whether it is shown, its colour,
// and the stored values between which it is stretched.
function coloured(values, { shape, highest }, looks, gamma) {
  const [rows, columns, nChannels] = shape;
  const layer = new Layer();
  const pixels = layer.cleared(columns, rows);
  const mixed = looks
    .map(({ shown, colour, low, high }, c) => ({
      c,
      colour: shown || nChannels === 1 ? channelsOf(colour) : undefined,
      shares: stretchedShares(low, high, highest[c], gamma),
    }))
    .filter(({ colour }) => colour);
  if (mixed.length === 1) {
    const [{ c, colour, shares }] = mixed; // half the time
    const table = Uint32Array.from(shares, (share) => opaque(...colour.map((part) => share * part + 0.5)));
    for (let p = 0, i = c; p < pixels.length; p++, i += nChannels) pixels[p] = table[values[i]];
  } else {
    for (let p = 0, i = 0; p < pixels.length; p++, i += nChannels) {
      let red = 0.5;
      let green = 0.5;
      let blue = 0.5;
      for (const { c, colour, shares } of mixed) {
        const share = shares[values[i + c]];
        red += share * colour[0];
        green += share * colour[1];
        blue += share * colour[2];
      }
      pixels[p] = opaque(Math.min(255, red), Math.min(255, green), Math.min(255, blue));
    }
  }
  layer.finish();
  return layer;
}

function opaque(red, green, blue) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

// Red, green and blue of a colour.
function channelsOf(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

// How bright each stored value is shown, from 0 to 1.
function stretchedShares(low, high, highest, gamma) {
  const shares = new Float64Array(highest + 1);
  for (let value = 0; value <= highest; value++) {
    const share = Math.min(1, Math.max(0, (value - low) / (high - low)));
    shares[value] = gamma === 1 ? share : share ** gamma;
  }
  return shares;
}

// A colour as ImageData stores it, read as one little-endian 32-bit number.
function packedColour(hex, alpha = 1, share = 1) {
  const [red, green, blue] = channelsOf(hex).map((value) => Math.round(value * share));
  return ((Math.round(alpha * 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

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

// Outlines of labels sampled at screen pixels; the same rule as `outlined` in figures/pixels.py.
// The dashes belong to the image (offsetX, offsetY), so that they do not move while it is dragged.
// With `only`, other labels are left out; with `add`, the layer keeps what it already holds.
function outline(layer, labels, { view, columns, width, height, ...look }) {
  const { thickness: t, colour, dash, only, add } = look;
  const stride = width + 2 * t;
  const xs = sampling(width, t, view.offsetX, view.scale, columns);
  const ys = sampling(height, t, view.offsetY, view.scale, labels.length / columns);
  const around = new Uint32Array(stride * (height + 2 * t));
  for (let y = 0; y < ys.length; y++) {
    if (ys[y] < 0) continue;
    const row = ys[y] * columns;
    let p = y * stride;
    if (y > 0 && ys[y] === ys[y - 1]) {
      around.copyWithin(p, p - stride, p); // enlarged: the same image row again
      continue;
    }
    for (let x = 0; x < stride; x++, p++) {
      if (xs[x] < 0) continue;
      const label = labels[row + xs[x]];
      if (!only || only.has(label)) around[p] = label;
    }
  }
  const pixels = add ? layer.pixels : layer.cleared(width, height);
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
        if (!dash || (y + shiftY) % period < on) pixels[p] = colour;
      } else if (around[q - t * stride] !== here || around[q + t * stride] !== here) {
        if (!dash || (x + shiftX) % period < on) pixels[p] = colour;
      }
    }
  }
  if (!look.unfinished) layer.finish();
}

// Whether a screen pixel lies on the pattern of its category; `unit` is a CSS pixel. Same rule
// as `hatched` in figures/pixels.py.
function onPattern(category, u, v, unit) {
  const period = 8 * unit;
  if (category === 2) return (u + v) % period < 2 * unit;
  if (category === 3) return (u + (period - 1) * v) % period < 2 * unit;
  if (category === 4) return u % (6 * unit) < 3 * unit && v % (6 * unit) < 3 * unit;
  return false;
}

// For each label the rows and columns that hold it: [top, left, bottom, right], both included.
const BOXES = new WeakMap();

function boxesOf(labels, columns) {
  if (BOXES.has(labels)) return BOXES.get(labels);
  const boxes = new Map();
  const rows = labels.length / columns;
  for (let y = 0; y < rows; y++) {
    const end = (y + 1) * columns;
    for (let p = y * columns; p < end; p++) {
      const label = labels[p];
      if (label === 0) continue;
      const left = p - y * columns;
      while (p + 1 < end && labels[p + 1] === label) p++;
      const right = p - y * columns;
      const box = boxes.get(label);
      if (!box) boxes.set(label, [y, left, y, right]);
      else {
        box[1] = Math.min(box[1], left);
        box[2] = y;
        box[3] = Math.max(box[3], right);
      }
    }
  }
  BOXES.set(labels, boxes);
  return boxes;
}

// The pixels of an array that differ, to be found again quickly: positions, ascending.
function differing(categories) {
  let n = 0;
  for (let p = 0; p < categories.length; p++) n += categories[p] >= 2;
  const result = new Uint32Array(n);
  for (let p = 0, i = 0; p < categories.length; p++) if (categories[p] >= 2) result[i++] = p;
  return result;
}

// Categories at screen pixels, in their colours, darker on the lines of their patterns. Where the
// picture is smaller than the image, a differing pixel still takes one screen pixel: a single one
// in four million must not vanish.
function paintCategories(layer, categories, differs, { view, columns, width, height, ...look }) {
  const { colours, darker, unit } = look;
  const rows = categories.length / columns;
  const xs = sampling(width, 0, view.offsetX, view.scale, columns);
  const ys = sampling(height, 0, view.offsetY, view.scale, rows);
  const pixels = layer.cleared(width, height);
  const shiftX = -Math.round(view.offsetX);
  const shiftY = -Math.round(view.offsetY);
  const paint = (p, category, x, y) => {
    const lined = darker && onPattern(category, x + shiftX, y + shiftY, unit);
    pixels[p] = (lined ? darker : colours)[category];
  };
  for (let y = 0, p = 0; y < height; y++) {
    if (ys[y] < 0) {
      p += width;
      continue;
    }
    const row = ys[y] * columns;
    for (let x = 0; x < width; x++, p++) {
      const category = xs[x] < 0 ? 0 : categories[row + xs[x]];
      if (category !== 0 && colours[category] !== 0) paint(p, category, x, y);
    }
  }
  if (view.scale < 1) {
    for (const q of differs) {
      const category = categories[q];
      if (colours[category] === 0) continue;
      const row = Math.floor(q / columns);
      const y = Math.floor(row * view.scale + view.offsetY);
      const x = Math.floor((q - row * columns) * view.scale + view.offsetX);
      if (x >= 0 && y >= 0 && x < width && y < height) paint(y * width + x, category, x, y);
    }
  }
  layer.finish();
}

// Values at screen pixels, each in the colour of its number.
function paintNumbers(layer, values, { view, columns, width, height, colours }) {
  const xs = sampling(width, 0, view.offsetX, view.scale, columns);
  const ys = sampling(height, 0, view.offsetY, view.scale, values.length / columns);
  const pixels = layer.cleared(width, height);
  for (let y = 0, p = 0; y < height; y++) {
    const row = ys[y] * columns;
    for (let x = 0; x < width; x++, p++) {
      if (ys[y] >= 0 && xs[x] >= 0) pixels[p] = colours[values[row + xs[x]]];
    }
  }
  layer.finish();
}

// Smaller copies of a picture, each half as large, until a side would fall below 256 pixels:
// shrinking four million pixels anew at every step of a slider would take too long.
function halved(whole) {
  const levels = [whole];
  let { width, height } = whole.canvas;
  while (Math.min(width, height) >= 512) {
    const larger = levels.at(-1).canvas;
    const small = new Layer();
    width >>= 1;
    height >>= 1;
    Object.assign(small.canvas, { width, height });
    small.context.drawImage(larger, 0, 0, width, height); // smoothed: the mean of four pixels
    levels.push(small);
  }
  return levels;
}

function paintPicture(layer, levels, { view, columns, rows, width, height }) {
  if (view.scale < 1) {
    const wanted = Math.min(levels.length - 1, Math.floor(Math.log2(1 / view.scale)));
    layer.cleared(width, height);
    layer.finish();
    layer.context.imageSmoothingEnabled = true;
    layer.context.imageSmoothingQuality = "medium";
    layer.context.drawImage(
      levels[wanted].canvas,
      view.offsetX,
      view.offsetY,
      columns * view.scale,
      rows * view.scale,
    );
    return;
  }
  const whole = levels[0].pixels;
  const xs = sampling(width, 0, view.offsetX, view.scale, columns);
  const ys = sampling(height, 0, view.offsetY, view.scale, rows);
  const pixels = layer.cleared(width, height);
  for (let y = 0, p = 0; y < height; y++) {
    if (y > 0 && ys[y] === ys[y - 1]) {
      pixels.copyWithin(p, p - width, p);
      p += width;
      continue;
    }
    for (let x = 0; x < width; x++, p++) {
      if (ys[y] >= 0 && xs[x] >= 0) pixels[p] = whole[ys[y] * columns + xs[x]];
    }
  }
  layer.finish();
}

// The image value as it was given: exact for integers, four digits for quantised numbers.
function imageValue(data, plane, p) {
  const channels = plane.shape[2];
  const values = Array.from(data.subarray(p * channels, (p + 1) * channels), (stored) =>
    plane.exact ? plane.offset + stored : Number((plane.offset + stored * plane.step).toPrecision(4)),
  );
  return values.join(" / ");
}
