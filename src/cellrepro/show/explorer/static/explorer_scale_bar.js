// A bar of a round length, from the size of a pixel that the image's file says.

const BAR_SHARE = 0.25; // of the picture's width that the bar takes at most
const ROUND = [5, 2, 1];

// The longest bar of a round length, for the size of a canvas pixel in micrometres.
function scaleBar(pixelSize, width) {
  const most = pixelSize * width * BAR_SHARE;
  const power = 10 ** Math.floor(Math.log10(most));
  const micrometres = power * ROUND.find((factor) => factor * power <= most * (1 + 1e-9));
  return { length: micrometres / pixelSize, text: lengthText(micrometres) };
}

function lengthText(micrometres) {
  const [factor, unit] = micrometres >= 1000 ? [1e-3, "mm"] : micrometres < 1 ? [1e3, "nm"] : [1, "\u00b5m"];
  return `${Number((micrometres * factor).toPrecision(3))}\u00a0${unit}`;
}

// Draw the bar in the lower right corner of a picture of that size, white on black.
function drawScaleBar(context, bar, width, height, ratio) {
  const thick = Math.max(2, Math.round(4 * ratio));
  const right = width - 12 * ratio;
  const bottom = height - 12 * ratio;
  context.font = `600 ${Math.round(12 * ratio)}px system-ui, sans-serif`;
  context.textAlign = "center";
  const middle = right - Math.max(bar.length, context.measureText(bar.text).width) / 2;
  const left = Math.round(middle - bar.length / 2);
  context.fillStyle = "#000000";
  context.fillRect(left - ratio, bottom - thick - ratio, Math.round(bar.length) + 2 * ratio, thick + 2 * ratio);
  context.fillStyle = "#ffffff";
  context.fillRect(left, bottom - thick, Math.round(bar.length), thick);
  context.lineWidth = 3 * ratio;
  context.strokeStyle = "#000000";
  context.lineJoin = "round";
  const baseline = bottom - thick - 5 * ratio;
  context.strokeText(bar.text, middle, baseline);
  context.fillText(bar.text, middle, baseline);
}
