// Measures a request of the SDK and the same request without it, in turn, and prints both in ms.

import { Sandbox } from "sandbar";

const { SANDBAR_URL: url, SANDBAR_TOKEN: token, SANDBOX: id } = process.env;
const box = await Sandbox.connect(id);
const raw = async () => (await fetch(`${url}/v1/sandboxes/${id}/contexts`, { headers: { Authorization: `Bearer ${token}` } })).json();

async function took(f) {
  const began = performance.now();
  await f();
  return performance.now() - began;
}

const times = [[], []];
for (let i = 0; i < 600; i++) {
  times[0].push(await took(() => box.contexts.list()));
  times[1].push(await took(raw));
}
console.log(...times.map((all) => all.slice(100).sort((a, b) => a - b)[250]));
