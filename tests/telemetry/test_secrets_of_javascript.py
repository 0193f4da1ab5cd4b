"""The client in JavaScript says of keys, bodies and addresses as little as the others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.telemetry.searched import BODY, KEY, PASSWORD, Searched, planted

ROOT = Path(__file__).parents[2]

SCRIPT = """
const { KEY, BODY, WHERE, USER, LINE } = JSON.parse(process.argv[1]);
const { Intent, send } = await import("./js/twicesafe.js");
const said = [];
const observe = (event) => said.push(event);
const tried = async (what, act) => {
  try {
    await act();
  } catch (error) {
    said.push({ what, error: `${error}`, stack: `${error.stack}`, all: Object.entries(error) });
  }
};
const intent = () => Intent.create("POST", WHERE, { json: { card: BODY }, headers: { "x-card": LINE }, key: KEY });
const quick = { policy: { attempts: 2, firstDelay: 1, deadline: 2000 }, sleep: async () => {}, observe };
for (const answer of [503, 422, 200, null]) {
  const fetch = async () => {
    if (answer === null) throw new TypeError("fetch failed");
    return new Response(answer === 204 ? null : "{}", { status: answer });
  };
  await tried(`answer ${answer}`, () => send(intent(), { ...quick, fetch }));
}
await tried("aborted", () => send(intent(), { ...quick, signal: AbortSignal.abort() }));
await tried("a bad key", () => Intent.create("POST", WHERE, { json: {}, key: KEY + "\\n" }));
await tried("a long key", () => Intent.create("POST", WHERE, { json: {}, key: KEY.repeat(40) }));
await tried("no address", () => Intent.create("POST", USER.replace("http://", ""), { json: {}, key: KEY }));
await tried("half an address", () => Intent.create("POST", USER.replace("http:/", ""), { json: {}, key: KEY }));
await tried("a user in it", () => send(Intent.create("POST", USER, { json: {}, key: KEY }), quick));
await tried("two bodies", () => Intent.create("POST", WHERE, { json: { BODY }, body: BODY, key: KEY }));
await tried("a body of a kind", () => Intent.create("POST", WHERE, { body: { BODY }, key: KEY }));
console.log(JSON.stringify(said));
"""


def test_the_client_in_javascript(searched: Searched) -> None:
    """R22, R41: neither what it raises nor what its observers and its console are told holds what it was given."""
    program = shutil.which("node")
    assert program is not None, "install Node.js 18 or later"
    user = f"http://ada:{PASSWORD}@pay.example/charges?code={planted('query')}"
    where = user.replace(f"ada:{PASSWORD}@", "")
    given = json.dumps({"KEY": KEY, "BODY": BODY, "WHERE": where, "USER": user, "LINE": planted("line")})
    ran = subprocess.run(
        [program, "--input-type=module", "--eval", SCRIPT, given],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    for one in found:
        searched.saw(f"JavaScript's {one.get('what') or one.get('type')}", json.dumps(one))
    searched.saw("its console", ran.stderr)
    assert {"sending", "answered", "failed"} <= {one.get("type") for one in found}
    refused = {one["what"] for one in found if "error" in one}
    assert refused >= {"a user in it", "aborted", "a bad key", "a long key", "no address", "two bodies"}
