// Values that somebody listens to, as a widget's model has them in a notebook.
// page_part.py puts this behind the module of the explorer, and before the model of the page.

class Values {
  constructor(state) {
    this.values = { ...state, planes: {}, is_page: true };
    this.listeners = {};
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    this.values[name] = value;
  }

  on(event, act) {
    (this.listeners[event] ??= new Set()).add(act);
  }

  off(event, act) {
    this.listeners[event]?.delete(act);
  }

  fire(event, ...values) {
    for (const act of this.listeners[event] ?? []) act(...values);
  }
}
