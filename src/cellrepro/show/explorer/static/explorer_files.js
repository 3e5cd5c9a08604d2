// Files that the page offers for download: the picture, and arrays as TIFF.

// How the names of masks end, which names of files made of them do not repeat.
const ENDINGS = /((_(cp_)?masks)?(\.ome)?(\.(tiff?|png))?|_seg\.npy)$/i;

// Save what is seen ("png"), the masks of a side ("a", "b"), or the map of "categories".
function saveFile(explorer, content) {
  const { names, data, scene, mode, parts, rows, columns } = explorer;
  const { image } = names;
  const [a, b] = [names.a, names.b].map((name) => name?.replace(ENDINGS, ""));
  const stem = scene.n_planes > 1 ? `${image}_z${scene.z}` : image;
  if (content === "png") {
    parts.canvas.toBlob((blob) => download(blob, `${fileName(stem, a, b, mode)}.png`));
    return;
  }
  const isMap = content === "categories";
  const runs = isMap ? `${names.a} and ${names.b}` : names[content];
  const values = isMap ? data.categories : wideEnough(data[content]);
  const description = `cellrepro: ${image}, ${runs}`.replace(/[^\x20-\x7e]/g, "?");
  const name = isMap ? fileName(stem, a, b, "difference") : fileName(stem, content === "a" ? a : b, "masks");
  download(tiff(values, rows, columns, description), `${name}.tif`);
}

// A run, or a file that masks came from, whose ending and "_masks" would stand there twice.
function fileName(...words) {
  const names = words.map((word) => word.replace(/(_cp)?(_masks?|_seg)?\.[A-Za-z]\w{1,4}$/, ""));
  return names.join("_").replace(/[^\p{L}\p{N}._-]+/gu, "_");
}

// Label images are stored in 16 or 32 bit, as Cellpose does and napari expects of labels.
function wideEnough(labels) {
  return labels instanceof Uint8Array ? Uint16Array.from(labels) : labels;
}

function download(blob, name) {
  const link = make("a", "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// An uncompressed TIFF with one page in one strip, as napari and Fiji open it; written here, so
// that it can be downloaded without asking the kernel again.
function tiff(values, rows, columns, description) {
  const size = values.BYTES_PER_ELEMENT;
  const text = new TextEncoder().encode(`${description}\0`);
  const entries = 12;
  const textAt = 8 + 2 + entries * 12 + 4;
  const dataAt = Math.ceil((textAt + text.length) / 4) * 4;
  const bytes = new Uint8Array(dataAt + values.byteLength);
  const view = new DataView(bytes.buffer);
  bytes.set([0x49, 0x49, 42, 0, 8, 0, 0, 0]); // little-endian, the directory follows
  view.setUint16(8, entries, true);
  let at = 10;
  const entry = (tag, value, { type = 4, count = 1 } = {}) => {
    view.setUint16(at, tag, true);
    view.setUint16(at + 2, type, true);
    view.setUint32(at + 4, count, true);
    if (type === 3) view.setUint16(at + 8, value, true);
    else view.setUint32(at + 8, value, true);
    at += 12;
  };
  const short = { type: 3 };
  entry(256, columns);
  entry(257, rows);
  entry(258, size * 8, short); // bits per sample
  entry(259, 1, short); // not compressed
  entry(262, 1, short); // 0 is black
  entry(270, textAt, { type: 2, count: text.length });
  entry(273, dataAt); // where the only strip begins
  entry(277, 1, short); // samples per pixel
  entry(278, rows); // rows per strip
  entry(279, values.byteLength);
  entry(284, 1, short); // planar configuration
  entry(339, 1, short); // unsigned integers
  bytes.set(text, textAt);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), dataAt);
  return new Blob([bytes], { type: "image/tiff" });
}
