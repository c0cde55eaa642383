// Runs conformance.json with the TypeScript SDK.

import { isDeepStrictEqual } from "node:util";
import { readFileSync } from "node:fs";
import { CommandError, events, Sandbox, SandbarError } from "sandbar";

const steps = JSON.parse(readFileSync(new URL(process.env.STEPS), "utf8"));
const skip = (process.env.SKIP ?? "").split(" ");
const outputs = (r) => [r.stdout, r.stderr, r.exitCode];

async function inCopy(copy, cmd) {
  try {
    return (await copy.commands.run(cmd)).stdout;
  } finally {
    await copy.stop();
  }
}

const calls = {
  run: async (box, cmd) => outputs(await box.commands.run(cmd)),
  run_env: async (box, cmd, env, cwd) => outputs(await box.commands.run(cmd, { env, cwd })),
  run_timeout: async (box, cmd, timeout) => (await box.commands.run(cmd, { timeout })).exitCode,
  run_check: (box, cmd) => box.commands.run(cmd, { check: true }).catch((e) => (e instanceof CommandError ? e.result.exitCode : Promise.reject(e))),
  input: async (box, cmd, text, times) => (await box.commands.run(cmd, { stdin: text.repeat(times) })).stdout,
  start: async (box, cmd) => {
    const process = await box.commands.start(cmd);
    const out = [], err = [];
    for await (const line of process) (line.stream === "stdout" ? out : err).push(line.text);
    return [out.length, out[0], out.at(-1), err, await process.wait()];
  },
  kill: async (box, cmd) => {
    const process = await box.commands.start(cmd);
    await process.kill();
    const { status } = (await box.commands.list()).find((p) => p.id === process.id);
    return [status, await process.wait()];
  },
  write: async (box, path, text) => (await box.files.write(path, text)) ?? null,
  read: (box, path) => box.files.readText(path),
  list: async (box, path) => (await box.files.list(path)).map((e) => e.name),
  exists: (box, path) => box.files.exists(path),
  make_dir: async (box, path) => (await box.files.makeDir(path)) ?? null,
  remove: async (box, path) => (await box.files.remove(path)) ?? null,
  remove_dir: async (box, path) => (await box.files.removeDir(path)) ?? null,
  code: async (box, language, code) => {
    const e = await box.runCode(code, { language });
    return [e.stdout, e.text, e.error?.name ?? ""];
  },
  png: async (box, code) => Buffer.from((await box.runCode(code)).png).toString("hex"),
  contexts: async (box) => (await box.contexts.list()).map((c) => c.language),
  pty: async (box, text, rows, cols) => {
    const terminal = await box.pty(["sh"]);
    terminal.resize(rows, cols);
    await terminal.write(text);
    return terminal.wait();
  },
  expose: async (box, port) => (await box.expose(port)).url.includes(`${port}-`),
  connect: (_, name) => Sandbox.connect(name),
  events: async (_, count) => {
    const made = await Sandbox.create();
    try {
      for (let code = 0; code < count; code++) await made.commands.run(`exit ${code}`);
    } finally {
      await made.stop();
    }
    const seen = [];
    for await (const e of events({ sandboxes: [made.id], types: count > 0 ? ["sandbox", "program.ended"] : ["none"], after: "oldest" })) {
      seen.push({ "sandbox.created": e.type, "program.ended": e.exit_code, "sandbox.ended": e.reason }[e.type]);
      if (e.type === "sandbox.ended") break;
    }
    return seen;
  },
  renew: async (box, idleTimeout) => {
    await box.renew({ idleTimeout });
    return box.info.idle_timeout;
  },
  metrics: async (box) => {
    const m = await box.metrics();
    return m.memory_bytes > 0 && m.processes > 0 && m.cpu_time_ms > 0;
  },
  search: async (_, labels, state) => {
    const made = await Sandbox.create({ name: "labelled", labels: { kind: "conformance", n: "1" } });
    try {
      return (await Sandbox.list({ labels, state })).map((s) => s.name);
    } finally {
      await made.stop();
    }
  },
  fork: async (box, before, cmd) => {
    await box.commands.run(before, { check: true });
    return inCopy((await box.fork())[0], cmd);
  },
  snapshot: async (box, cmd) => inCopy(await (await box.snapshot()).resume(), cmd),
};

let failed = 0;
const box = await Sandbox.create({ name: "conformance" });
try {
  for (const { call, args, want, error, needs } of steps) {
    if (needs && skip.includes(needs)) continue;
    let got, ok;
    try {
      got = await calls[call](box, ...args);
      ok = error === undefined && isDeepStrictEqual(got, want);
    } catch (e) {
      if (!(e instanceof SandbarError)) throw e;
      got = `${e.code}: ${e.message}`;
      ok = error === e.code;
    }
    console.log(ok ? "ok" : "not ok", call, ok ? "" : `${JSON.stringify(args)}: ${JSON.stringify(got)}, want ${JSON.stringify(error ?? want)}`);
    if (!ok) failed++;
  }
} finally {
  await box.stop();
}
process.exitCode = failed ? 1 : 0;
