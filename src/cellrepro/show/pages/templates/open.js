// The page of `cellrepro open`: files are sent to the server of this computer, which tells them
// apart; the comparison that it makes is shown in a frame.
"use strict";

const SLOTS = ["image", "a", "b"];
const TITLES = { image: "image", a: "result A", b: "result B", "": "not compared" };
const at = (id) => document.getElementById(id);

let desk = null; // the name that the server has for this page
let mostBytes = 0;
let endings = []; // of files that may be masks, those of a folder that are sent
let files = new Map(); // by the name that the server has for each
let slots = { image: null, a: null, b: null };
let busy = 0; // files on their way
let comparing = null; // the comparison that is waited for
let hasEnded = false;

// -- asking the server ------------------------------------------------------------------------

class Problem extends Error {}

function gone() {
  if (!hasEnded) showProblem("The program that serves this page has ended. Start it again, and open its new address.");
  return new Problem("");
}

async function ask(path, fields) {
  let answer;
  try {
    answer = await fetch(path, fields && {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(fields),
    });
  } catch {
    throw gone();
  }
  return understood(answer.status, await answer.text());
}

function understood(status, text) {
  let content = {};
  try {
    content = JSON.parse(text);
  } catch {
    throw new Problem(text || `The program answered with ${status}.`);
  }
  if (content.problem && status !== 200) throw new Problem(content.problem);
  return content;
}

function send(file, folder, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not say how far it is
    const query = new URLSearchParams({ desk, name: file.name, changed: file.lastModified, ...folder });
    request.open("POST", `file?${query}`);
    request.upload.onprogress = (event) => onProgress(event.loaded / Math.max(1, event.total));
    request.onload = () => {
      try {
        resolve(understood(request.status, request.responseText));
      } catch (problem) {
        reject(problem);
      }
    };
    request.onerror = () => reject(gone());
    request.send(file);
  });
}

// Once: what is dropped before the answer is there waits for it.
let begun = null;
function start() {
  begun ??= ask("desk", {}).then((answer) => {
    desk = answer.desk;
    mostBytes = answer.most_bytes;
    endings = answer.endings;
  });
  return begun;
}

// -- files ------------------------------------------------------------------------------------

async function add(given, wanted = null) {
  showProblem("");
  await start();
  const problems = [];
  for (const one of given) {
    busy += 1;
    draw();
    try {
      const known = one.files ? await sendFolder(one) : await sendFile(one);
      files.set(known.id, known);
      place(known, wanted);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.message) problems.push(problem.message);
    } finally {
      busy -= 1;
    }
    say("");
    draw();
  }
  if (problems.length) showProblem(problems.join("\n"));
  say("");
}

async function sendFile(file, folder = {}) {
  if (file.size === 0) throw new Problem(`${file.name} is empty (0 bytes): copy it again from where it comes from.`);
  if (file.size > mostBytes) throw new Problem(`${file.name} is too large for this page.`);
  if (!folder.folder) say(`Reading ${file.name} …`);
  return send(file, folder, (share) => {
    if (file.size > 2e7) say(share < 1 ? `Reading ${file.name} … ${Math.round(100 * share)} %` : `Looking into ${file.name} …`);
  });
}

async function sendFolder({ name, files: inside }) {
  const masks = inside.filter((file) => !file.name.startsWith(".") && endings.some((ending) => file.name.toLowerCase().endsWith(ending)));
  if (masks.length === 0) throw new Problem(`The folder ${name} holds no masks (${endings.join(", ")}).`);
  const { folder } = await ask("folder", { desk, name });
  let bytes = 0;
  for (const [n, file] of masks.entries()) {
    say(`Reading the folder ${name}: ${n + 1} of ${masks.length} files …`);
    await sendFile(file, { folder });
    bytes += file.size;
  }
  say(`Looking into ${name} …`);
  return { ...(await ask("folder/end", { desk, folder })), n_bytes: bytes };
}

// Where a file goes: where it was dropped, else the first free place of its kind.
function place(known, wanted) {
  const free = (slot) => slots[slot] === null;
  const fitting = { image: ["image"], masks: ["a", "b"], beside: [] }[known.likely];
  // A file that could not be read leaves the place to one that can.
  const slot = wanted ?? (known.problem ? undefined : fitting.find(free));
  if (slot) slots[slot] = known.id;
}

