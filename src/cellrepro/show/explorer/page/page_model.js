// The explorer on a page without a kernel: what the kernel would send stands in the page itself.

// The model of a widget, as the explorer uses it.
class PageModel extends Values {
  constructor({ state, scenes, planes }) {
    super(state);
    this.scenes = scenes; // by the numbers of image, A and B
    this.stored = planes; // packed planes by name, their bytes as base64
    this.names = {}; // of sides that the page calls otherwise, by their numbers
  }

  // As from a kernel, the answer comes after the call.
  save_changes() {
    queueMicrotask(() => this.answer());
  }

  // Answer the choice of two sides or of a plane.
  answer() {
    const { choice, answered } = this.values;
    if (choice.asked === undefined || choice.asked === answered) return;
    const { asked } = choice;
    const scene = this.sceneOf(choice);
    const z = Math.min(choice.z, scene.n_planes - 1);
    this.values.scene = { ...scene, z, planes: ofPlane(scene.planes, z) };
    this.fire("change:scene");
    this.values.answered = asked;
    this.fire("change:answered");
    const detail = { a: scene.a, b: scene.b };
    place.dispatchEvent(new CustomEvent("chosen", { detail, bubbles: true }));
  }

  // The scene of a choice; two sides of which one has no masks of that image are others there.
  sceneOf({ view, a, b }) {
    const ofImage = Object.values(this.scenes).filter((each) => each.view === view);
    const scene =
      this.scenes[`${view} ${a} ${b}`] ??
      ofImage.find((each) => each.a === a) ??
      ofImage.find((each) => each.b === b) ??
      ofImage[0];
    const names = { ...scene.names };
    for (const side of ["a", "b"]) names[side] = this.names[scene[side]] ?? names[side];
    return { ...scene, names };
  }

  // Show two sides of an image, as something else on the page asks for: under the names that it
  // gives by side, and with no choice but `only` its sides and images.
  show({ names, only, ...choice }) {
    this.names = names;
    this.values.only = only;
    this.values.scene = this.sceneOf(choice);
    this.fire("change:scene");
  }

  send({ want }) {
    for (const name of want) {
      const { data, ...facts } = this.stored[name];
      this.fire("msg:custom", { plane: name, ...facts }, [bytesOf(data)]);
    }
  }
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
}

const model = new PageModel(JSON.parse(document.getElementById("explorer-data").textContent));
// What else stands on the page chooses a cell by an event with its numbers in A and B.
addEventListener("cellrepro:cell", ({ detail }) => {
  model.set("selected", detail);
  model.fire("change:selected");
});
const widget = makeWidget();
const place = document.getElementById("explorer");
widget.initialize({ model });
widget.render({ model, el: place });
place.addEventListener("choose", ({ detail }) => model.show(detail));
