// One lane: its attempts on a time line as they happen, and its ledger.

import { make } from "./make.js";
import { money } from "./money.js";
import { Row } from "./row.js";

const SHORTEST_SPAN = 4; // seconds that the time line shows at least
const MOST_TICKS = 10;
export class Lane {
  constructor(name) {
    this.name = name;
    this.section = document.getElementById(name);
    this.list = this.section.querySelector(".attempts");
    this.ticks = this.section.querySelector(".ticks");
    this.ledger = this.section.querySelector(".ledger ol");
    this.pid = this.section.querySelector(".server");
    this.count = this.section.querySelector(".count");
    this.total = this.section.querySelector(".total");
    this.session = this.section.querySelector(".session");
    this.clear();
  }

  /** An empty time line that starts now. */
  clear() {
    this.rows = new Map();
    this.began = performance.now();
    this.list.replaceChildren();
    this.section.classList.remove("used");
    this.scale(SHORTEST_SPAN);
  }

  get now() {
    return (performance.now() - this.began) / 1000;
  }

  /** A new attempt: `request` names it on both sides of the wire. It stands below the earlier ones of its click. */
  sending(request, { clicked, number }) {
    const above = [...this.rows.values()].filter((row) => row.clicked === clicked).at(-1);
    if (above?.fate === "refused") {
      above.extend(number, this.now);
      this.rows.set(request, above);
      return;
    }
    const row = new Row(clicked, number, this.now);
    this.rows.set(request, row);
    if (above) above.element.after(row.element);
    else this.list.append(row.element);
    this.section.classList.add("used");
  }

  answered(request, { status, headers }) {
    this.rows.get(request).answer(this.now, status, headers.get("idempotent-replayed") === "true");
  }

  failed(request, { failure }) {
    this.rows.get(request).fail(this.now, failure);
  }

  waiting(request, { delay }) {
    this.rows.get(request).pause(this.now, delay / 1000);
  }

  /** A moment on the server's side. */
  mark({ kind, request }) {
    this.rows.get(request)?.server(kind, this.now);
  }

  /** The lane's part of the state; `cart` is the one on the table. */
  show({ server, charges }, cart) {
    this.pid.textContent = server === null ? "server is down" : `server ${server}`;
    this.pid.classList.toggle("down", server === null);
    const mine = charges.filter((charge) => charge.cart === cart.id);
    if (this.cart !== cart.id) this.ledger.replaceChildren();
    const shown = this.ledger.children.length;
    this.ledger.append(...mine.slice(shown).map((charge, index) => this.#entry(charge, shown + index)));
    this.cart = cart.id;
    this.charges = mine;
    for (const charge of mine) this.rows.get(charge.request_id)?.charged(charge, charge !== mine[0], this.now);
    const sum = mine.reduce((total, charge) => total + charge.amount, 0);
    this.count.textContent = mine.length === 1 ? "1 charge" : `${mine.length} charges`;
    this.count.dataset.charges = Math.min(mine.length, 2);
    this.total.textContent = money(sum);
    const carts = new Set(charges.map((charge) => charge.cart)).size;
    this.session.textContent = carts < 2 ? "" : `${charges.length} charges for ${carts} carts so far`;
  }

  /** Nothing is known any more: the demo was stopped, or the connection to it broke. */
  offline() {
    this.pid.textContent = "not connected";
    this.pid.classList.add("down");
  }

  /** Draw what moves, and see how many seconds it spans. Returns whether anything still moves. */
  draw() {
    const now = this.now;
    let moving = false;
    let last = 0;
    for (const row of this.rows.values()) {
      moving = row.draw(now) || moving;
      last = Math.max(last, row.last);
    }
    this.span = Math.max(SHORTEST_SPAN, Math.ceil(last + 0.4));
    return moving;
  }

  /** Show `span` seconds: as many as every lane needs, so that they can be compared. */
  scale(span) {
    if (this.shown === span) return;
    this.shown = span;
    const step = Math.ceil(span / MOST_TICKS);
    this.section.style.setProperty("--span", span);
    this.section.style.setProperty("--step", step);
    const ticks = [];
    for (let second = 0; second < span; second += step) {
      const tick = make("span", "tick", `${second} s`);
      tick.style.setProperty("--from", second);
      ticks.push(tick);
    }
    this.ticks.replaceChildren(...ticks);
  }

  #entry(charge, index) {
    const entry = document.createElement("li");
    entry.dataset.charge = charge.id;
    entry.classList.toggle("again", index > 0);
    entry.append(
      make("span", "number", `#${charge.id}`),
      make("span", "time", clock.format(new Date(charge.at))),
      make("span", "tag", index > 0 ? "again" : ""),
      make("span", "amount", money(charge.amount)),
    );
    return entry;
  }
}

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});
