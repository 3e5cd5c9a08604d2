// Opened as a file the search does nothing, as browsers load its index from a server only: say so.
if (location.protocol === "file:") {
  const note = document.createElement("p");
  note.className = "of-file";
  note.setAttribute("role", "status");
  const command = document.createElement("code");
  command.textContent = "SERVE"; // put in by scripts/website.py
  note.append(
    "This page was opened as a file, where a browser cannot search. Run ",
    command,
    " in the folder above site/, and open http://127.0.0.1:8000",
  );
  const tell = () => {
    document.querySelector("article")?.prepend(note);
    note.scrollIntoView({ block: "center" });
  };
  // Letters of a word that is typed into no search would be taken for keys of the page, as n for the
  // next one.
  let isTyping = false;
  document.addEventListener("click", (event) => {
    isTyping = false;
    if (event.target.closest(".md-search, [for=__search]")) tell();
  });
  const onKey = (event) => {
    const isHeld = event.ctrlKey || event.metaKey || event.altKey;
    if (event.key === "Escape") isTyping = false;
    else if (isTyping && !isHeld) event.stopImmediatePropagation();
    else if (isHeld ? event.key.toLowerCase() === "k" : ["f", "s", "/"].includes(event.key)) {
      tell();
      isTyping = true;
    }
  };
  window.addEventListener("keydown", onKey, { capture: true });
}

// A photograph of a screen has two pixels for each of its own: it is framed, with letters no larger
// than those of the page.
for (const image of document.querySelectorAll("article img")) {
  const frame = () => {
    if (image.naturalWidth <= 1200) return;
    image.classList.add("screen");
    image.style.maxWidth = `min(100%, ${0.45 * image.naturalWidth}px)`;
  };
  if (image.complete) frame();
  else image.addEventListener("load", frame);
}
