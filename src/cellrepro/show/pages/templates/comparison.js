// Copies the command above a button; where the browser forbids it, the command is selected.
for (const button of document.querySelectorAll(".why .copy")) {
  const command = button.previousElementSibling;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      button.textContent = "Selected: copy it with Ctrl+C";
    }
  });
}
// A small picture of a cell, or its row in the table, leads to that cell in the explorer.
for (const place of document.querySelectorAll("[data-cells]")) {
  const cells = JSON.parse(place.dataset.cells);
  [...(place.querySelector("tbody") ?? place).children].forEach((element, i) => {
    if (!cells[i]) return;
    const shown = element.querySelector("img, th");
    const link = document.createElement("a");
    link.href = "#closer";
    link.title = "Look closer";
    if (shown.tagName === "TH") {
      link.append(...shown.childNodes);
      shown.append(link);
    } else {
      shown.replaceWith(link);
      link.append(shown);
    }
    element.dataset.leads = "";
    element.addEventListener("click", (event) => {
      if (getSelection().toString()) return; // who copies a number stays
      if (event.target.closest("a") === null) link.click();
      else dispatchEvent(new CustomEvent("cellrepro:cell", { detail: cells[i] }));
    });
  });
}
