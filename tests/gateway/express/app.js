// A shop, as somebody would write it who has never heard of twicesafe. Its orders are in its memory; `GET /orders` tells
// them. `POST /gates/NAME` lets go of what waits at a gate; `GET /gates/NAME` is answered when something does.
"use strict";

const express = require("express");

const app = express();
const orders = [];
const gates = new Map();
const known = new Map();

const gate = (name) => {
  if (!gates.has(name)) {
    const one = {};
    one.opened = new Promise((open) => (one.open = open));
    one.reached = new Promise((come) => (one.come = come));
    gates.set(name, one);
  }
  return gates.get(name);
};
const order = (req) => {
  orders.push({ what: req.query.what, user: req.get("x-user-id"), key: req.get("idempotency-key") });
  return orders.filter((one) => one.what === req.query.what).length;
};

app.get("/orders", (req, res) => res.json(orders.filter((one) => one.what === req.query.what)));
app.get("/gates/:name", async (req, res) => {
  await gate(req.params.name).reached;
  res.sendStatus(204);
});
app.post("/gates/:name", (req, res) => {
  gate(req.params.name).open();
  res.sendStatus(204);
});

app.post("/orders", express.json(), (req, res) => {
  res.cookie("basket", "1").cookie("seen", "2").location("/orders/1").status(201).json({ n: order(req), of: req.body });
});

app.post("/bytes", express.raw({ type: () => true, limit: "20mb" }), (req, res) => {
  order(req);
  res.type("application/octet-stream").send(req.body);
});

app.post("/slow", async (req, res) => {
  const n = order(req);
  gate(req.query.what).come();
  await gate(req.query.what).opened;
  res.status(201).json({ n });
});

app.post("/known", (req, res) => {
  // Does a key's work once by itself, and loses its first answer.
  const key = req.get("idempotency-key");
  if (known.has(key)) {
    res.status(201).json({ n: known.get(key) });
    return;
  }
  known.set(key, order(req));
  res.destroy();
});

app.post("/busy", express.json(), (req, res) => {
  // Has no time for an order when it comes for the first time, and does nothing then.
  if (!known.has(req.query.what)) {
    known.set(req.query.what, 0);
    res.set("retry-after", "0").sendStatus(429);
    return;
  }
  res.status(201).json({ n: order(req) });
});

app.post("/broken", (req, res) => {
  order(req);
  res.write("half", () => res.destroy());
});

app.all("/events", async (req, res) => {
  order(req);
  res.set("content-type", "text/event-stream").flushHeaders();
  res.write("data: one\n\n");
  req.on("close", () => gate(`${req.query.what}-closed`).open());
  await gate(req.query.what).opened;
  res.end("data: two\n\n");
});
app.get("/closed", async (req, res) => {
  await gate(`${req.query.what}-closed`).opened;
  res.sendStatus(204);
});

const listening = app.listen(Number(process.env.PORT || 0), "127.0.0.1", () => console.log(listening.address().port));
