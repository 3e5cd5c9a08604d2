// Cells: what became of each between A and B, in words, as a story and as a list.
//
// A story `s` is a table by columns, see `story_of` in open_view.py; each of its rows is a change.

// Python gives what each kind of change says, in the order of the list (KINDS), its sign for those
// who see no colours (SIGNS) and its name for people (KIND_WORDS).

// What the words for lost and gained say where A or B is the ground truth.
const TRUTH_WORDS = {
  missed: "a cell of the truth that the run does not have",
  extra: "a cell of the run that the truth does not have",
};

// What each kind of change is called; compared with the truth, a cell is missed or extra.
function kindWords(truthIs) {
  const words = { ...KIND_WORDS };
  if (truthIs === "a") Object.assign(words, { lost: "missed", gained: "extra" });
  if (truthIs === "b") Object.assign(words, { lost: "extra", gained: "missed" });
  return words;
}

// The columns of the list of cells: the text of row `r` of a story `s`, and by what it is sorted.
const COLUMNS = [
  {
    key: "kind",
    label: "change",
    title: "what became of the cell",
    order: (s, r) => Object.keys(KINDS).indexOf(fateOf(s, r)),
    text: (s, r) => badge(fateOf(s, r), fateWords(s, r)),
  },
  {
    key: "cell",
    label: "cell",
    title: "its number in A \u2192 in B, where these are not the same",
    order: (s, r) => (s.labels_a[r].length ? s.labels_a : s.labels_b)[r][0],
    text: (s, r) => numbersOfChange(s, r),
  },
  {
    key: "iou",
    label: "IoU",
    title: "overlap: intersection over union",
    number: true,
    order: (s, r) => s.iou[r],
    text: (s, r) => (s.area_a[r] && s.area_b[r] ? iouText(s.iou[r], 2) : "\u2013"),
  },
  {
    key: "area",
    label: "area",
    title: "area in pixels, in A \u2192 in B, where these are not the same",
    ofStack: { label: "volume", title: "volume in voxels, in A \u2192 in B, where these are not the same" },
    number: true,
    order: (s, r) => s.area_a[r] || s.area_b[r],
    text: (s, r) => {
      const [p, q] = [s.area_a[r], s.area_b[r]];
      return p && q && p !== q ? `${grouped(p)} \u2192 ${grouped(q)}` : grouped(p || q);
    },
  },
  {
    key: "runs",
    label: "found in",
    title: "how many of all repeats, or of the results given, have this cell",
    number: true,
    where: (s) => s.runs !== undefined,
    order: (s, r) => s.runs[r] ?? -1,
    text: (s, r) => (s.runs[r] === null ? "\u2013" : `${s.runs[r]} of ${s.n_runs}`),
  },
];

const ROW_CSS = 26; // height of a row of the list
const LEAST_ROWS = 2; // for which the list has room
const SPARE_ROWS = 6; // drawn above and below what is seen
const HEAD_SHARE = 0.85; // size of the letters of the head, by that of the list
const MOST_NUMBERS = 3; // of cells on one side that the list names
const SPARE_EM = 0.25; // letters on the screen are a little wider than measured at a large size
const AS_GIVEN = { key: "", down: false }; // the cells that differ most come first

// What became of a cell, for the list: kept ones of another size are a kind of their own.
function fateOf(story, row) {
  return story.growth[row] === null ? story.kind[row] : "resized";
}

function fateWords(story, row) {
  const growth = story.growth[row];
  if (growth === null) return story.words[story.kind[row]];
  return `${story.words.kept}, ${Math.round(100 * Math.abs(growth))} % ${growth > 0 ? "larger" : "smaller"}`;
}

// The story of one cell, as the elements of the page: what became of it, and its numbers.
function storyElements(story, row) {
  const kind = story.kind[row];
  const sentence = {
    kept: "the same cell in both",
    moved: "in both, elsewhere or with a different outline",
    lost: story.inside[row].length ? "in A, inside another cell of B" : "only in A",
    gained: story.inside[row].length ? "in B, inside another cell of A" : "only in B",
    split: `one cell in A is ${story.labels_b[row].length} cells in B`,
    merged: `${story.labels_a[row].length} cells in A are one cell in B`,
  }[kind];
  const words = make("span", "", {}, sentence);
  const title = make("p", "cre-told", {}, badge(fateOf(story, row), fateWords(story, row)), words);
  const facts = make("dl", "cre-facts");
  for (const [name, text] of storyFacts(story, row)) {
    facts.append(make("dt", "", {}, name), make("dd", "", {}, text));
  }
  return [title, facts];
}

// The number that a cell has in its file. Where numbers begin anew in each plane, the masks here
// have others, which name one cell each.
function givenNumber(story, side, label) {
  return story.given ? story.given[side][label] : label;
}

