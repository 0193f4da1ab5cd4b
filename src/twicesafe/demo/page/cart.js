// A cart, and the key that is made with it. Both outlive a reload, until the outcome of paying is known.

import { newKey } from "./twicesafe.js";

const STORED_AS = "twicesafe.cart";

export const PRICES = { espresso: 2400, moka: 3600 };
export const MOST = 9;

export const OPEN = "open"; // nothing was sent
export const SENT = "sent"; // sent, outcome not known yet
export const SETTLED = "settled"; // every endpoint has answered

const UNSENT = { body: null, sentAt: null, standing: OPEN };

export class Cart {
  constructor(facts) {
    Object.assign(this, facts);
  }

  static create(espresso = 2) {
    return new Cart({ id: crypto.randomUUID(), key: newKey(), espresso, moka: 1, ...UNSENT }).keep();
  }

  /** The cart of before the reload, or a new one. */
  static restore() {
    const kept = sessionStorage.getItem(STORED_AS);
    return kept === null ? Cart.create() : new Cart(JSON.parse(kept));
  }

  get amount() {
    return this.espresso * PRICES.espresso + this.moka * PRICES.moka;
  }

  /** The bytes to send. Made once; from then on every attempt sends these. */
  freeze() {
    this.body ??= JSON.stringify({ cart: this.id, espresso: this.espresso, moka: this.moka });
    this.sentAt ??= Date.now();
    return this.be(SENT);
  }

  /** What must never be done: other contents under the same key. */
  editUnderSameKey() {
    this.espresso += this.espresso < MOST ? 1 : -1;
    this.body = null;
    return this.freeze();
  }

  be(standing) {
    this.standing = standing;
    return this.keep();
  }

  keep() {
    sessionStorage.setItem(STORED_AS, JSON.stringify(this));
    return this;
  }
}
