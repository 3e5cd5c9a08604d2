// Planes: the arrays that the kernel sends, see planes.py. They arrive packed (narrow and deflated),
// and are unpacked when they are used.

const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array };
const UNPACKED_PLANES = 30; // in memory at a time; others are unpacked again, not sent again
const PATIENCE_MS = 15_000; // with a kernel that does not answer
const NO_ANSWER =
  "The kernel has not answered for 15 seconds: it is busy with another cell, or it has ended. What " +
  "you chose is shown when it answers; after a restart, run this cell again.";

// The planes of one model, shared by all its views on the page. Those that came with the model
// stay, as a saved page has no kernel to ask; of those that were asked for, the last ones used stay,
// as many as fit into `held_bytes`.
class Planes {
  constructor(model) {
    this.model = model;
    this.lastRequest = model.get("answered"); // number of the last choice sent to the kernel
    this.sentAtOnce = new Map(); // packed planes by name
    this.received = new Map(); // the same, the last one used comes last
    this.unpacked = new Map(); // promises of values by name, the last one used comes last
    this.waiting = new Map(); // by name, what waits for a plane that was asked for
    for (const [name, plane] of Object.entries(model.get("planes"))) {
      this.sentAtOnce.set(name, packed(plane, plane.data));
    }
    model.on("msg:custom", (content, buffers) => {
      if (!content || !content.plane) return;
      if (content.error) this.waiting.get(content.plane)?.reject(new Error(content.error));
      else this.receive(content.plane, packed(content, buffers[0]));
    });
  }

  receive(name, plane) {
    useLast(this.received, name, plane);
    let excess = -this.model.get("held_bytes");
    for (const { bytes } of this.received.values()) excess += bytes.length;
    for (const [oldName, { bytes }] of this.received) {
      if (excess <= 0) break;
      this.received.delete(oldName);
      excess -= bytes.length;
    }
    this.waiting.get(name)?.resolve(plane);
  }

  // The plane with its values.
  async get(name) {
    const plane = await this.packedPlane(name);
    const values = this.unpacked.get(name) ?? unpacked(plane);
    useLast(this.unpacked, name, values);
    values.catch(() => this.unpacked.delete(name)); // what failed is tried anew
    const oldNames = [...this.unpacked.keys()].slice(0, -UNPACKED_PLANES);
    for (const oldName of oldNames) this.unpacked.delete(oldName);
    return { ...plane, values: await values };
  }

  // The plane as it was sent, asked for from the kernel if it never came or was dropped.
  async packedPlane(name) {
    const sent = this.sentAtOnce.get(name);
    if (sent !== undefined) return sent;
    const received = this.received.get(name);
    if (received !== undefined) {
      useLast(this.received, name, received);
      return received;
    }
    if (!this.waiting.has(name)) this.ask(name);
    const waiting = this.waiting.get(name);
    try {
      return await waiting.promise;
    } finally {
      clearTimeout(waiting.patience);
      if (this.waiting.get(name) === waiting) this.waiting.delete(name);
    }
  }

  // Ask the kernel; what is asked for at one time travels as one message.
  ask(name) {
    const waiting = {};
    waiting.promise = new Promise((resolve, reject) => Object.assign(waiting, { resolve, reject }));
    this.waiting.set(name, waiting);
    waiting.patience = setTimeout(() => waiting.reject(new Error(NO_ANSWER)), PATIENCE_MS);
    if (this.asked === undefined) {
      this.asked = [];
      queueMicrotask(() => {
        this.model.send({ want: this.asked });
        this.asked = undefined;
      });
    }
    this.asked.push(name);
  }
}

// Put a value at the end of a map, where those stand that were used last.
function useLast(map, name, value) {
  map.delete(name);
  map.set(name, value);
}

// A packed plane with a view of its bytes.
function packed({ data: _, ...facts }, data) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { ...facts, bytes };
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// The values of a packed plane: a typed array, or what a JSON plane holds.
async function unpacked({ bytes, dtype }) {
  const content = await inflated(bytes);
  if (dtype === "json") return JSON.parse(new TextDecoder().decode(content));
  return new ARRAYS[dtype](content);
}

// The names of what a scene shows, in another plane of its stack.
function ofPlane(names, z) {
  const named = ([key, name]) => [key, key === "story" ? name : name.replace(/\d+$/, z)];
  return Object.fromEntries(Object.entries(names).map(named));
}
