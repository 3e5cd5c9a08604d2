// The table of runs: sorts, filters, and folds to what two ticked runs differ in.
// Without it the table is whole. It takes values from the page as text alone.
(() => {
  const inOrder = new Intl.Collator("en", { numeric: true }).compare; // made once: it is slow to make
  const MOST_CHOICES = 12; // of a column that gets a list of its values
  const OWN_REPEATS = "repeats of its spec"; // the heading of their verdict
  const make = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    Object.assign(element, properties);
    element.append(...children);
    return element;
  };
  const textOf = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
  // A verdict and what of it differs stand in two lines of one cell.
  const lineOf = (cell) => [...cell.children].map(textOf).filter(Boolean).join(": ") || textOf(cell);
  const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

  class RunTable {
    constructor(root) {
      this.root = root;
      this.facts = JSON.parse(root.querySelector(".run-table-data").textContent);
      this.listed = root.querySelector(".listed");
      this.two = root.querySelector(".two");
      this.fields = root.querySelector(".fields"); // below the explorer: the cells come first
      this.explorer = root.querySelector(".explorer-of-two");
      this.body = this.listed.querySelector("tbody");
      this.heads = [...this.listed.querySelectorAll("thead th")];
      this.rows = [...this.body.rows].map((element, number) => ({
        element,
        number, // in the order of the page, as in the facts
        name: element.dataset.name,
        label: textOf(element.cells[0].firstElementChild),
        texts: [...element.cells].map(lineOf),
        numbers: [...element.cells].map((cell) => RunTable.number(cell)),
        words: textOf(element).toLowerCase(),
      }));
      this.ticked = [];
      this.pairs = []; // the two that are ticked, on the images of the explorer
      this.explorer.addEventListener("chosen", ({ detail }) => this.follow(detail));
      this.addTicks();
      this.addSorting();
      this.addFilters();
      this.showCount();
      root.dataset.ready = "";
      for (const link of document.querySelectorAll("[data-compare]")) {
        link.addEventListener("click", () => this.compareByName(link.dataset.compare.split(" ")));
      }
    }

    static number(cell) {
      if (!cell.classList.contains("number")) return NaN;
      return Number.parseFloat(cell.dataset.number ?? cell.textContent);
    }

    // ---- sorting -------------------------------------------------------------------------------

    addSorting() {
      this.heads.forEach((head, column) => {
        const button = make("button", { type: "button", title: "Sort by this column" });
        button.append(...head.childNodes);
        head.append(button);
        head.setAttribute("aria-sort", "none");
        button.addEventListener("click", () => this.sort(column));
      });
    }

    sort(column) {
      const head = this.heads[column];
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const each of this.heads) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const compare = (a, b) => {
        const [x, y] = [a.numbers[column], b.numbers[column]];
        if (!Number.isNaN(x) && !Number.isNaN(y)) return sign * (x - y);
        if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1; // none: last
        return sign * inOrder(a.texts[column], b.texts[column]);
      };
      // Rows that are equal in this column keep the order of the page.
      const sorted = [...this.rows].sort((a, b) => compare(a, b) || a.number - b.number);
      this.body.append(...sorted.map((row) => row.element));
      this.fit();
    }

    // Of a long table there is a window, which ends below a whole row.
    fit() {
      const box = this.listed;
      box.style.maxHeight = "";
      this.isCut = box.scrollHeight - box.clientHeight > 1;
      if (!this.isCut) return;
      const top = box.getBoundingClientRect().top + box.clientTop - box.scrollTop;
      const ends = [...this.body.rows].filter((row) => !row.hidden).map((row) => row.getBoundingClientRect().bottom - top);
      const whole = ends.filter((end) => end <= box.clientHeight).pop();
      const around = box.offsetHeight - box.clientHeight;
      if (whole) box.style.maxHeight = `${whole + around}px`;
    }

    // ---- filtering -----------------------------------------------------------------------------

    addFilters() {
      const filter = make("input", { type: "search", placeholder: "any word or number" });
      this.selects = [];
      const asking = make("div", { className: "asking" });
      asking.append(make("label", {}, "only rows with", filter));
      this.heads.forEach((head, column) => {
        if (head.dataset.choice === undefined) return;
        const values = [...new Set(this.rows.map((row) => row.texts[column]))];
        if (values.length < 2 || values.length > MOST_CHOICES) return;
        values.sort(inOrder);
        const select = make("select", {}, make("option", { value: "", textContent: "all" }));
        for (const value of values) select.append(make("option", { value: `=${value}`, textContent: value }));
        asking.append(make("label", { className: "choice" }, textOf(head), select));
        this.selects.push({ select, column });
      });
      asking.append(...this.narrowControls(asking));
      this.said = make("p", { className: "said" });
      this.said.setAttribute("role", "status");
      asking.append(this.said);
      this.filter = filter;
      asking.addEventListener("input", () => this.showMatching());
      this.asking = asking;
      this.listed.before(asking);
    }

    // What a narrow screen has in place of headings and of filters beside each other.
    narrowControls(asking) {
      const by = make("select", { ariaLabel: "sort by" }, make("option", { value: "", textContent: "as listed" }));
      this.heads.forEach((head, column) => {
        if (!head.classList.contains("tick")) by.append(make("option", { value: column, textContent: textOf(head) }));
      });
      const sort = () => (by.value ? this.sort(Number(by.value)) : this.body.append(...this.rows.map((row) => row.element)));
      by.addEventListener("change", sort);
      const turn = make("button", { type: "button", textContent: "⇅", title: "Turn the order round" });
      turn.addEventListener("click", sort);
      const more = make("button", { type: "button", textContent: "filters", hidden: !this.selects.length });
      more.setAttribute("aria-expanded", "false");
      more.addEventListener("click", () => {
        const isOpen = asking.classList.toggle("open");
        more.setAttribute("aria-expanded", String(isOpen));
      });
      const sorting = make("div", { className: "narrow" }, make("label", {}, "sort by", by), turn, more);
      return [sorting];
    }

    showMatching() {
      // "seed 1" as it stands, where a run has it; else all words of it, in any order.
      const phrase = this.filter.value.toLowerCase().trim();
      const isSaid = this.rows.some((row) => row.words.includes(phrase));
      const words = isSaid ? [phrase] : phrase.split(/\s+/);
      for (const row of this.rows) {
        const hasWords = words.every((word) => row.words.includes(word));
        const hasValues = this.selects.every(
          ({ select, column }) => !select.value || select.value === `=${row.texts[column]}`,
        );
        row.element.hidden = !(hasWords && hasValues);
      }
      this.showCount();
    }

    showCount() {
      const n = this.rows.filter((row) => !row.element.hidden).length;
      const shown = n === this.rows.length ? plural(n, "repeat") : `${n} of ${plural(this.rows.length, "repeat")}`;
      const next = this.ticked.length ? "tick a second one" : "tick two to see only what differs";
      this.fit();
      const more = this.isCut ? ["scroll in the table for more"] : [];
      this.said.textContent = this.rows.length > 1 ? [shown, next, ...more].join(" · ") : shown;
    }

    // ---- two runs ------------------------------------------------------------------------------

    addTicks() {
      const head = make("th", { className: "tick", textContent: "✓" });
      head.setAttribute("scope", "col");
      head.setAttribute("aria-label", "two to compare");
      this.heads[0].before(head);
      for (const row of this.rows) {
        const box = make("input", { type: "checkbox" });
        box.setAttribute("aria-label", `compare ${row.label}`);
        box.addEventListener("change", () => this.tick(row, box.checked));
        row.box = box;
        // On a narrow screen a row is a card, whose values say what they are.
        row.texts.forEach((_, column) => {
          if (column) row.element.cells[column].dataset.label = textOf(this.heads[column]);
        });
        row.element.prepend(make("td", { className: "tick" }, box));
      }
    }

    tick(row, isTicked) {
      this.ticked = this.ticked.filter((each) => each !== row);
      if (isTicked) this.ticked.push(row);
      if (this.ticked.length === 2) this.fold();
      else this.showCount();
    }

    compareByName(names) {
      const rows = names.map((name) => this.rows.find((row) => row.name === name));
      if (rows.includes(undefined)) return;
      for (const row of this.rows) row.box.checked = rows.includes(row);
      this.ticked = rows;
      this.fold();
    }

    unfold() {
      const [first] = this.ticked;
      for (const row of this.ticked) row.box.checked = false;
      this.ticked = [];
      for (const part of [this.two, this.explorer, this.fields]) part.hidden = true;
      this.listed.hidden = false;
      this.asking.hidden = false;
      this.showCount();
      first.box.focus();
    }

    fold() {
      this.describe();
      if (this.pairs.length) this.show(this.pairs[0]);
      this.two.querySelector("button").focus({ preventScroll: true });
      (this.root.closest("section") ?? this.two).scrollIntoView({ block: "start" }); // with its title
    }

    // What is A in the explorer is A here, too.
    follow({ a }) {
      if (!this.pairs.length || a === this.pairs[0].a) return;
      this.ticked.reverse();
      this.describe();
    }

    describe() {
      const [a, b] = this.ticked;
      this.listed.hidden = true;
      this.asking.hidden = true;
      this.two.hidden = false;
      const back = make("button", { type: "button", textContent: "← all repeats" });
      back.addEventListener("click", () => this.unfold());
      const swap = make("button", { type: "button", textContent: "⇄ exchange A and B" });
      swap.addEventListener("click", () => {
        this.ticked.reverse();
        this.fold();
      });
      const side = (letter, row) =>
        make("div", { className: letter.toLowerCase() }, make("b", {}, `${letter}: ${row.label}`),
          make("small", {}, make("code", {}, ...row.name.split("/").flatMap((part, i) => (i ? ["/", make("wbr", {}), part] : [part])))));
      this.two.replaceChildren(
        make("div", { className: "actions" }, back, swap),
        make("div", { className: "sides" }, side("A", a), side("B", b)),
        ...this.results(a, b),
        ...this.images(a, b),
        make("p", {}, "The same in a terminal: ", make("code", {}, this.command(a, b))),
      );
      this.explorer.hidden = !this.pairs.length;
      this.fields.replaceChildren(
        ...this.differing("Asked for", "spec", a, b),
        ...this.differing("Environment", "environment", a, b),
      );
      this.fields.hidden = false;
    }

    // What both came to, column by column of the table.
    results(a, b) {
      const names = [OWN_REPEATS, "came to", "cells", "AP@0.5", "seconds"];
      const rows = names.map((name) => {
        const column = this.heads.findIndex((head) => textOf(head) === name);
        return [name, a.texts[column], b.texts[column]];
      });
      const differing = rows.filter(([, x, y]) => x !== y);
      return [make("h4", {}, "Came out"), make("p", {}, this.sentence(a, b)), ...(differing.length ? [tableOf(differing)] : [])];
    }

    command(a, b) {
      const names = this.facts.command_name;
      return `cellrepro compare ${names[a.number]} ${names[b.number]}${this.facts.command_options}`;
    }

    sentence(a, b) {
      const [bitsA, bitsB] = [this.facts.bits[a.number], this.facts.bits[b.number]];
      const [resultA, resultB] = [this.facts.result[a.number], this.facts.result[b.number]];
      const parts = [];
      if (bitsA[1] && bitsB[1]) {
        parts.push(bitsA[1] === bitsB[1] ? "The weights are equal in every bit" : "The weights differ");
      }
      if (bitsA[0] === bitsB[0]) parts.push("the masks are equal in every bit");
      else if (resultA !== null && resultA === resultB) {
        parts.push("the cells have the same outlines in every image, with other numbers");
      } else parts.push("the masks differ");
      const text = parts.join("; ");
      return `${text[0].toUpperCase()}${text.slice(1)}.`;
    }

    // The fields of spec or environment in which the two differ, as `compare` says them.
    differing(title, section, a, b) {
      const { names, values, of_row: ofRow } = this.facts[section];
      const [inA, inB] = [values[ofRow[a.number]], values[ofRow[b.number]]];
      const rows = names
        .map((name, i) => [name, inA[i], inB[i]])
        .filter(([, x, y]) => x !== null && y !== null && x !== y);
      const head = make("h4", {}, title);
      if (rows.length) return [head, tableOf(rows)];
      return [head, make("p", {}, "The same in every field.")];
    }

    // The images on which the two differ, the one that differs most first.
    images(a, b) {
      this.pairs = [];
      const { result, chapter, outlines, images, side, pairs } = this.facts;
      const [resultA, resultB] = [result[a.number], result[b.number]];
      if (resultA !== null && resultA === resultB) return [];
      const head = make("h4", {}, "Cells");
      if (resultA === null || resultB === null) {
        return [head, make("p", {}, "One of the two is a network that others were trained from, which is none of the results in the explorer. A page with both: ",
          make("code", {}, `${this.command(a, b)} --html two.html`))];
      }
      if (chapter[resultA] !== chapter[resultB]) {
        return [head, make("p", {}, "The two are of different tasks or images: this page holds no picture of the two beside each other. A page with both, where the images are the same: ",
          make("code", {}, `${this.command(a, b)} --html two.html`))];
      }
      const said = [head];
      if (outlines.length) {
        const names = images[chapter[resultA]];
        const differing = names.filter((_, i) => outlines[resultA][i] !== outlines[resultB][i]);
        const listed = differing.slice(0, 8).join(", ") + (differing.length > 8 ? " and more" : "");
        said.push(make("p", {}, `The outlines differ in ${differing.length} of ${plural(names.length, "image")}: ${listed}.`));
      }
      const [sideA, sideB] = [side[resultA], side[resultB]];
      const shown = pairs.filter((pair) => pair.a === sideA && pair.b === sideB);
      const hasPicture = (pair) => pair.view !== null;
      if (!shown.some(hasPicture) || !shown[0].ppm) {
        said.push(make("p", {}, "This page holds no picture of them. A page with the explorer: ",
          make("code", {}, `${this.command(a, b)} --html two.html`)));
      }
      if (!shown.length || !shown[0].ppm) return said;
      const isCounted = this.facts.kinds.map((_, i) => shown.some((pair) => pair.kinds[i]));
      const counted = (values) => values.filter((_, i) => isCounted[i]);
      const rows = shown.map((pair) => {
        const values = [...counted(pair.kinds), pair.pixels];
        if (!hasPicture(pair)) return [pair.image, ...values];
        const button = make("button", { type: "button", textContent: pair.image, title: "Show in the explorer" });
        button.addEventListener("click", () => {
          this.show(pair);
          this.explorer.scrollIntoView({ block: "nearest" });
        });
        return [button, ...values];
      });
      const titles = ["image", ...counted(this.facts.kinds), "pixels that differ"];
      said.push(make("div", { className: "by-image" }, plainTable(titles, rows)));
      this.pairs = shown.filter(hasPicture);
      return said;
    }

    // Equal cells of several repeats are one choice of the explorer, which is called by the row. Only
    // the two that are ticked can be chosen there, and images that both have.
    show({ view, a, b }) {
      const names = {};
      for (const { label, number } of this.ticked) {
        const result = this.facts.result[number];
        names[this.facts.side[result]] = `${label}${this.facts.endings[result]}`;
      }
      for (const [side, name] of Object.entries(names)) {
        for (const option of this.explorer.querySelectorAll(`.cre-pair option[value="${side}"]`)) option.textContent = name;
      }
      const views = this.pairs.map((pair) => pair.view).sort((x, y) => x - y);
      const detail = { view, a, b, names, only: { sides: [a, b], views } };
      this.explorer.querySelector("#explorer").dispatchEvent(new CustomEvent("choose", { detail }));
    }
  }

  function plainTable(titles, rows) {
    const head = make("tr", {}, ...titles.map((title) => {
      const cell = make("th", {}, title);
      cell.setAttribute("scope", "col");
      return cell;
    }));
    const body = rows.map((row) => make("tr", {}, ...row.map((value, i) => {
      const cell = make("td", {}, value);
      if (i) cell.dataset.label = titles[i];
      return cell;
    })));
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  }

  // Fields as A and B have them.
  function tableOf(rows) {
    return plainTable(["", "A", "B"], rows);
  }

  for (const root of document.querySelectorAll(".run-table:not([data-ready])")) new RunTable(root);
})();