// Planes count from 0, as rows and columns do.
function planeText(z) {
  return `z ${Math.round(z)}`;
}

// Pairs of name and text.
function storyFacts(story, row) {
  const facts = [];
  const position = story.position[row];
  const isStack = isOfStack(story, row);
  const unit = isStack ? "voxels" : "px";
  const areaA = story.area_a[row];
  const areaB = story.area_b[row];
  const cells = (side, area) => `cell ${numbersOn(story, side, row)}, ${grouped(area)} ${unit}`;
  if (areaA) facts.push(["in A", cells("a", areaA)]);
  if (areaB) facts.push(["in B", cells("b", areaB)]);
  if (areaA && areaB) {
    const percent = ((areaB - areaA) / areaA) * 100;
    const sign = percent < 0 ? "\u2212" : "+";
    const relative = `${sign}${Math.abs(percent).toFixed(1)}\u00a0%`;
    facts.push([isStack ? "volume" : "area", `${signed(areaB - areaA)} ${unit} (${relative})`]);
    const isCut = story.labels_a[row].length + story.labels_b[row].length > 2;
    facts.push([isCut ? "IoU of all parts together" : "IoU", iouText(story.iou[row], 3)]);
  }
  const [y, x] = position.slice(-2).map((value) => value.toFixed(1));
  facts.push(["centre", `${isStack ? `${planeText(position[0])}, ` : ""}y ${y}, x ${x}`]);
  for (const label of story.inside[row]) {
    const other = areaA ? "b" : "a";
    facts.push([`inside, in ${other.toUpperCase()}`, `cell ${givenNumber(story, other, label)}`]);
  }
  const cuts = story.cut_between[row].map(([above, below]) => `${above} and ${below}`);
  if (cuts.length) facts.push(["cut between", `planes z ${cuts.join("; ")}`]);
  if (story.moved[row] !== null) facts.push(["centre moved by", `${story.moved[row].toFixed(2)} px`]);
  if (story.runs && story.runs[row] !== null) {
    const n = story.runs[row];
    const percent = Math.round((n / story.n_runs) * 100);
    facts.push(["found in", `${n} of ${story.n_runs} ${story.of_what} (${percent} %)`]);
  }
  return facts;
}

// A sortable list of which only the rows in sight are in the page.
class CellList {
  constructor() {
    this.rows = []; // numbers of changes
    this.chosen = -1; // position in rows
    this.sorted = AS_GIVEN;
    this.head = make("div", "cre-head");
    this.space = make("div", "cre-space");
    this.window = make("div", "cre-window", {
      ...KEEP_KEYS,
      tabindex: "0",
      role: "listbox",
      "aria-label": "Cells; arrow keys choose one and show it",
    }, this.space);
    this.root = make("div", "cre-table", {}, this.head, this.window);
    this.window.addEventListener("scroll", () => this.paint(), { passive: true });
    this.window.addEventListener("keydown", (event) => this.key(event));
    this.window.addEventListener("click", (event) => {
      const row = event.target.closest("[data-row]");
      if (row) this.choose(Number(row.dataset.row));
    });
  }

  fill(story, rows, chosen) {
    Object.assign(this, { story, rows });
    const isStack = rows.length > 0 && isOfStack(story, rows[0]);
    this.columns = COLUMNS.filter(({ where }) => !where || where(story)).map((column) => ({
      ...column,
      ...(isStack && column.ofStack),
    }));
    this.fitColumns();
    const known = this.columns.some(({ key }) => key === this.sorted.key);
    this.sort(known ? this.sorted : AS_GIVEN, chosen);
  }

  // The columns of numbers take what their longest text needs, kinds the rest, but never less than
  // their usual words; where there is no room for all, cells are cut, which have many numbers.
  fitColumns() {
    const widths = this.columns.slice(1).map(({ label, text }) => {
      const texts = this.rows.map((row) => text(this.story, row));
      const longest = texts.reduce((one, other) => (other.length > one.length ? other : one), "");
      const em = Math.max(widthInEm(longest), HEAD_SHARE * widthInEm(`${label} \u25b4`));
      return `${(em + SPARE_EM).toFixed(2)}em`;
    });
    const [cells, ...numbers] = widths;
    const columns = ["minmax(var(--change, calc(36px + 4.5em)), 1fr)", `minmax(2.5em, ${cells})`, ...numbers];
    this.root.style.setProperty("--columns", columns.join(" "));
  }

