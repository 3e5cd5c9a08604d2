// Where in a large image the changed cells lie, and through which planes of a stack.

const OVERVIEW_CSS = 180; // longer side
const THUMB_CSS = 8; // half the width of a slider's handle
const OVERVIEW_DIMMED = 0.4; // brightness of the image below the dots

class Overview {
  constructor(explorer) {
    this.explorer = explorer;
    this.base = document.createElement("canvas"); // what stays while the view moves
  }

  // An image of which a pixel takes less than one of the screen is large.
  get isShown() {
    const { fitted, ratio } = this.explorer;
    return fitted < ratio;
  }

  // Draw the dots anew with the next frame.
  refresh() {
    this.isStale = true;
  }

  draw() {
    this.drawStrip();
    const { overview, overviewSection } = this.explorer.parts;
    overviewSection.hidden = !this.isShown;
    if (!this.isShown) return;
    const { columns, rows, ratio, view, pane } = this.explorer;
    const scale = (OVERVIEW_CSS * ratio) / Math.max(columns, rows);
    const width = Math.max(1, Math.round(columns * scale));
    const height = Math.max(1, Math.round(rows * scale));
    if (this.isStale || this.base.width !== width || this.base.height !== height) {
      this.drawBase(width, height);
      overview.width = width;
      overview.height = height;
      overview.style.width = `${width / ratio}px`;
      this.isStale = false;
    }
    const context = overview.getContext("2d");
    context.clearRect(0, 0, width, height);
    context.drawImage(this.base, 0, 0);
    const onOverview = width / (columns * view.scale);
    const frame = [-view.offsetX, -view.offsetY, pane.width, pane.height].map((value) => value * onOverview);
    for (const [colour, line] of [["#000000", 4], ["#ffffff", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = line * ratio;
      context.strokeRect(...frame);
    }
  }

  // The image, dimmed, and a dot on every cell of the kinds that are listed; on other planes of a
  // stack they are faint.
  drawBase(width, height) {
    const { base, explorer } = this;
    const { columns, ratio, shown, data, scene, style } = explorer;
    base.width = width;
    base.height = height;
    const context = base.getContext("2d");
    context.fillStyle = "#000000";
    context.fillRect(0, 0, width, height);
    context.globalAlpha = OVERVIEW_DIMMED;
    if (shown.image) context.drawImage(explorer.levels().at(-1).canvas, 0, 0, width, height);
    const scale = width / columns;
    const size = 3 * ratio;
    for (const row of explorer.listedChanges()) {
      if (fateOf(data.story, row) === "kept") continue;
      const [y, x] = data.story.position[row].slice(-2);
      context.globalAlpha = isOnPlane(data.story, row, scene.z) ? 1 : 0.35;
      context.fillStyle = style.colours[style.dots[data.story.kind[row]]];
      context.fillRect((x + 0.5) * scale - size / 2, (y + 0.5) * scale - size / 2, size, size);
    }
    context.globalAlpha = 1;
  }

  // Move the view to a place of the overview, a share of both sides.
  goTo(shareX, shareY) {
    const { explorer } = this;
    const { columns, rows, view, ratio, fitted } = explorer;
    const zoom = view.zoom > 1 ? view.zoom : explorer.clampedZoom(ratio / fitted);
    explorer.centreOn(shareY * rows, shareX * columns, zoom);
  }

  // How many pixels differ in each plane of a stack: a bar for each, below the slider.
  drawStrip() {
    const { parts, scene, ratio } = this.explorer;
    const { zStrip } = parts;
    const counts = scene.differs_by_plane;
    zStrip.hidden = counts.length < 2;
    if (zStrip.hidden) return;
    const width = Math.max(1, Math.round(zStrip.clientWidth * ratio));
    const drawn = `${scene.planes.story} ${scene.z} ${width}`;
    if (this.stripDrawn === drawn) return;
    this.stripDrawn = drawn;
    const height = Math.round(18 * ratio);
    zStrip.width = width;
    zStrip.height = height;
    const context = zStrip.getContext("2d");
    const [ink, accent] = ["--faint-ink", "--accent"].map((name) => getComputedStyle(parts.root).getPropertyValue(name));
    const most = Math.max(1, ...counts);
    const step = (width - 2 * THUMB_CSS * ratio) / (counts.length - 1); // as the slider's handle goes
    const bar = Math.max(1, Math.min(step - ratio, 14 * ratio));
    counts.forEach((n, z) => {
      const tall = n ? Math.max(3 * ratio, (n / most) * height) : ratio;
      context.fillStyle = z === scene.z ? accent : ink;
      context.globalAlpha = z === scene.z ? 1 : 0.6;
      context.fillRect(THUMB_CSS * ratio + z * step - bar / 2, height - tall, bar, tall);
    });
  }
}

function isOnPlane(story, row, z) {
  const position = story.position[row];
  return position.length < 3 || Math.round(position[0]) === z;
}

function listenToOverview(explorer, on) {
  const { overview, zStrip } = explorer.parts;
  const goTo = (event) => {
    const box = overview.getBoundingClientRect();
    explorer.overview.goTo((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  on(overview, "pointerdown", (event) => {
    event.preventDefault();
    overview.setPointerCapture(event.pointerId);
    goTo(event);
  });
  on(overview, "pointermove", (event) => {
    if (overview.hasPointerCapture(event.pointerId)) goTo(event);
  });
  const planeAt = (event) => {
    const box = zStrip.getBoundingClientRect();
    const share = (event.clientX - box.left - THUMB_CSS) / (box.width - 2 * THUMB_CSS);
    const last = explorer.scene.n_planes - 1;
    return Math.min(last, Math.max(0, Math.round(share * last)));
  };
  on(zStrip, "click", (event) => explorer.request({ z: planeAt(event) }));
  on(zStrip, "pointermove", (event) => {
    const z = planeAt(event);
    zStrip.title = `${planeText(z)}: ${grouped(explorer.scene.differs_by_plane[z])} pixels differ; click to go there`;
  });
}
