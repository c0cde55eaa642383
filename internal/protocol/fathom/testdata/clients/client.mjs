// A client of the Fathom protocol on the package "ws". See README.md.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as later } from "node:timers/promises";

const require = createRequire(import.meta.url); // import has no NODE_PATH
const WebSocket = require("ws");
const { version } = require("ws/package.json");

const TS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const TERMINAL = ["completed", "failed", "timeout", "oom", "cancelled"];
const PATIENCE = 240_000; // ms that any one execution may take; only a failing check waits so long

// The accumulator of the specification, which also records the order of messages.
class Accumulator {
  status = null;
  stdout = "";
  stderr = "";
  exit_code = null;
  duration_ms = null;
  usage = null;
  errors = [];
  order = [];
  over = false;

  constructor(id) {
    this.execution_id = id;
    this.ended = new Promise((resolve) => (this.end = resolve));
    this.ready = new Promise((resolve) => (this.wrote = resolve));
  }

  apply(event) {
    assert(!this.over, `${JSON.stringify(event)} came after the last message`);
    const last = this.order.at(-1);
    if (last !== event.type || (last !== "stdout" && last !== "stderr")) this.order.push(event.type);
    switch (event.type) {
      case "ack":
        break;
      case "stdout":
        this.stdout += event.data;
        this.wrote();
        break;
      case "stderr":
        this.stderr += event.data;
        break;
      case "status":
        this.status = event.status;
        this.order[this.order.length - 1] = `status:${event.status}`;
        break;
      case "error":
        this.errors.push(event);
        if (!this.isTerminal()) this.finish();
        break;
      case "result":
        this.exit_code = event.exit_code;
        this.duration_ms = event.duration_ms;
        this.usage = event.resource_usage;
        this.finish();
        break;
      default:
        assert.fail(`unknown message type ${event.type}`);
    }
  }

  finish() {
    this.over = true;
    this.end();
    this.wrote(); // there will be no more
  }

  isTerminal() {
    return TERMINAL.includes(this.status);
  }
}

async function patiently(promise) {
  const stop = new AbortController();
  const late = later(PATIENCE, null, { signal: stop.signal }).then(
    () => { throw new Error("nothing came"); },
    () => {},
  );
  try {
    return await Promise.race([promise, late]);
  } finally {
    stop.abort();
  }
}

// A connection with many executions.
class Client {
  executions = new Map();
  others = []; // messages that belong to no execution
  waiters = [];
  count = 0;
  broken = null;

  static async connect(url, headers) {
    const c = new Client();
    c.ws = new WebSocket(url, { headers });
    c.ws.on("message", (data, binary) => c.take(data, binary));
    c.ws.on("close", (code) => c.fail(new Error(`closed with ${code}`)));
    await new Promise((resolve, reject) => c.ws.once("open", resolve).once("error", reject));
    return c;
  }

  take(data, binary) {
    try {
      assert(!binary, "a binary message came");
      const event = JSON.parse(data.toString());
      assert.equal(event.v, 1);
      assert.match(event.ts, TS);
      const acc = this.executions.get(event.id);
      if (!acc || (acc.over && event.type === "error")) {
        const waiter = this.waiters.shift();
        if (waiter) waiter(event);
        else this.others.push(event);
      } else {
        acc.apply(event);
      }
    } catch (e) {
      this.fail(e);
    }
  }

  fail(e) {
    this.broken ??= e;
    for (const acc of this.executions.values()) acc.finish();
  }

  send(message) {
    this.ws.send(JSON.stringify({ v: 1, ts: new Date().toISOString(), ...message }));
  }

  start(language, code, { stdin = null, env = {}, ...limits } = {}) {
    const acc = new Accumulator(`exec_${(++this.count).toString(16).padStart(8, "0")}`);
    this.executions.set(acc.execution_id, acc);
    this.send({
      type: "execute", id: acc.execution_id, language, code, stdin, env,
      limits: { timeout_ms: 120000, memory_mb: 256, cpu_shares: 512, ...limits },
    });
    return acc;
  }

  async end(acc) {
    await patiently(acc.ended);
    if (this.broken) throw this.broken;
    return acc;
  }

  run(...args) {
    return this.end(this.start(...args));
  }

  other() {
    const event = this.others.shift();
    return event ? Promise.resolve(event) : patiently(new Promise((resolve) => this.waiters.push(resolve)));
  }
}

function expect(acc, want) {
  for (const [name, value] of Object.entries(want)) {
    assert.deepEqual(acc[name], value,
      `${name} is ${JSON.stringify(acc[name])}, want ${JSON.stringify(value)}; order ${acc.order}, ` +
      `errors ${JSON.stringify(acc.errors)}, stderr ${JSON.stringify(acc.stderr)}`);
  }
}

const codes = (acc) => acc.errors.map((e) => e.code);

