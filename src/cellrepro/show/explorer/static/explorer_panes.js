// Panes: one picture over the whole canvas, or A and B side by side, which show the same part.

const GAP_CSS = 4; // between two panes
const WORTH_IT = 1.6; // times larger, and panes lie below each other on a wide page, too
const TALLER = 1.6; // how much higher two panes below each other may be than one picture

// Where the panes lie: one beside the other, or below it where the page is narrow, or the image so
// wide that it would become too small.
function areBeside(columns, rows, widthCss, heightCss, isWide) {
  const beside = Math.min((widthCss - GAP_CSS) / 2 / columns, heightCss / rows);
  const high = heightCss * (isWide ? 1 : TALLER);
  const below = Math.min(widthCss / columns, (high - GAP_CSS) / 2 / rows);
  const isBeside = beside * (isWide ? WORTH_IT : 1) >= below;
  return { isBeside, pixelCss: isBeside ? beside : below };
}

// The panes of a canvas, from the size of one; `without` is the side that a pane does not show.
function panesOf(mode, isBeside, width, height, gap) {
  if (mode !== "sides") return [{ x: 0, y: 0, without: "" }];
  const second = isBeside ? { x: width + gap, y: 0 } : { x: 0, y: height + gap };
  return [
    { x: 0, y: 0, without: "b" },
    { ...second, without: "a" },
  ];
}

// A position on the canvas as one in the pane that holds it.
function inPane([x, y], panes) {
  const pane = panes.findLast((each) => x >= each.x && y >= each.y) ?? panes[0];
  return [x - pane.x, y - pane.y];
}
