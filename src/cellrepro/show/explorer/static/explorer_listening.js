// What the user does (clicks, drags, keys), handed to the explorer.

const KEY_ZOOM = 1.25; // factor of a press of + or a click on it
const CLICK_RADIUS_CSS = 3; // a pointer that moved less has clicked, not dragged

// Listen until `explorer.listening` is aborted.
function listen(explorer) {
  const { signal } = explorer.listening;
  const on = (element, type, act, options = {}) =>
    element?.addEventListener(type, act, { ...options, signal });
  listenToControls(explorer, on);
  listenToCurtain(explorer, on);
  listenToPointer(explorer, on);
  listenToWheel(explorer, on);
  listenToKeys(explorer, on);
  listenToOverview(explorer, on);
}

// Where an event is on the canvas, in its pixels.
function canvasPosition(explorer, event) {
  const box = explorer.parts.canvas.getBoundingClientRect();
  const x = (event.clientX - box.left) * explorer.ratio;
  const y = (event.clientY - box.top) * explorer.ratio;
  return [x, y];
}

function listenToControls(explorer, on) {
  const { parts } = explorer;
  for (const [mode, element] of Object.entries(parts.buttons)) {
    on(element, "click", () => explorer.chooseMode(mode));
  }
  for (const [key, input] of Object.entries(parts.boxes)) {
    on(input, "change", () => explorer.toggle(key));
  }
  for (const [key, element] of Object.entries(parts.selects)) {
    on(element, "change", () => explorer.request({ [key]: Number(element.value) }));
  }
  for (const [content, element] of Object.entries(parts.exports)) {
    on(element, "click", () => saveFile(explorer, content));
  }
  on(parts.napari, "click", () => explorer.model.send({ open: "napari" }));
  on(parts.previous, "click", () => explorer.stepImage(-1));
  on(parts.next, "click", () => explorer.stepImage(1));
  on(parts.swap, "click", () => explorer.swap());
  on(parts.z, "input", () => explorer.request({ z: Number(parts.z.value) }));
  on(parts.vote, "change", () => explorer.chooseVote(parts.vote.value));
  on(parts.opacity, "input", () => explorer.setOpacity(Number(parts.opacity.value) / 100));
  on(parts.zoom, "input", () => {
    explorer.zoomTo(explorer.largestZoom() ** (Number(parts.zoom.value) / 1000));
  });
  on(parts.closer, "click", () => explorer.zoomTo(explorer.view.zoom * KEY_ZOOM));
  on(parts.farther, "click", () => explorer.zoomTo(explorer.view.zoom / KEY_ZOOM));
  on(parts.whole, "click", () => explorer.moveView(1, 0, 0));
  on(parts.speed, "input", () => explorer.blink.setSpeed(Number(parts.speed.value) / 10));
  on(parts.play, "click", () => explorer.blink.togglePlaying());
  on(parts.turn, "click", () => explorer.blink.turnByHand());
}

function listenToCurtain(explorer, on) {
  const { curtain, divider, canvas } = explorer.parts;
  on(curtain, "input", () => explorer.moveCurtain(Number(curtain.value) / 1000));
  on(divider, "pointerdown", (event) => {
    event.preventDefault();
    divider.setPointerCapture(event.pointerId);
  });
  on(divider, "pointermove", (event) => {
    if (!divider.hasPointerCapture(event.pointerId)) return;
    const [x] = canvasPosition(explorer, event);
    explorer.moveCurtain(x / canvas.width);
  });
}

// One pointer drags or clicks, two zoom.
function listenToPointer(explorer, on) {
  const { canvas } = explorer.parts;
  const pointers = new Map(); // positions of those that are down
  let dragged = 0; // how far, in pixels of the canvas; infinite once a second pointer came
  const isClick = () => dragged <= CLICK_RADIUS_CSS * explorer.ratio;
  on(canvas, "pointerdown", (event) => {
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, canvasPosition(explorer, event));
    dragged = pointers.size > 1 ? Infinity : 0;
    explorer.readout.cursor = undefined;
  });
  on(canvas, "pointermove", (event) => {
    const now = canvasPosition(explorer, event);
    const before = pointers.get(event.pointerId);
    if (before) {
      const moveX = now[0] - before[0];
      const moveY = now[1] - before[1];
      dragged += Math.hypot(moveX, moveY);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const distance = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
        const grown = distance(now) / Math.max(1, distance(before));
        explorer.zoomBy(grown, ...inPane(other, explorer.panes));
      } else if (!isClick()) {
        explorer.panBy(moveX, moveY);
      }
      pointers.set(event.pointerId, now);
    }
    explorer.readout.readAt(...inPane(now, explorer.panes));
  });
  on(canvas, "pointerup", (event) => {
    if (pointers.has(event.pointerId) && isClick()) {
      const position = inPane(canvasPosition(explorer, event), explorer.panes);
      explorer.readout.readAt(...position);
      explorer.chooseChangeAt(...position);
    }
    pointers.delete(event.pointerId);
  });
  on(canvas, "pointerleave", () => explorer.readout.point(undefined));
  on(canvas, "pointercancel", (event) => pointers.delete(event.pointerId));
  on(canvas, "dblclick", () => explorer.moveView(1, 0, 0));
}

