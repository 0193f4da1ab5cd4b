// Keeps the page as the server would draw it now: each part that is marked, when something has changed.
// Nothing here makes markup of text: the browser parses the server's page, without running anything in it.

const sign = document.getElementById("live");
let loading = false;
let again = false;

function say(text, on) {
  sign.textContent = text;
  sign.classList.toggle("on", on);
}

function fetchPage() {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.timeout = 20_000;
    request.onload = () => (request.status === 200 && request.response ? resolve(request.response) : reject());
    request.onerror = request.ontimeout = request.onabort = () => reject();
    request.send();
  });
}

/** Where the focus is, so that it is there again once its element was drawn anew. */
function place(part) {
  const focused = document.activeElement;
  if (!part.contains(focused)) return () => {};
  const same = (it) => it.tagName === focused.tagName && it.getAttribute("href") === focused.getAttribute("href");
  return (drawn) => (focused === part ? drawn : [...drawn.querySelectorAll("a, [tabindex]")].find(same) ?? drawn).focus();
}

async function refresh() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    const page = await fetchPage();
    if (page.getElementById("live") === null) {
      // Somebody has signed out, or the visit is over.
      location.reload();
      return;
    }
    for (const part of document.querySelectorAll("[data-live]")) {
      const drawn = page.getElementById(part.id);
      if (drawn === null || part.isEqualNode(drawn)) continue;
      // Forms are somebody's to fill in, for as long as they are about the same claim.
      if (part.dataset.for !== undefined && part.dataset.for === drawn.dataset.for) continue;
      const restore = place(part);
      const scrolled = part.querySelector(".scroll")?.scrollLeft ?? 0;
      const own = document.adoptNode(drawn);
      part.replaceWith(own);
      if (scrolled) own.querySelector(".scroll").scrollLeft = scrolled;
      restore(own);
    }
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
  } catch {
    say("Not live", false);
  } finally {
    loading = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

const events = new EventSource(sign.dataset.events);
events.addEventListener("open", () => say("Live", true));
events.addEventListener("changed", refresh);
events.addEventListener("error", () => {
  if (events.readyState === EventSource.CLOSED) say("Not live", false);
});
for (const leaving of ["submit", "pagehide"]) addEventListener(leaving, () => events.close());
addEventListener("pageshow", (event) => event.persisted && location.reload());