function use(id, wanted) {
  const before = SLOTS.find((slot) => slots[slot] === id);
  const other = wanted ? slots[wanted] : null;
  if (before) slots[before] = other;
  if (wanted) slots[wanted] = id;
  showProblem("");
  say("");
  draw();
}

async function remove(id) {
  for (const slot of SLOTS) if (slots[slot] === id) slots[slot] = null;
  files.delete(id);
  showProblem("");
  say("");
  draw();
  await ask("remove", { desk, file: id });
}

function exchange() {
  [slots.a, slots.b] = [slots.b, slots.a];
  draw();
  say(`A is ${files.get(slots.a).name}, B is ${files.get(slots.b).name}.`);
}

// -- drawing ----------------------------------------------------------------------------------

function draw() {
  document.body.classList.toggle("has-files", files.size > 0);
  document.querySelector(".more").textContent = files.size > 0 ? "more" : "your";
  for (const card of document.querySelectorAll(".slot")) {
    const known = files.get(slots[card.dataset.slot]);
    const part = (name) => card.querySelector(name);
    card.classList.toggle("full", Boolean(known));
    part(".none").hidden = Boolean(known);
    part(".name").textContent = known?.name ?? "";
    part(".words").replaceChildren(...withCode(known ? [known.words, size(known.n_bytes ?? 0)].filter(Boolean).join("; ") : ""));
    const wrong = known?.problem || misplaced(card.dataset.slot, known) || otherSize(card.dataset.slot, known);
    part(".wrong").replaceChildren(...withCode(wrong ? `⚠ ${wrong}` : ""));
    part(".wrong").hidden = !wrong;
    part(".remove").hidden = !known;
    part(".choose").textContent = known ? "Replace …" : "Choose …";
    part("label").hidden = !known;
    if (known) fillUses(part("select"), known, card.dataset.slot);
  }
  const beside = [...files.values()].filter((known) => !Object.values(slots).includes(known.id));
  at("others").hidden = beside.length === 0;
  document.querySelector(".others").replaceChildren(...beside.map(besideItem));
  const ready = slots.a !== null && slots.b !== null && busy === 0 && comparing === null;
  at("compare").disabled = !ready || areOfSeveralSizes();
  at("exchange").disabled = !ready;
  at("cancel").hidden = comparing === null;
  at("running").hidden = comparing === null;
  at("compare").textContent = comparing === null ? "Compare" : "Comparing …";
}

function misplaced(slot, known) {
  if (!known || !known.likely || known.problem) return "";
  if (slot !== "image" && known.likely === "image") return "This looks like a picture, not like masks.";
  if (slot === "image" && known.likely === "masks") return "This looks like masks, not like a picture.";
  if (known.likely === "beside") return "This is not masks and not an image.";
  return "";
}

// Masks and the image of them have one size; what differs is said before anything is compared.
function otherSize(slot, known) {
  if (!known?.shape?.length) return "";
  const others = SLOTS.filter((other) => other !== slot && files.get(slots[other])?.shape?.length);
  const differing = others.filter((other) => !isOneSize(slot, other));
  // Of three the odd one is told.
  if (differing.length === 0 || differing.length < others.length) return "";
  const sizes = differing.map((other) => `${TITLES[other]} has ${files.get(slots[other]).shape.join(" × ")}`);
  return `Not of one size: this has ${known.shape.join(" × ")} pixels, ${sizes.join(", ")}.`;
}

function areOfSeveralSizes() {
  return SLOTS.some((slot) => otherSize(slot, files.get(slots[slot])));
}

// Planes of the image may be channels of a stack, so that of it rows and columns alone count.
function isOneSize(...two) {
  const [one, other] = two.map((slot) => files.get(slots[slot]).shape.slice(two.includes("image") ? -2 : 0));
  return String(one) === String(other);
}

function fillUses(select, known, now) {
  select.replaceChildren(...[...SLOTS, ""].map((slot) => new Option(TITLES[slot], slot, false, slot === now)));
  select.onchange = () => use(known.id, select.value);
}

function besideItem(known) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.className = "name";
  const words = known.problem || known.words;
  name.append(Object.assign(document.createElement("b"), { textContent: known.name }), ...withCode(words ? ` ${words}` : ""));
  const label = Object.assign(document.createElement("label"), { textContent: "use as " });
  const select = document.createElement("select");
  select.setAttribute("aria-label", `Use ${known.name} as`);
  fillUses(select, known, "");
  label.append(select);
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Remove" });
  button.setAttribute("aria-label", `Remove ${known.name}`);
  button.onclick = () => remove(known.id);
  item.append(name, label, button);
  return item;
}