const checks = {
  async utf8(c, program) {
    const acc = await c.run(...program("utf8"));
    expect(acc, { status: "completed", exit_code: 0, stdout: "é€😀" });
  },
  async cancel(c, program) {
    const acc = c.start(...program("sleep"));
    await patiently(acc.ready);
    c.send({ type: "cancel", id: acc.execution_id });
    await c.end(acc);
    expect(acc, { status: "cancelled", exit_code: null, errors: [] });
    assert.deepEqual(acc.order.slice(0, 2), ["ack", "status:running"]);
    c.send({ type: "cancel", id: acc.execution_id });
    const error = await c.other();
    assert.equal(error.code, "UNKNOWN_EXECUTION");
    assert.equal(error.retryable, false);
  },
  async timeout(c, program) {
    const acc = await c.run(...program("sleep"), { timeout_ms: 1500 });
    expect(acc, { status: "timeout", exit_code: null, errors: [] });
    assert.deepEqual(acc.order.slice(-2), ["status:timeout", "result"]);
  },
  async output_limit(c, program) {
    const acc = await c.run(...program("flood"), { max_output_bytes: 100_000 });
    expect(acc, { status: "failed", exit_code: null });
    assert.equal(acc.stdout.length, 100_000);
    assert.deepEqual(codes(acc), ["OUTPUT_LIMIT"]);
    assert.equal(acc.errors[0].retryable, false);
    assert.deepEqual(acc.order.slice(-3), ["status:failed", "error", "result"]);
  },
  async many(c, program) {
    const runs = Array.from({ length: 20 }, (_, i) => c.run(...program("hello"), { stdin: `${i}`, env: { GREETING: "x" } }));
    for (const [i, acc] of (await Promise.all(runs)).entries()) {
      expect(acc, { status: "completed", exit_code: 0, stdout: `hello, ${i} GREETING=x\n`, errors: [] });
    }
  },
  async refusals(c, program) {
    let acc = await c.run("cobol", "");
    expect(acc, { order: ["error"] });
    assert.deepEqual(codes(acc), ["LANGUAGE_NOT_SUPPORTED"]);
    acc = await c.run(...program("hello"), { timeout_ms: -1 });
    expect(acc, { order: ["error"] });
    assert.deepEqual(codes(acc), ["INVALID_REQUEST"]);
    for (const frame of ["{", "[]", Buffer.from([0])]) {
      c.ws.send(frame);
      const error = await c.other();
      assert.equal(error.code, "INVALID_REQUEST");
      assert(!("id" in error));
    }
  },
  async ping(c) {
    let pong;
    for (let i = 0; i < 200; i++) { // a sandbox counts until it has been taken down, a little after its result
      c.send({ type: "ping" });
      pong = await c.other();
      assert.equal(pong.type, "pong");
      assert(!("id" in pong));
      if (pong.load.active_executions === 0 && pong.load.queue_depth === 0) return;
      await later(50);
    }
    assert.fail(`the load stays at ${JSON.stringify(pong.load)}`);
  },
};

async function checkHello(c, language, code) {
  const acc = await c.run(language, code, { stdin: "world", env: { GREETING: "ça va" } });
  expect(acc, { status: "completed", exit_code: 0, stdout: "hello, world GREETING=ça va\n", stderr: "done\n", errors: [] });
  assert.deepEqual(acc.order.slice(0, 2), ["ack", "status:running"]);
  assert.deepEqual(acc.order.slice(-2), ["status:completed", "result"]);
  assert(Number.isInteger(acc.duration_ms) && acc.duration_ms >= 0);
  assert(Number.isInteger(acc.usage.peak_memory_mb) && Number.isInteger(acc.usage.cpu_time_ms));
}

async function checkFail(c, language, code) {
  expect(await c.run(language, code), { status: "failed", exit_code: 3, errors: [] });
}

// Returns the status and the version header of the response to an upgrade.
function upgrade(url, headers) {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(url, { headers });
    const answer = (response) => ({ status: response.statusCode, version: response.headers["x-protocol-version"] });
    ws.on("upgrade", (response) => { resolve(answer(response)); });
    ws.on("open", () => ws.close());
    ws.on("unexpected-response", (request, response) => { resolve(answer(response)); request.destroy(); });
    ws.on("error", reject);
  });
}

async function checkVersion(url, headers) {
  assert.deepEqual(await upgrade(url, { ...headers, "X-Protocol-Version": "1" }), { status: 101, version: "1" });
  assert.deepEqual(await upgrade(url, { ...headers, "X-Protocol-Version": "2" }), { status: 400, version: "1" });
}

async function main(languages) {
  const url = process.env.FATHOM_URL;
  const token = process.env.FATHOM_TOKEN;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const programs = JSON.parse(readFileSync(process.env.FATHOM_PROGRAMS, "utf8"));
  const first = languages[0];
  const results = [];
  const check = async (name, what) => {
    try {
      await what();
      results.push({ name, ok: true });
    } catch (e) {
      results.push({ name, ok: false, detail: String(e) });
    }
  };

  await check("version", () => checkVersion(url, headers));
  const c = await Client.connect(url, headers);
  for (const language of languages) {
    await check(`hello ${language}`, () => checkHello(c, language, programs[language].hello));
    await check(`fail ${language}`, () => checkFail(c, language, programs[language].fail));
  }
  for (const [name, what] of Object.entries(checks)) {
    await check(name, () => what(c, (program) => [first, programs[first][program]]));
  }
  c.ws.close();
  const ok = results.every((r) => r.ok);
  console.log(JSON.stringify({ client: `ws ${version}`, ok, checks: results }));
  process.exitCode = ok ? 0 : 1;
}

await main(process.argv.slice(2));