function listenToWheel(explorer, on) {
  const zoom = (event) => {
    // Zoomed out completely, the wheel scrolls the notebook on.
    if (event.deltaY > 0 && explorer.view.zoom === 1) return;
    event.preventDefault();
    event.stopPropagation();
    const perStep = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 3 : 100;
    const steps = Math.min(3, Math.max(-3, event.deltaY / perStep));
    const position = inPane(canvasPosition(explorer, event), explorer.panes);
    explorer.zoomBy(KEY_ZOOM ** -steps, ...position);
    explorer.readout.readAt(...position);
  };
  on(explorer.parts.canvas, "wheel", zoom, { passive: false });
}

// In a notebook keys are the explorer's where it has the focus; a page has them from anywhere while
// the explorer is in sight.
function listenToKeys(explorer, on) {
  const { root } = explorer.parts;
  on(explorer.model.get("is_page") ? document : root, "keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event;
    if (isTypedInto(target) || hasKeyOfItsOwn(target, event.key)) return;
    // Keys that scroll a page scroll it, unless the focus is here.
    if (!root.contains(target) && (SCROLLING.test(event.key) || !isInSight(root))) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const reading = event.shiftKey ? readingKeys(explorer)[event.key] : undefined;
    const act = reading ?? keys(explorer)[key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}

const SCROLLING = /^(Arrow.*|Page.*|Home|End|Enter| )$/;

function isTypedInto(element) {
  return element.closest?.(
    "textarea, select, [contenteditable], dialog, input:not([type=range], [type=checkbox], [type=radio])",
  );
}

function hasKeyOfItsOwn(element, key) {
  if (element.closest?.("input, [role=listbox]")) return SCROLLING.test(key);
  return element.closest?.("button, a, summary") && [" ", "Enter"].includes(key);
}

function isInSight(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

// Keys that are pressed with shift.
function readingKeys(explorer) {
  return {
    ArrowLeft: () => explorer.readout.moveCursor(0, -1),
    ArrowRight: () => explorer.readout.moveCursor(0, 1),
    ArrowUp: () => explorer.readout.moveCursor(-1, 0),
    ArrowDown: () => explorer.readout.moveCursor(1, 0),
  };
}

function keys(explorer) {
  const { pane } = explorer;
  const stepX = pane.width / 10;
  const stepY = pane.height / 10;
  const modes = Object.keys(MODES).map((mode, i) => [
    String(i + 1),
    () => explorer.chooseMode(mode),
  ]);
  const zoomBy = (factor) => explorer.zoomTo(explorer.view.zoom * factor);
  // Of a flat image these keys scroll the page, as everywhere.
  const ofPlanes = {
    PageUp: () => explorer.stepPlane(-1),
    PageDown: () => explorer.stepPlane(1),
    "<": () => explorer.stepPlane(-1),
    ">": () => explorer.stepPlane(1),
  };
  return {
    ...Object.fromEntries(modes),
    ...(explorer.scene.n_planes > 1 ? ofPlanes : {}),
    ArrowLeft: () => explorer.panBy(stepX, 0),
    ArrowRight: () => explorer.panBy(-stepX, 0),
    ArrowUp: () => explorer.panBy(0, stepY),
    ArrowDown: () => explorer.panBy(0, -stepY),
    "+": () => zoomBy(KEY_ZOOM),
    "=": () => zoomBy(KEY_ZOOM),
    "-": () => zoomBy(1 / KEY_ZOOM),
    0: () => explorer.moveView(1, 0, 0),
    " ": () => explorer.blink.turnByHand(),
    "[": () => explorer.moveCurtain(explorer.curtain - 0.02),
    "]": () => explorer.moveCurtain(explorer.curtain + 0.02),
    ",": () => explorer.stepImage(-1),
    ".": () => explorer.stepImage(1),
    n: () => explorer.nextChange(1),
    p: () => explorer.nextChange(-1),
    t: () => explorer.toggle("truth"),
    h: () => explorer.toggle("patterns"),
    i: () => explorer.toggle("image"),
    b: () => explorer.toggle("scale_bar"),
    x: () => explorer.swap(),
    Enter: () => explorer.chooseChangeAtCursor(),
    Escape: () => {
      explorer.readout.cursor = undefined;
      explorer.chooseChange(-1);
    },
  };
}