function size(n) {
  const [unit, word] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => n >= least) ?? [1, "bytes"];
  const number = n / unit;
  return `${number.toFixed(number < 10 && unit > 1 ? 1 : 0)}\u00a0${word}`;
}

function say(text) {
  at("said").textContent = text || hint();
}

function hint() {
  if (comparing !== null) return at("said").textContent;
  if (!at("problem").hidden) return "";
  const doubtful = SLOTS.map((slot) => files.get(slots[slot])).find((file) => file?.problem);
  if (doubtful) return `${doubtful.name} could not be read as what it is used for; its place says why.`;
  const doubted = SLOTS.find((slot) => misplaced(slot, files.get(slots[slot])));
  if (doubted) return `${files.get(slots[doubted]).name} is probably not what it is used for: replace it, or choose another use.`;
  if (areOfSeveralSizes()) return ofSeveralSizes();
  if (slots.a !== null && slots.b !== null) {
    const others = at("others").hidden ? "" : " The files under the three places are not compared.";
    return `Ready.${slots.image === null ? " An image is not needed, but shows more." : ""}${others}`;
  }
  if (files.size === 0) return "";
  return missing();
}

// Which results are missing, what to drop, and of files that are no masks what they are.
function missing() {
  const what = slots.a === null && slots.b === null ? "Two results are" : "One result is";
  const unused = [...files.values()].filter(
    ({ id, likely, words }) => !Object.values(slots).includes(id) && (likely === "image" || words.startsWith("not masks")),
  );
  const names = unused.map(({ name, likely }) => `${name} is ${likely === "image" ? "a picture" : "no file of masks"}.`);
  return `${what} still missing: drop masks (NAME_masks.tif, NAME_seg.npy), ROIs or outlines. ${names.join(" ")}`.trim();
}

function ofSeveralSizes() {
  const odd = SLOTS.filter((slot) => otherSize(slot, files.get(slots[slot])));
  if (String(odd) === "image") {
    return "The image does not have the size of the two results: replace it by the image that was segmented, or remove it; the cells are then shown on black.";
  }
  return "Results of one image have its size: replace what is marked ⚠. For masks of a part of the image or of an enlarged one, run cellrepro explain A B in a terminal: it says what the two sizes allow.";
}

// What stands between back-ticks is code.
function withCode(text) {
  return text.split("`").map((part, n) => (n % 2 ? Object.assign(document.createElement("code"), { textContent: part }) : part));
}

function showProblem(text) {
  at("problem").replaceChildren(...withCode(text));
  at("problem").hidden = !text;
  if (text) at("problem").scrollIntoView({ block: "nearest" });
}

// -- comparing --------------------------------------------------------------------------------

async function compare() {
  const mine = { ...slots }; // this comparison: a later one is not mixed up with it
  const names = Object.fromEntries(SLOTS.map((slot) => [slot, files.get(slots[slot])?.name]));
  comparing = mine;
  showProblem("");
  draw();
  const since = performance.now();
  const timer = setInterval(async () => {
    let state = "comparing";
    try {
      ({ state } = await ask(`state?${new URLSearchParams({ desk })}`));
    } catch {
      return;
    }
    const seconds = Math.round((performance.now() - since) / 1000);
    const waits = "Another comparison runs, in another window; this one is next …";
    if (comparing === mine && !mine.isEnding) say(state === "waiting" ? waits : `Comparing and drawing … ${seconds} s`);
  }, 1000);
  say("Comparing and drawing …");
  try {
    const { is_left: isLeft } = await ask("compare", { desk, ...mine });
    if (!isLeft && comparing === mine) show(names);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (comparing === mine && problem.message) showProblem(problem.message);
  } finally {
    clearInterval(timer);
    if (comparing === mine) comparing = null;
    say("");
    draw();
  }
}

// What waits for the comparison is then told that nobody does.
async function cancel() {
  comparing.isEnding = true;
  say("Ending the comparison …");
  await ask("leave", { desk });
}

