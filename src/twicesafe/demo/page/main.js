// The page: one cart, one Pay button, two lanes.

import { Backstage } from "./backstage.js";
import { Cart, MOST, OPEN, PRICES, SENT, SETTLED } from "./cart.js";
import { Lane } from "./lane.js";
import { money } from "./money.js";
import { tell } from "./story.js";
import { Budgets, Intent, send } from "./twicesafe.js";

const POLICY = {
  attempts: 20, // enough for a server that takes its time to come back
  attemptTimeout: 3_000, // milliseconds: less than a slow provider takes
  firstDelay: 300,
  longestDelay: 2_000,
};
const BUDGETS = new Budgets({ interactive: { full: 200, perSuccess: 1, perSecond: 1 } }); // broken on purpose, all day
const FAULTS = ["lose", "slow", "kill"]; // switches that strike outside of the page
const DOUBLE_CLICK = 120; // milliseconds between two clicks of an impatient hand
const LOOK = 900; // milliseconds to see the cart change

const $ = (id) => document.getElementById(id);
const lanes = [new Lane("naive"), new Lane("safe")];
const switches = [...document.querySelectorAll(".switches input")];
const pause = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));

let cart = Cart.restore();
let run = null; // what is going on since the last click on an idle page
let reloaded = cart.standing === SENT;
let state = null; // what is known from behind the scenes

const backstage = new Backstage({
  show: (news) => {
    state = news;
    showState();
  },
  mark: (moment) => {
    lanes.find(({ name }) => name === moment.lane).mark(moment);
    draw();
  },
  offline: () => {
    for (const lane of lanes) lane.offline();
  },
});

// --- paying ----------------------------------------------------------------------------------------------------------

/** One click: the same operation to both endpoints. */
function click() {
  run.clicks += 1;
  const { key, body } = cart;
  const number = run.clicks;
  for (const lane of lanes) run.operations.push(operate(lane, key, body, number));
}

async function operate(lane, key, body, clicked) {
  const headers = { "content-type": "application/json" };
  const intent = Intent.create("POST", `/${lane.name}/charges`, { body, headers, key });
  const { name, sentBefore, facts: { [lane.name]: facts } } = run;
  let request;
  const outcome = await send(intent, {
    policy: POLICY,
    budgets: BUDGETS,
    sentBefore,
    observe: (event) => {
      if (event.type === "sending") {
        request = `${name}.${clicked}.${event.number}`;
        lane.sending(request, { clicked, number: event.number });
      } else {
        lane[event.type](request, event);
      }
      facts.waited ||= event.status === 409;
      draw();
    },
    fetch: (url, init) => fetch(url, { ...init, headers: { ...init.headers, "x-request-id": request } }),
  });
  facts.replayed ||= outcome.replayed;
  facts.refused ||= outcome.response?.status === 422;
  facts.unknown ||= isOpen(outcome);
  return outcome;
}

/** Whether asking again may tell more. The edited cart's 422 will not change: its key names the cart before it. */
const isOpen = ({ kind, response }) => kind === "unknown" && response?.status !== 422;

/** From the first click until every operation has its outcome and both servers are quiet. */
async function play(causes) {
  const wanted = switches.filter((input) => input.checked).map((input) => input.value);
  const facts = () => ({ replayed: false, waited: false, refused: false, unknown: false });
  run = {
    name: crypto.randomUUID().slice(0, 8),
    causes: new Set([...causes, ...wanted]),
    sentBefore: cart.sentAt, // what was sent before may have been done
    clicks: 0,
    early: 0, // clicks made before the faults were armed
    operations: [],
    facts: { naive: facts(), safe: facts() },
  };
  cart.freeze();
  render();
  watch();
  say("Paying…", { busy: true });
  try {
    await perform(wanted);
    let outcomes;
    do {
      outcomes = await settled();
      await backstage.quiet();
    } while (outcomes.length < run.operations.length);
    cart.be(!outcomes.some(isOpen) ? SETTLED : SENT);
    say(tell({ causes: run.causes, naive: summary(lanes[0]), safe: summary(lanes[1]) }));
  } catch {
    say("The demo is not there any more. The key and the bytes are kept: start it again, and ask again.");
  }
  run = null;
  reloaded = false;
  render();
}

