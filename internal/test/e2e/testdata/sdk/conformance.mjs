// Does the steps of conformance.json with the TypeScript SDK. It prints the outcome of each step as
// a line of JSON: {"value": …}, {"error": code, "field": …}, or {"absent": true} if the object of the
// step was not made.

import { readFileSync } from "node:fs";
import { request } from "node:http";
import { events, Sandbox, SandbarError } from "sandbar";

const objects = {};
const described = ({ name, state, labels, idle_timeout, limits }) => ({ name, state, labels, idle_timeout, timeout: limits.timeout });
const hex = (bytes) => Buffer.from(bytes ?? []).toString("hex");
const execution = (e) => ({
  stdout: e.stdout, stderr: e.stderr, text: e.text, png: hex(e.png), error: e.error, outcome: e.outcome, lost: e.lost,
  results: e.results.map((r) => ({ text: r.text, html: r.html, png: hex(r.png), main: r.main })),
});
const made = (object, value) => ({ object, value });
const processOf = (box, id) => (id ? box.commands.process(id) : box);

// Each function does one kind of step. It returns the value, or an object and the value.
const ops = {
  create: async (_, { url, token, ...options }) => {
    const box = await Sandbox.create(options, { url, token });
    return made(box, described(box.info));
  },
  connect: async (_, { id, url, token }) => {
    const box = await Sandbox.connect(id, { url, token });
    return made(box, described(box.info));
  },
  list: async (_, search) => (await Sandbox.list(search)).map((s) => s.name),
  renew: async (box, { idle_timeout }) => {
    await box.renew({ idleTimeout: idle_timeout });
    return { idle_timeout: box.info.idle_timeout };
  },
  metrics: async (box) => {
    const used = await box.metrics();
    return ["cpu_time_ms", "memory_bytes", "processes"].filter((name) => used[name] > 0);
  },
  events: async (box, { types, after, until }) => {
    const seen = [];
    let reason;
    for await (const e of events({ sandboxes: [box.id], types, after })) {
      seen.push(e);
      reason = e.reason;
      if (e.type === until) break;
    }
    const count = (type) => seen.filter((e) => e.type === type).length;
    return {
      types: [...new Set(seen.map((e) => e.type))], reason,
      repeated: seen.length - new Set(seen.map((e) => e.id)).size, lost: count("program.started") - count("program.ended"),
    };
  },
  refresh: async (box) => ({ state: (await box.refresh()).state }),
  stop: (box) => box.stop(),
  pause: async (box) => {
    await box.pause();
    return { state: box.info.state };
  },
  resume: async (box) => ({ state: (await box.resume()).info.state }),
  fork: async (box) => {
    const copies = await box.fork();
    return made(copies[0], copies.map((c) => ({ state: c.info.state })));
  },
  snapshot: async (box) => {
    const saved = await box.snapshot();
    return made(saved, { state: saved.info.state });
  },

  "commands.run": async (box, { cmd, stdin, times = 1, ...options }) => {
    const { stdout, stderr, exitCode, error, truncated } = await box.commands.run(cmd, { stdin: stdin?.repeat(times), ...options });
    return { stdout, stderr, exit_code: exitCode, error, truncated };
  },
  "commands.start": async (box, { cmd, ...options }) => made(await box.commands.start(cmd, options), null),
  "commands.list": async (box) => (await box.commands.list()).map((p) => ({ status: p.status, exit_code: p.exit_code })),
  "process.output": async (process, { id, follow, take, last = 0 }) => {
    const out = { stdout: [], stderr: [] };
    let lost = 0;
    for await (const line of processOf(process, id).output({ follow })) {
      out[line.stream].push(line.text);
      lost += line.lost;
      if (out.stdout.length === take) break;
    }
    return { stdout: out.stdout.slice(-last), stderr: out.stderr.slice(-last), lost };
  },
  "process.wait": (process) => process.wait(),
  "process.kill": (process, { id }) => processOf(process, id).kill(),

  "files.write": (box, { path, text, times = 1, mode }) => box.files.write(path, text.repeat(times), { mode }),
  "files.read": async (box, { path, size }) => (size ? (await box.files.read(path)).length : box.files.readText(path)),
  "files.list": async (box, { path }) => (await box.files.list(path)).map(({ name, type, size, mode }) => (type === "file" ? { name, type, size, mode } : { name, type })),
  "files.exists": (box, { path }) => box.files.exists(path),
  "files.make_dir": (box, { path }) => box.files.makeDir(path),
  "files.remove": (box, { path }) => box.files.remove(path),
  "files.remove_dir": (box, { path }) => box.files.removeDir(path),
  "files.watch": async (box, { path, recursive, until, then = [] }) => {
    const changes = await box.files.watch(path, { recursive });
    for (const step of then) await outcome(step);
    for await (const event of changes) if (`${event.op} ${event.path}` === until) break;
  },

  run_code: async (box, { code, ...options }) => execution(await box.runCode(code, options)),
  "contexts.create": async (box, { language, ...options }) => {
    const context = await box.contexts.create(language, options);
    return made(context, { language: context.language });
  },
  "contexts.list": async (box) => (await box.contexts.list()).map((c) => c.language),
  "contexts.remove_all": async (box) => {
    for (const context of await box.contexts.list()) await context.remove();
  },
  "context.run": async (context, { code, ...options }) => execution(await context.run(code, options)),
  "context.stream": async (context, { code, interrupt_on, leave_on }) => {
    const kinds = new Set();
    let said = "", interrupted = false;
    for await (const event of context.stream(code)) {
      kinds.add(event.type);
      said += event.text ?? "";
      if (leave_on && said.includes(leave_on)) break;
      if (interrupt_on && !interrupted && said.includes(interrupt_on)) {
        interrupted = true;
        await context.interrupt();
      }
    }
    return [...kinds];
  },
  "context.restart": (context) => context.restart(),
  "context.remove": (context) => context.remove(),

  pty: async (box, { args, input = "", resize, ...options }) => {
    const terminal = await box.pty(args, options);
    if (resize) terminal.resize(...resize);
    await terminal.write(input);
    const output = [];
    for await (const data of terminal) output.push(data);
    return { output: Buffer.concat(output).toString(), exit_code: await terminal.wait() };
  },

  expose: async (box, args) => {
    const preview = await box.expose(args.port, { public: args.public });
    return made(preview, { port: preview.port, public: preview.public });
  },
  previews: async (box) => (await box.previews()).map((p) => ({ port: p.port, public: p.public })),
  unexpose: (box, { port }) => box.unexpose(port),
  // The domain of previews is that of browsers: the request goes to the daemon's address.
  get: (preview, { path }) => new Promise((resolve, reject) => {
    const sent = request(process.env.SANDBAR_URL + path, { agent: false, headers: { Host: new URL(preview.url).host } }, (response) => {
      let body = "";
      response.on("data", (data) => { body += data; });
      response.on("end", () => resolve({ status: response.statusCode, body }));
    });
    sent.on("error", reject);
    sent.end();
  }),
};

async function outcome({ op, on = "box", as, args = {} }) {
  if (!(on in objects) && !["create", "connect", "list"].includes(op)) return { absent: true };
  try {
    const got = await ops[op](objects[on], args);
    if (!got || !("object" in Object(got))) return { value: got ?? null };
    if (as) objects[as] = got.object;
    return { value: got.value };
  } catch (e) {
    if (!(e instanceof SandbarError)) throw e;
    return { error: e.code, field: e.field };
  }
}

for (const step of JSON.parse(readFileSync(process.env.STEPS, "utf8"))) console.log(JSON.stringify(await outcome(step)));
