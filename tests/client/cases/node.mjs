// Cases come as JSON on standard input, and what came of them goes to standard output.

import { text } from "node:stream/consumers";

import { playAll } from "./play.mjs";

process.stdout.write(JSON.stringify(await playAll(JSON.parse(await text(process.stdin)))));
