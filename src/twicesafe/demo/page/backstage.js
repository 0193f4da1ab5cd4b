// What the page learns from behind the scenes: the ledger, and what the server processes are doing.

export class Backstage {
  /**
   * `show(state)` gets the whole picture whenever it changes, `mark(moment)` each moment on the servers' side, and
   * `offline()` is called when there is nothing to be learned any more. The browser connects again by itself.
   */
  constructor({ show, mark, offline }) {
    this.show = show;
    this.waiting = [];
    const events = new EventSource("/demo/events");
    events.addEventListener("state", (event) => this.#changed(JSON.parse(event.data)));
    events.addEventListener("mark", (event) => mark(JSON.parse(event.data)));
    events.addEventListener("error", offline);
    addEventListener("pagehide", () => events.close());
  }

  /** Let each of `faults` strike once in each lane, when this key comes by. */
  async arm(key, faults) {
    await fetch("/demo/faults", { method: "POST", body: JSON.stringify({ key, faults }) });
  }

  /** The state, once no server works for this page any more: a charge may land long after its answer was given up. */
  async quiet() {
    for (;;) {
      const change = new Promise((wake) => this.waiting.push(wake));
      const state = await (await fetch("/demo/state", { cache: "no-store" })).json();
      if (Object.values(state).every((lane) => lane.working === 0 && lane.server !== null)) {
        this.#changed(state);
        return state;
      }
      await change;
    }
  }

  /** The endpoints as they are written, by lane. */
  async code() {
    return (await fetch("/demo/code")).json();
  }

  #changed(state) {
    this.show(state);
    for (const wake of this.waiting.splice(0)) wake();
  }
}