function show(names) {
  const query = new URLSearchParams({ desk, shown: Date.now() });
  const stem = (names.image ?? names.a).replace(/\.[^.]*$/, "");
  // A new frame: one that only changes its address would be a step of its own in the history.
  const frame = at("shown").cloneNode();
  frame.src = `result?${query}`;
  at("shown").replaceWith(frame);
  at("save").href = `result?${new URLSearchParams({ desk, saved_as: `${stem}_compared.html` })}`;
  at("sides").textContent = `A ${names.a}, B ${names.b}`;
  history.pushState("result", "");
  turn(true);
}

function turn(toResult) {
  document.body.classList.toggle("shows", toResult);
  at("result").hidden = !toResult;
  document.title = toResult ? `${at("sides").textContent}: compared` : "Compare two results";
  if (toResult) at("shown").focus();
  else at("form").focus({ preventScroll: true });
}

function back() {
  if (history.state === "result") history.back(); // which fires popstate
  else turn(false);
}

async function again() {
  back();
  const removed = [...files.keys()];
  files = new Map();
  slots = { image: null, a: null, b: null };
  showProblem("");
  say("");
  draw();
  for (const id of removed) await ask("remove", { desk, file: id });
}

async function stop() {
  hasEnded = true;
  await ask("stop", {});
  turn(false);
  const words = document.createElement("p");
  words.className = "lead";
  words.textContent = "Stopped. The copies of your files are removed; you can close this page.";
  at("form").replaceChildren(words);
}

// -- events -----------------------------------------------------------------------------------

// A button that was pressed asks the server; what it refuses is said on the page.
function doing(act) {
  return async (...given) => {
    try {
      await act(...given);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.message) showProblem(problem.message);
    }
  };
}

// What was dropped, a folder as its name and files. The entries are there during the event alone.
function filesAndFolders({ items, files: given }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.());
  return Promise.all([...given].map((file, n) => (entries[n]?.isDirectory ? folderOf(entries[n]) : file)));
}

async function folderOf(entry) {
  const reader = entry.createReader();
  const inside = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)); // 100 at a time
    if (some.length === 0) break;
    inside.push(...some.filter((one) => one.isFile));
  }
  const files = await Promise.all(inside.map((one) => new Promise((resolve, reject) => one.file(resolve, reject))));
  return { name: entry.name, files };
}

function picked(input, slot) {
  input.addEventListener("change", doing(async () => {
    const given = [...input.files];
    await add(given, slot);
    input.value = ""; // the same file can be chosen again
  }));
}

picked(at("pick"), null);
at("folder").addEventListener("change", doing(async () => {
  const inside = [...at("folder").files].filter((file) => file.webkitRelativePath.split("/").length === 2);
  const name = at("folder").files[0]?.webkitRelativePath.split("/")[0];
  if (name) await add([{ name, files: inside }]);
  at("folder").value = "";
}));
for (const card of document.querySelectorAll(".slot")) {
  picked(card.querySelector("input"), card.dataset.slot);
  card.querySelector(".remove").onclick = doing(() => remove(slots[card.dataset.slot]));
}
at("compare").onclick = doing(compare);
at("exchange").onclick = exchange;
at("cancel").onclick = doing(cancel);
at("change").onclick = back;
at("again").onclick = doing(again);
for (const button of document.querySelectorAll(".stop")) button.onclick = doing(stop);
addEventListener("popstate", () => turn(history.state === "result" && at("shown").hasAttribute("src")));

let inside = 0; // elements that the dragged files have entered and not left
const marked = (slot) => {
  for (const card of document.querySelectorAll(".slot")) card.classList.toggle("over-slot", card === slot);
};
addEventListener("dragenter", (event) => {
  event.preventDefault();
  inside += 1;
  document.body.classList.add("over");
});
addEventListener("dragleave", () => {
  inside -= 1;
  if (inside <= 0) document.body.classList.remove("over");
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  marked(event.target.closest?.(".slot"));
});
addEventListener("drop", doing(async (event) => {
  event.preventDefault();
  inside = 0;
  document.body.classList.remove("over");
  marked(null);
  const slot = event.target.closest?.(".slot")?.dataset.slot ?? null;
  const given = await filesAndFolders(event.dataTransfer);
  await add(given, given.length === 1 ? slot : null);
}));
addEventListener("pagehide", () => {
  if (desk && !hasEnded) navigator.sendBeacon(`close?${new URLSearchParams({ desk })}`);
});
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // its files are gone
});

doing(start)();
draw();