/** The scenario that the switches describe. */
async function perform(wanted) {
  await backstage.arm(cart.key, wanted.filter((name) => FAULTS.includes(name)));
  for (const lane of lanes) lane.clear();
  click();
  while (run.early > 0) {
    run.early -= 1;
    click();
  }
  if (wanted.includes("double")) {
    await pause(DOUBLE_CLICK);
    click();
  }
  if (!wanted.includes("edit")) return;
  const outcomes = await settled();
  if (outcomes.some(isOpen)) return;
  cart.editUnderSameKey();
  render();
  say("Now the cart is edited, and paid again under the same key…", { busy: true });
  await pause(LOOK);
  click();
}

function summary({ name, charges }) {
  const surplus = charges.slice(1).reduce((sum, { amount }) => sum + amount, 0);
  return { ...run.facts[name], charges: charges.length, surplus };
}

/** Every outcome, those of clicks made in the meantime included. */
async function settled() {
  let outcomes;
  do outcomes = await Promise.all(run.operations);
  while (outcomes.length < run.operations.length);
  return outcomes;
}

// --- the page --------------------------------------------------------------------------------------------------------

function pressed() {
  if (run !== null) {
    run.causes.add("double");
    if (run.clicks > 0) click();
    else run.early += 1;
  } else if (cart.standing === SETTLED) {
    renew();
  } else {
    play(cart.standing === OPEN ? [] : [reloaded ? "reload" : "ask"]);
  }
}

function renew(espresso) {
  cart = Cart.create(espresso);
  for (const lane of lanes) lane.clear();
  render();
  showState();
  say("A new cart, and a new key with it. Choose what goes wrong, then pay.");
}

function step(by) {
  renew(cart.espresso + by);
}

function showState() {
  if (state === null) return;
  for (const lane of lanes) lane.show(state[lane.name], cart);
}

function render() {
  const { espresso, moka, amount, key, standing } = cart;
  $("quantity").textContent = espresso;
  $("beans").textContent = money(espresso * PRICES.espresso);
  $("pot").textContent = money(moka * PRICES.moka);
  $("amount").textContent = money(amount);
  $("key").textContent = key;
  $("fewer").disabled = run !== null || standing === SENT || espresso <= 1;
  $("more").disabled = run !== null || standing === SENT || espresso >= MOST;
  $("pay").textContent = { [OPEN]: `Pay ${money(amount)}`, [SENT]: "Ask again", [SETTLED]: "New cart" }[standing];
  if (run !== null) $("pay").textContent = "Paying…";
  $("again").hidden = run !== null || standing !== SETTLED;
  document.body.classList.toggle("running", run !== null);
  for (const input of switches) input.disabled = run !== null;
}

/** `sentence`: text, or the pieces of story.js. */
function say(sentence, { busy = false } = {}) {
  const pieces = typeof sentence === "string" ? [[sentence]] : sentence;
  const told = document.createElement("p");
  told.id = "story";
  for (const [words, tone] of pieces) {
    const piece = document.createElement(tone ? "strong" : "span");
    if (tone) piece.className = tone;
    piece.textContent = words;
    told.append(piece);
  }
  $("story").replaceWith(told);
  told.parentElement.classList.toggle("busy", busy);
}

/** On a narrow screen the lanes are below the fold. */
function watch() {
  const { top } = $("story").getBoundingClientRect();
  if (top > innerHeight * 0.75) $("story").scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let drawing = false;

function draw() {
  if (drawing) return;
  drawing = true;
  const next = () => {
    const moving = lanes.map((lane) => lane.draw()).includes(true);
    const span = Math.max(...lanes.map((lane) => lane.span));
    for (const lane of lanes) lane.scale(span);
    if (!moving) drawing = false;
    else if (calm.matches) setTimeout(next, 250);
    else requestAnimationFrame(next);
  };
  next();
}

/** The two endpoints side by side, and what one has that the other has not. */
async function showCode() {
  const code = await backstage.code();
  const nameless = (lane, line) => line.replaceAll(lane, "");
  const plain = new Set(code.naive.split("\n").map((line) => nameless("naive", line)));
  for (const { name } of lanes) {
    const lines = code[name].split("\n").map((line) => {
      const element = document.createElement(!line || plain.has(nameless(name, line)) ? "span" : "ins");
      element.textContent = line;
      return element;
    });
    $(`${name}-code`).replaceChildren(...lines);
  }
}

$("pay").addEventListener("click", pressed);
$("again").addEventListener("click", () => play(["again"]));
$("fewer").addEventListener("click", () => step(-1));
$("more").addEventListener("click", () => step(+1));

render();
showCode();
if (reloaded) say("The page was reloaded before it had an answer. The key and the bytes are still here: ask again.");
if (cart.standing === SETTLED) say("This cart is paid. Pay it again under the same key, or take a new one.");
