// One row of a time line: an attempt as the page sees it, the server's work on it below, and what became of both.

import { make } from "./make.js";

const NO_ANSWER = {
  network: "No answer: connection reset",
  timeout: "No answer: gave up waiting",
  killed: "No answer: server killed",
  lost: "No answer: lost on the way",
  refused: "No answer: no server there",
};
const NAMES = { 200: "OK", 201: "Created", 401: "Unauthorized", 409: "In progress", 422: "Key already used" };

export class Row {
  constructor(clicked, number, start) {
    this.clicked = clicked;
    this.number = number;
    this.start = start;
    this.end = null;
    this.wait = null;
    this.fate = null;
    this.charge = null;
    this.serverStart = null;
    this.serverEnd = null;
    this.element = make("li", "attempt", "");
    this.element.dataset.look = "running";
    this.track = make("div", "track", "");
    this.track.setAttribute("aria-hidden", "true");
    this.bar = this.#piece("bar");
    this.result = make("span", "result", "Waiting for an answer");
    this.note = make("span", "note", "");
    const said = make("div", "said", "");
    said.append(this.result, this.note);
    this.label = make("div", "label", number === 1 ? `click ${clicked}` : `retry ${number - 1}`);
    this.element.append(this.label, this.track, said);
  }

  /** Nobody was there to take the attempt: the next one goes into the same row. */
  extend(number, start) {
    this.#place(this.bar, this.start, this.end);
    this.bar.classList.add("past");
    this.bar = this.#piece("bar");
    this.start = start;
    this.end = this.wait = this.fate = this.serverEnd = null;
    this.element.dataset.look = "running";
    this.result.textContent = "Waiting for an answer";
    this.note.textContent = "";
    if (this.number > 1) this.label.textContent = `retry ${this.number - 1}–${number - 1}`;
  }

  /** The right-most moment drawn so far, in seconds. */
  get last() {
    return Math.max(this.end ?? 0, this.serverEnd ?? 0, this.edge ?? 0);
  }

  answer(now, status, replayed) {
    const look = replayed ? "replayed" : status < 300 ? "ok" : "refused";
    this.#stop(now, look, `${status} ${NAMES[status] ?? ""}${replayed ? ", replayed" : ""}`);
  }

  /** No answer. What the page saw is a reset or a time-out; what the servers' side knows of it says more. */
  fail(now, failure) {
    this.#stop(now, "lost", NO_ANSWER[this.fate ?? failure]);
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

  #stop(now, look, result) {
    this.end = now;
    this.element.dataset.look = look;
    this.result.textContent = result;
  }

  #piece(name) {
    const piece = make("i", name, "");
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
