// One lane: its attempts on a time line as they happen, and its ledger.

import { money } from "./money.js";

const SHORTEST_SPAN = 4; // seconds that the time line shows at least
const MOST_TICKS = 10;
const NO_ANSWER = {
  dropped: "No answer: connection reset",
  timeout: "No answer: gave up waiting",
  killed: "No answer: server killed",
  lost: "No answer: lost on the way",
  refused: "No answer: no server there",
};
const NAMES = { 200: "OK", 201: "Created", 401: "Unauthorized", 409: "In progress", 422: "Key already used" };

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
    const row = new Row(number === 1 ? `click ${clicked}` : `retry ${number - 1}`, this.now);
    row.element.dataset.click = clicked;
    this.rows.set(request, row);
    const above = [...this.list.querySelectorAll(`[data-click="${clicked}"]`)].at(-1);
    if (above) above.after(row.element);
    else this.list.append(row.element);
    this.section.classList.add("used");
  }

  answered(request, { status, headers }) {
    const replayed = headers.get("idempotent-replayed") === "true";
    const text = `${status} ${NAMES[status] ?? ""}${replayed ? ", replayed" : ""}`;
    const look = replayed ? "replayed" : status < 300 ? "ok" : "refused";
    this.rows.get(request).stop(this.now, look, text);
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
    this.ledger.replaceChildren(...mine.map((charge, index) => this.#entry(charge, index)));
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
      const tick = text("span", "tick", `${second} s`);
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
      text("span", "number", `#${charge.id}`),
      text("span", "time", clock.format(new Date(charge.at))),
      text("span", "tag", index > 0 ? "again" : ""),
      text("span", "amount", money(charge.amount)),
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

class Row {
  constructor(label, start) {
    this.start = start;
    this.end = null;
    this.wait = null;
    this.fate = null;
    this.charge = null;
    this.serverStart = null;
    this.serverEnd = null;
    this.element = text("li", "attempt", "");
    this.element.dataset.look = "running";
    this.track = text("div", "track", "");
    this.track.setAttribute("aria-hidden", "true");
    this.bar = this.#piece("bar");
    this.result = text("span", "result", "Waiting for an answer");
    this.note = text("span", "note", "");
    const said = text("div", "said", "");
    said.append(this.result, this.note);
    this.element.append(text("div", "label", label), this.track, said);
  }

  /** The right-most moment drawn so far, in seconds. */
  get last() {
    return Math.max(this.end ?? 0, this.serverEnd ?? 0, this.edge ?? 0);
  }

  stop(now, look, result) {
    this.end = now;
    this.element.dataset.look = look;
    this.result.textContent = result;
  }

  /** No answer. What the page saw is a reset or a time-out; what the servers' side knows of it says more. */
  fail(now, failure) {
    this.stop(now, "lost", NO_ANSWER[this.fate ?? failure]);
  }

  pause(now, seconds) {
    this.wait = { element: this.#piece("wait"), to: now + seconds };
    this.#place(this.wait.element, now, now + seconds);
    if (!this.charge && seconds >= 0.1) this.note.textContent = `asks again in ${seconds.toFixed(1)} s`;
  }

  server(kind, now) {
    if (kind === "began" && this.serverStart === null) {
      this.serverStart = now;
      this.work = this.#piece("work");
    } else if (kind === "ended") {
      this.serverEnd ??= now;
    } else if (kind in NO_ANSWER) {
      this.serverEnd ??= now;
      this.fate = kind;
      if (kind !== "refused") this.#point(kind, now);
      if (this.element.dataset.look === "lost") this.result.textContent = NO_ANSWER[kind];
    }
  }

  charged(charge, again, now) {
    if (this.charge) return;
    this.charge = this.#point("coin", now);
    this.charge.classList.toggle("again", again);
    const late = this.wait !== null && now > this.wait.to;
    this.note.textContent = `wrote charge #${charge.id}${late ? " all the same" : ""}`;
  }

  draw(now) {
    const running = this.end === null;
    const working = this.serverStart !== null && this.serverEnd === null;
    this.edge = running || working ? now : 0;
    this.#place(this.bar, this.start, this.end ?? now);
    if (this.serverStart !== null) this.#place(this.work, this.serverStart, this.serverEnd ?? now);
    return running || working || (this.wait !== null && now < this.wait.to);
  }

  #piece(name) {
    const piece = text("i", name, "");
    this.track.append(piece);
    return piece;
  }

  #point(name, at) {
    const point = this.#piece(name);
    point.style.setProperty("--from", at);
    return point;
  }

  #place(piece, from, to) {
    piece.style.setProperty("--from", from);
    piece.style.setProperty("--to", to);
  }
}

function text(tag, name, content) {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = content;
  return element;
}
