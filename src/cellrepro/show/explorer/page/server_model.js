// The explorer on a page whose server is `cellrepro explore IMAGE --model M`, see live_page.py.

const AGAIN_MS = 1000; // before a server that did not answer is asked again
const GONE = "The program that segments does not answer: it has ended, or this computer was asleep.";

// The model of a widget, as the explorer uses it.
class ServerModel extends Values {
  constructor(state) {
    super(state);
    this.changed = {};
    this.version = 0;
  }

  set(name, value) {
    super.set(name, value);
    this.changed[name] = value;
  }

  take(values) {
    for (const [name, value] of Object.entries(values)) {
      this.values[name] = value;
      this.fire(`change:${name}`);
    }
  }

  save_changes() {
    const { choice } = this.changed;
    this.changed = {};
    if (choice) this.post("/choice", choice).then((values) => this.take(values), saysGone(this));
  }

  send({ want, live }) {
    for (const name of want ?? []) this.sendPlane(name);
    if (live) this.post("/live", live).catch(saysGone(this));
  }

  async sendPlane(name) {
    try {
      const response = await asked(`/plane?name=${encodeURIComponent(name)}`);
      const bytes = new Uint8Array(await response.arrayBuffer());
      const end = bytes.indexOf(10); // of the line with what is known of it
      const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
      const data = bytes.slice(end + 1);
      this.fire("msg:custom", { plane: name, ...facts }, [data]);
    } catch (error) {
      this.fire("msg:custom", { plane: name, error: String(error.message ?? error) }, []);
    }
  }

  async post(path, body) {
    const headers = { "Content-Type": "application/json" };
    const response = await asked(path, { method: "POST", headers, body: JSON.stringify(body) });
    return response.json();
  }

  // Follow what the server shows, for as long as it answers.
  async follow() {
    for (;;) {
      try {
        const response = await asked(`/changes?after=${this.version}`);
        const { version, values } = await response.json();
        this.version = version;
        this.take(values);
      } catch {
        saysGone(this)();
        await new Promise((then) => setTimeout(then, AGAIN_MS));
      }
    }
  }
}

function saysGone(model) {
  return (error) => {
    const line = error?.isSaid ? error.message : GONE;
    model.take({ live: { ...model.get("live"), state: "problem", line } });
  };
}

// What the server answers; what it refuses is an error with its sentence.
async function asked(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response;
  const { problem } = await response.json().catch(() => ({ problem: response.statusText }));
  throw Object.assign(new Error(problem), { isSaid: true });
}

const model = new ServerModel(JSON.parse(document.getElementById("explorer-data").textContent));
const widget = makeWidget();
widget.initialize({ model });
widget.render({ model, el: document.getElementById("explorer") });
model.follow();
document.getElementById("stop").addEventListener("click", async () => {
  await fetch("/stop", { method: "POST" }).catch(() => {});
  const { commands } = model.get("live");
  const ended = "Ended. To segment with the last settings, in the folder in which you started:";
  document.body.replaceChildren(
    make("p", "", {}, ended),
    ...commands.flatMap((command) => [
      make("pre", "", { style: "white-space: pre-wrap" }, ...wordsOf(command)),
      copyButton("Copy the command", () => command),
    ]),
  );
});
