// Opened as a file the search does nothing, as browsers load its index from a server only: say so.
if (location.protocol === "file:") {
  document.documentElement.classList.add("is-file");
  document.addEventListener("DOMContentLoaded", () => {
    const note = document.createElement("p");
    note.className = "of-file";
    note.textContent =
      "This page was opened as a file, where a browser cannot search. To search, run in the folder above site/: ";
    const command = document.createElement("code");
    command.textContent = "python3 -m http.server --bind 127.0.0.1 --directory site 8000";
    note.append(command, " and open http://127.0.0.1:8000");
    document.querySelector("article")?.prepend(note);
  });
}