  sort(sorted, chosen = this.rows[this.chosen]) {
    const focused = this.head.contains(document.activeElement);
    this.sorted = sorted;
    const order = this.columns.find(({ key }) => key === sorted.key)?.order ?? (() => 0);
    const sign = sorted.down ? -1 : 1;
    const values = new Map(this.rows.map((row) => [row, order(this.story, row)]));
    this.rows.sort((p, q) => {
      const [x, y] = [values.get(p), values.get(q)];
      return (x < y ? -sign : x > y ? sign : 0) || p - q;
    });
    this.head.replaceChildren(
      ...this.columns.map(({ key, label, title, number }) => {
        const here = key === sorted.key;
        const element = button(`cre-sort${number ? " cre-number" : ""}`, label, {
          title,
          "data-sort": key,
          "aria-sort": here ? (sorted.down ? "descending" : "ascending") : "none",
        });
        const next = { key, down: here && !sorted.down };
        element.addEventListener("click", () => this.sort(next));
        return element;
      }),
    );
    if (focused) this.head.querySelector(`[data-sort="${sorted.key}"]`).focus();
    this.chosen = this.rows.indexOf(chosen);
    this.space.style.height = `${this.rows.length * ROW_CSS}px`;
    this.window.style.maxHeight = `${Math.max(LEAST_ROWS, this.rows.length) * ROW_CSS}px`; // no empty box
    this.window.scrollTop = 0;
    this.reveal();
    this.paint();
  }

  // Show as chosen the row of a change, without calling `onchoose`.
  mark(row) {
    this.chosen = this.rows.indexOf(row);
    this.reveal();
    this.paint();
  }

  choose(position) {
    if (!this.rows.length) return;
    this.chosen = Math.min(this.rows.length - 1, Math.max(0, position));
    this.reveal();
    this.paint();
    this.onchoose?.(this.rows[this.chosen]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.window.clientHeight / ROW_CSS) - 1);
    const to = {
      ArrowDown: this.chosen + 1,
      ArrowUp: this.chosen - 1,
      PageDown: this.chosen + page,
      PageUp: this.chosen - page,
      Home: 0,
      End: this.rows.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(to);
  }

  reveal() {
    if (this.chosen < 0) return;
    const { scrollTop, clientHeight } = this.window;
    const top = this.chosen * ROW_CSS;
    if (top < scrollTop) this.window.scrollTop = top;
    else if (top + ROW_CSS > scrollTop + clientHeight) {
      this.window.scrollTop = top + ROW_CSS - clientHeight;
    }
  }

  paint() {
    const { scrollTop, clientHeight } = this.window;
    const first = Math.max(0, Math.floor(scrollTop / ROW_CSS) - SPARE_ROWS);
    const seen = Math.ceil((clientHeight || 10 * ROW_CSS) / ROW_CSS) + 2 * SPARE_ROWS;
    const rows = [];
    for (let i = first; i < Math.min(this.rows.length, first + seen); i++) {
      const change = this.rows[i];
      const row = make("div", "cre-row", {
        role: "option",
        "data-row": String(i),
        "data-kind": fateOf(this.story, change),
        "aria-selected": String(i === this.chosen),
        "aria-posinset": String(i + 1),
        "aria-setsize": String(this.rows.length),
      });
      row.style.top = `${i * ROW_CSS}px`;
      for (const { number, text } of this.columns) {
        row.append(make("span", number ? "cre-number" : "", {}, text(this.story, change)));
      }
      rows.push(row);
    }
    if (!rows.length) rows.push(make("p", "cre-none", {}, "No cell of these kinds."));
    this.space.replaceChildren(...rows);
  }
}

function cellNumbers(story, row) {
  return numbersOn(story, "a", row) || numbersOn(story, "b", row);
}

// How wide a text is in the bold letters of the page, by the size of these.
function widthInEm(text) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `600 100px ${getComputedStyle(document.querySelector(".cellrepro-explorer")).fontFamily}`;
  return context.measureText(text).width / 100;
}

// The numbers on both sides, short: "7 + 11 \u2192 8".
function numbersOfChange(story, row) {
  const [a, b] = ["a", "b"].map((side) => {
    const n = story[`labels_${side}`][row].length;
    return n > MOST_NUMBERS ? `${n} cells` : numbersOn(story, side, row);
  });
  return a && b && a !== b ? `${a} \u2192 ${b}` : a || b;
}

function isOfStack(story, row) {
  return story.position[row].length === 3;
}

function numbersOn(story, side, row) {
  return story[`labels_${side}`][row].map((label) => givenNumber(story, side, label)).join(" + ");
}

function badge(kind, word) {
  const sign = make("span", `cre-sign cre-sign-${kind}`, { "aria-hidden": "true" }, SIGNS[kind]);
  return make("span", "cre-badge", { title: word }, sign, make("span", "", {}, word));
}
