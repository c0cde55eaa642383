// Sandbar runs untrusted code in sandboxes.

import { CommandError, errorOf, errorOfBody, SandbarError } from "./errors.js";
import { Frames, Pty } from "./frames.js";
import { startDaemon, storedToken, type Daemon } from "./local.js";

export { CommandError, SandbarError, type Code } from "./errors.js";
export { Pty } from "./frames.js";

const retries = 8; // consecutive failures of a stream without an event between them

// The reasons of outcomes, as POST …/executor/run words them.
const reasons: Record<string, string> = {
  exited: "Non-zero exit code", signaled: "Non-zero exit code", cancelled: "Non-zero exit code", oom: "out of memory",
  output_limit: "output limit exceeded", timeout: "timed out", lost: "the sandbox was lost while the program ran; how it ended is not known",
};

/** Where the daemon is. The defaults are SANDBAR_URL and SANDBAR_TOKEN, or the token of a daemon of this user. */
export interface Connection { url?: string; token?: string }

/** Fields of `POST /sandboxes`. */
export interface Options {
  name?: string; image?: string; env?: Record<string, string>; labels?: Record<string, string>;
  limits?: Record<string, number | "unlimited">; secret?: string; idle_timeout?: number | "unlimited";
  network?: "none" | "outbound"; driver?: string; allow_degraded?: boolean; cold?: boolean;
}

/** The description of a sandbox. */
export interface Info { id: string; name: string; state: "running" | "paused"; driver: string; labels: Record<string, string>; [field: string]: unknown }

/** Conditions for sandboxes. `labels` are labels with their values, or names of labels with any value. */
export interface Search { labels?: Record<string, string> | string[]; state?: "running" | "paused"; driver?: string; name?: string }

/** The end of a command. `exitCode` is -1 without one, and `error` then says why. */
export interface CommandResult { stdout: string; stderr: string; exitCode: number; error: string; truncated: boolean }

/** A line of output. `lost` lines before it are no longer kept. */
export interface Output { stream: "stdout" | "stderr"; text: string; lost: number }

/** An entry of a directory. */
export interface Entry { name: string; type: "file" | "directory" | "link" | "other"; size: number; mode: string; modified_at: string }

/** A change of a file. */
export interface FileEvent { op: "create" | "write" | "remove" | "rename" | "chmod" | "lost"; path: string }

/** What a sandbox uses at one moment. A number that the driver or the host does not count is 0. */
export interface Metrics { time: string; cpu_time_ms: number; memory_bytes: number; cache_bytes: number; file_bytes: number; processes: number }

/** A port with a URL of its own. */
export interface Preview { port: number; public: boolean; url: string }

/** A value in several representations. */
export interface Result {
  text?: string; html?: string; markdown?: string; svg?: string; latex?: string; png?: Uint8Array; jpeg?: Uint8Array;
  json?: unknown; data?: unknown; chart?: unknown; main?: boolean;
}

/** An event of a cell (docs/contexts.md). */
export interface Event { type: "started" | "stdout" | "stderr" | "result" | "error" | "end"; text?: string; [field: string]: unknown }

/** What one call may do: a signal cancels it. */
export interface Call { signal?: AbortSignal }

/** Options of a command. `timeout` is in seconds. */
export interface CommandOptions extends Call { env?: Record<string, string>; cwd?: string; timeout?: number; stdin?: string | Uint8Array; check?: boolean }

/** Options of a cell. `timeout` is in seconds. */
export interface CellOptions extends Call { env?: Record<string, string>; timeout?: number }

type Init = RequestInit & { query?: Record<string, string> | URLSearchParams };

const environment: Record<string, string | undefined> = typeof process === "undefined" ? {} : process.env;

function bytesOf(base64: unknown): Uint8Array | undefined {
  return typeof base64 === "string" ? Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) : undefined;
}

const pause = (ms: number, signal?: AbortSignal) => new Promise<void>((resolve, reject) => {
  signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
  setTimeout(resolve, ms);
});

function unreachable(url: string, cause: unknown): SandbarError {
  const e = cause as Error & { cause?: Error };
  return new SandbarError("unavailable", `the daemon at ${url} cannot be reached: ${e.cause?.message ?? e.message}`,
    'start one with "sandbar serve", set SANDBAR_URL, or use local()');
}

/** Requests to one daemon, shared by its sandboxes. */
class Api {
  readonly url: string;
  readonly token: string;
  users = 0;
  private constructor(url: string, token: string, private daemon?: Daemon) {
    this.url = url.replace(/\/+$/, "");
    this.token = token;
  }

  static async at(at: Connection, daemon?: Daemon): Promise<Api> {
    const token = at.token ?? environment.SANDBAR_TOKEN ?? await storedToken();
    return new Api(at.url ?? environment.SANDBAR_URL ?? "http://127.0.0.1:8080", token, daemon);
  }

  async request(method: string, path: string, init: Init = {}): Promise<Response> {
    const { query, ...rest } = init;
    const headers = { ...(init.headers as Record<string, string>), Authorization: `Bearer ${this.token}` };
    let response: Response;
    try {
      response = await fetch(`${this.url}/v1${path}${query ? "?" + new URLSearchParams(query).toString() : ""}`, { ...rest, method, headers });
    } catch (e) {
      if (init.signal?.aborted) throw e;
      throw unreachable(this.url, e);
    }
    if (!response.ok) throw errorOfBody(response.status, await response.text());
    return response;
  }

  async json<T>(method: string, path: string, body?: unknown, init: Init = {}): Promise<T> {
    const r = await this.request(method, path, body === undefined ? init : { ...init, body: JSON.stringify(body) });
    const text = await r.text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  /** The lines of a response. Leaving the loop ends the request. */
  async *lines(response: Response, signal?: AbortSignal): AsyncGenerator<string> {
    const reader = response.body!.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    try {
      for (;;) {
        const { value, done } = await reader.read().catch((e: unknown) => {
          if (signal?.aborted) throw e;
          throw unreachable(this.url, e);
        });
        if (done) return;
        const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = parts.pop()!;
        yield* parts;
      }
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }

  /** The names and data of server-sent events. A broken connection is opened again, after the last event. */
  async *events(path: string, init: Init): AsyncGenerator<[string, string]> {
    const { signal } = init;
    let last = "", failures = 0;
    for (;;) {
      try {
        let name = "", data = "", id = "";
        const response = await this.request("GET", path, { ...init, headers: last ? { "Last-Event-ID": last } : {} });
        for await (const line of this.lines(response, signal ?? undefined)) {
          const at = line.indexOf(": ");
          const field = line.slice(0, at), value = line.slice(at + 2);
          if (field === "event") name = value;
          else if (field === "id") id = value;
          else if (field === "data") data += value;
          else if (line === "") {
            last = id || last;
            if (name || id) failures = 0;
            if (name) yield [name, data];
            name = data = id = "";
          }
        }
        throw new SandbarError("unavailable", "the stream broke");
      } catch (e) {
        if (!(e instanceof SandbarError && e.code === "unavailable") || ++failures > retries) throw e;
        await pause(Math.min(50 * 2 ** failures, 5000), signal ?? undefined);
      }
    }
  }

  async release(): Promise<void> {
    if (--this.users <= 0) await this.daemon?.close();
  }
}

/**
 * A sandbox.
 *
 * @example
 * const box = await Sandbox.create();
 * console.log((await box.runCode("6 * 7")).text); // 42
 * await box.stop();
 */
export class Sandbox {
  readonly id: string;
  readonly commands: Commands;
  readonly files: Files;
  readonly contexts: Contexts;
  #contexts = new Map<string, Promise<Context>>(); // by language
  #open = true;

  private constructor(private api: Api, public info: Info) {
    api.users++;
    this.id = info.id;
    this.commands = new Commands(api, this.path);
    this.files = new Files(api, this.path);
    this.contexts = new Contexts(api, this.path);
  }

  private get path(): string { return "/sandboxes/" + encodeURIComponent(this.id); }

  /** Create a sandbox. @example const box = await Sandbox.create({ name: "worker" }) */
  static async create(options: Options = {}, at: Connection = {}): Promise<Sandbox> {
    return Sandbox.make(await Api.at(at), options);
  }

  /**
   * Create a sandbox without a running daemon: a child process ends with the sandbox. `settings` are
   * environment variables of the daemon. Not in browsers.
   *
   * @example const box = await Sandbox.local()
   */
  static async local(options: Options = {}, settings: Record<string, string> = {}): Promise<Sandbox> {
    const daemon = await startDaemon(settings);
    return Sandbox.make(await Api.at(daemon, daemon), options);
  }

  private static async make(api: Api, options: Options): Promise<Sandbox> {
    try {
      return new Sandbox(api, await api.json<Info>("POST", "/sandboxes", options));
    } catch (e) {
      await api.release();
      throw e;
    }
  }

  /** Return an existing sandbox, by its id or name. @example const box = await Sandbox.connect("worker") */
  static async connect(id: string, at: Connection = {}): Promise<Sandbox> {
    const api = await Api.at(at);
    return new Sandbox(api, await api.json<Info>("GET", "/sandboxes/" + encodeURIComponent(id)));
  }

  /**
   * Describe the sandboxes that meet all conditions, oldest first.
   *
   * @example (await Sandbox.list({ labels: { owner: "me" } })).map((s) => s.name)
   */
  static async list(search: Search & Connection = {}): Promise<Info[]> {
    const { url, token, labels = {}, ...rest } = search;
    const query = new URLSearchParams({ limit: "1000" });
    for (const [name, value] of Object.entries(rest)) if (value) query.set(name, value);
    for (const l of Array.isArray(labels) ? labels : Object.entries(labels).map(([k, v]) => `${k}=${v}`)) query.append("label", l);
    const api = await Api.at({ url, token });
    const found: Info[] = [];
    for (;;) {
      const page = await api.json<{ sandboxes: Info[]; next?: string }>("GET", "/sandboxes", undefined, { query });
      found.push(...page.sandboxes);
      if (!page.next || page.sandboxes.length === 0) return found;
      query.set("after", page.next);
    }
  }

  /** Remove the sandbox. It resolves when nothing of it is left. @example await box.stop() */
  async stop(): Promise<void> {
    try {
      await this.api.request("DELETE", this.path);
    } catch (e) {
      if (!(e instanceof SandbarError && e.code === "not_found")) throw e;
    } finally {
      await this.close();
    }
  }

  /** Release the connection. A sandbox of a running daemon stays. @example await box.close() */
  async close(): Promise<void> {
    if (this.#open) {
      this.#open = false;
      await this.api.release();
    }
  }

  /**
   * Run code in the sandbox's context of a language. Variables stay from call to call.
   *
   * @example
   * await box.runCode("x = 20");
   * (await box.runCode("x + 1")).text; // "21"
   */
  async runCode(code: string, options: CellOptions & { language?: string } = {}): Promise<Execution> {
    const language = options.language ?? "python";
    for (;;) {
      let context = this.#contexts.get(language);
      const kept = context !== undefined;
      if (!context) {
        context = this.contexts.create(language);
        this.#contexts.set(language, context);
        context.catch(() => this.#contexts.delete(language));
      }
      const interpreter = await context;
      try {
        return await interpreter.run(code, options);
      } catch (e) {
        // The context was removed, or ended with a pause.
        if (!kept || !(e instanceof SandbarError && e.code === "not_found")) throw e;
        if (this.#contexts.get(language) === context) this.#contexts.delete(language);
      }
    }
  }

  /** Describe the sandbox as it is now, also in `info`. @example (await box.refresh()).state */
  async refresh(): Promise<Info> {
    this.info = await this.api.json<Info>("GET", this.path);
    return this.info;
  }

  /** Give a port a URL for browsers. It has a token unless `public` is set. @example (await box.expose(8000)).url */
  async expose(port: number, options: { public?: boolean } = {}): Promise<Preview> {
    return this.api.json("POST", this.path + "/previews", { port, public: options.public ?? false });
  }

  /** Return the ports that have a URL, sorted by port. @example (await box.previews()).map((p) => p.port) */
  async previews(): Promise<Preview[]> {
    return (await this.api.json<{ previews: Preview[] }>("GET", this.path + "/previews")).previews;
  }

  /** Make the URL of a port invalid. @example await box.unexpose(8000) */
  async unexpose(port: number): Promise<void> { await this.api.request("DELETE", `${this.path}/previews/${port}`); }

  /**
   * Count as a use of the sandbox. `idleTimeout`, in seconds, replaces that of the sandbox. Nothing
   * extends the operator's max_lifetime, which ends at `info.expires_at`.
   *
   * @example await box.renew({ idleTimeout: 300 })
   */
  async renew(options: { idleTimeout?: number } = {}): Promise<void> {
    this.info = await this.api.json<Info>("POST", this.path + "/renew", { idle_timeout: options.idleTimeout });
  }

  /** Measure what the sandbox uses. This does not count as use. @example (await box.metrics()).memory_bytes */
  async metrics(): Promise<Metrics> { return this.api.json("GET", this.path + "/metrics"); }

  /** Save the sandbox on the daemon's disk and stop it. @example await box.pause() */
  async pause(): Promise<void> {
    this.info = await this.api.json<Info>("POST", this.path + "/pause");
  }

  /** Continue the sandbox after pause() or snapshot(). @example await box.resume() */
  async resume(): Promise<this> {
    this.info = await this.api.json<Info>("POST", this.path + "/resume");
    return this;
  }

  /** Make copies of the running sandbox. @example const [copy] = await box.fork() */
  async fork(count = 1): Promise<Sandbox[]> {
    const made = await this.api.json<{ sandboxes: Info[] }>("POST", this.path + "/fork", { count });
    return made.sandboxes.map((s) => new Sandbox(this.api, s));
  }

  /** Make a copy on the daemon's disk. resume() of the copy continues it. @example const saved = await box.snapshot() */
  async snapshot(): Promise<Sandbox> {
    const copy = (await this.fork())[0]!;
    try {
      await copy.pause();
    } catch (e) {
      await copy.stop();
      throw e;
    }
    return copy;
  }

  /** Start a program with a terminal. Not in browsers. @example const terminal = await box.pty(["sh"]) */
  async pty(args: string[] = ["sh"], options: { rows?: number; cols?: number; env?: Record<string, string>; dir?: string } = {}): Promise<Pty> {
    const { rows = 24, cols = 80, env = {}, dir = "" } = options;
    const place = { url: this.api.url, token: this.api.token, path: this.path };
    return new Pty(await Frames.start(place, { args, env, dir, stdin: true, terminal: { rows, cols } }));
  }
}

/** Something that happened to a sandbox. `missed` of a "gap" is absent if the number is unknown. */
export interface SandboxEvent {
  id: string; type: string; time: string; sandbox?: string; client?: string; from?: string; reason?: "stopped" | "idle" | "lifetime" | "died" | "shutdown";
  program?: string; context?: string; outcome?: string; exit_code?: number; signal?: number; failed?: boolean; action?: string; code?: string; missed?: number;
}

/**
 * Stream what happens to sandboxes (docs/events.md), from now on or after the event with the id
 * `after`. `sandboxes` are ids or names, `types` types or their first words. A broken connection is
 * opened again, without loss or repetition. An event of the type "gap" stands for events that the
 * daemon no longer keeps.
 *
 * @example for await (const e of events({ types: ["sandbox"] })) console.log(e.type, e.sandbox, e.reason)
 */
export async function* events(options: Call & Connection & { sandboxes?: string[]; types?: string[]; after?: string } = {}): AsyncGenerator<SandboxEvent> {
  const { sandboxes = [], types = [], after, signal, ...at } = options;
  const query = new URLSearchParams();
  for (const s of sandboxes) query.append("sandbox", s);
  for (const t of types) query.append("type", t);
  if (after) query.set("after", after);
  for await (const [, data] of (await Api.at(at)).events("/events", { signal, query })) yield JSON.parse(data) as SandboxEvent;
}

/** A background process, as the daemon describes it. */
export interface ProcessInfo { id: string; pid: number; status: "running" | "completed" | "failed" | "killed"; command: string; exit_code?: number }

/** Shell commands of a sandbox. */
export class Commands {
  private path: string;
  constructor(private api: Api, private sandbox: string) { this.path = sandbox + "/executor"; }

  /** Run a shell command to its end. `stdin` is not for browsers. @example (await box.commands.run("echo hi")).stdout */
  async run(cmd: string, options: CommandOptions = {}): Promise<CommandResult> {
    const { env = {}, cwd, timeout, stdin, check, signal } = options;
    const result = stdin === undefined ? await this.#post({ cmd, env, cwd, timeout }, signal)
      : await this.#with(stdin, { args: ["sh", "-c", cmd], env, dir: cwd, timeout }, signal);
    if (check && result.exitCode !== 0) throw new CommandError(result);
    return result;
  }

  async #post(body: object, signal?: AbortSignal): Promise<CommandResult> {
    const r = await this.api.json<{ stdout: string; stderr: string; code: number; error?: string; truncated?: boolean }>("POST", this.path + "/run", body, { signal });
    return { stdout: r.stdout, stderr: r.stderr, exitCode: r.code, error: r.error ?? "", truncated: r.truncated ?? false };
  }

  async #with(stdin: string | Uint8Array, request: { timeout?: number; [field: string]: unknown }, signal?: AbortSignal): Promise<CommandResult> {
    signal?.throwIfAborted();
    const frames = await Frames.start({ url: this.api.url, token: this.api.token, path: this.sandbox }, { ...request, stdin: true });
    const cancel = () => frames.close();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      await frames.sendInput(typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin);
      frames.endInput();
      const outputs: Record<string, Uint8Array[]> = { o: [], e: [] };
      while (!frames.over) {
        const [kind, data] = await frames.next();
        outputs[kind]?.push(data);
      }
      const { outcome, exit_code, truncated } = frames.end!;
      let error = exit_code === 0 ? "" : reasons[outcome] ?? outcome;
      if (outcome === "timeout" && request.timeout) error += ` after ${request.timeout}s`;
      return { stdout: Buffer.concat(outputs.o!).toString(), stderr: Buffer.concat(outputs.e!).toString(), exitCode: exit_code ?? -1, error, truncated };
    } catch (e) {
      signal?.throwIfAborted();
      throw e;
    } finally {
      signal?.removeEventListener("abort", cancel);
      frames.close();
    }
  }

  /** Start a shell command in the background. @example for await (const line of await box.commands.start("seq 3")) console.log(line.text) */
  async start(cmd: string, options: { env?: Record<string, string>; cwd?: string } = {}): Promise<Process> {
    const p = await this.api.json<ProcessInfo>("POST", this.path + "/start_process", { cmd, env: options.env ?? {}, cwd: options.cwd });
    return new Process(this.api, this.path, p.id, p.pid);
  }

  /** Describe the background processes. @example (await box.commands.list()).map((p) => p.status) */
  async list(): Promise<ProcessInfo[]> {
    return (await this.api.json<{ processes: ProcessInfo[] }>("GET", this.path + "/list_processes")).processes;
  }

  /** Return a background process by its id. @example box.commands.process(id) */
  process(id: string): Process { return new Process(this.api, this.path, id, 0); }
}

/** A background process. Iteration yields its output from the beginning, and reconnects by offset. */
export class Process {
  constructor(private api: Api, private path: string, readonly id: string, readonly pid: number) {}

  [Symbol.asyncIterator](): AsyncGenerator<Output> { return this.output(); }

  /**
   * Stream the output until the process's end, or with `follow: false` until now. A broken connection
   * is opened again, and continues after the last line without loss or repetition.
   *
   * @example for await (const line of process.output({ signal })) console.log(line.stream, line.text)
   */
  async *output(options: Call & { follow?: boolean } = {}): AsyncGenerator<Output> {
    const { signal, follow = true } = options;
    let lost = 0;
    for await (const [name, data] of this.api.events(this.path + "/process_logs_streaming", { signal, query: { id: this.id, follow: String(follow) } })) {
      if (name === "complete") return;
      const event = JSON.parse(data) as { error?: string; lost?: number; stream: "stdout" | "stderr"; data: string };
      if (name === "error") throw new SandbarError("not_found", event.error ?? "");
      if (name === "gap") lost += event.lost ?? 0;
      else if (name === "log") {
        yield { stream: event.stream, text: event.data, lost };
        lost = 0;
      }
    }
  }

  /** Wait for the end and return the exit code; -1 without one. @example await process.wait() */
  async wait(): Promise<number> {
    for await (const _ of this);
    const all = await this.api.json<{ processes: ProcessInfo[] }>("GET", this.path + "/list_processes");
    const code = all.processes.find((p) => p.id === this.id)?.exit_code;
    if (code === undefined) throw new SandbarError("not_found", "the process is no longer remembered", "", "id");
    return code;
  }

  /** Kill the process and all that it started. One that has ended is a `conflict`. @example await process.kill() */
  async kill(): Promise<void> {
    try {
      await this.api.json("POST", this.path + "/kill_process", { id: this.id });
    } catch (e) {
      // The executor's protocol has one status for both errors.
      if (!(e instanceof SandbarError && e.code === "invalid")) throw e;
      throw new SandbarError(e.message.startsWith("process not found") ? "not_found" : "conflict", e.message);
    }
  }
}

/** Files of a sandbox. Relative paths begin at /home/user. */
export class Files {
  constructor(private api: Api, private path: string) {}

  /** Read a file. @example await box.files.read("data.bin") */
  async read(path: string, call: Call = {}): Promise<Uint8Array> {
    return new Uint8Array(await (await this.api.request("GET", this.path + "/executor/files", { ...call, query: { path } })).arrayBuffer());
  }

  /** Read a text file. @example await box.files.readText("notes.txt") */
  async readText(path: string, call: Call = {}): Promise<string> { return new TextDecoder().decode(await this.read(path, call)); }

  /** Make or replace a file, in one step, with its parent directories. @example await box.files.write("data.csv", "a,b\n") */
  async write(path: string, data: string | Uint8Array, options: Call & { mode?: number } = {}): Promise<void> {
    const query: Record<string, string> = { path, parents: "true" };
    if (options.mode) query.mode = options.mode.toString(8);
    await this.api.request("PUT", this.path + "/executor/files", { signal: options.signal, query, body: data as BodyInit });
  }

  /** List a directory, sorted by name. @example (await box.files.list()).map((e) => e.name) */
  async list(path = "."): Promise<Entry[]> {
    const found: Entry[] = [];
    for (;;) {
      const query = { path, after: found.at(-1)?.name ?? "" };
      const page = await this.api.json<{ entries: Entry[]; more: boolean }>("GET", this.path + "/dir", undefined, { query });
      found.push(...page.entries);
      if (!page.more || page.entries.length === 0) return found;
    }
  }

  /** Report whether a file or directory exists. @example await box.files.exists("data.csv") */
  async exists(path: string): Promise<boolean> {
    try {
      await this.api.request("HEAD", this.path + "/executor/files", { query: { path } });
    } catch (e) {
      if (e instanceof SandbarError && e.code === "not_found") return false;
      if (!(e instanceof SandbarError && e.code === "conflict")) throw e; // conflict: a directory
    }
    return true;
  }

  /** Make a directory and its parents. @example await box.files.makeDir("a/b") */
  async makeDir(path: string): Promise<void> { await this.#change("make_dir", path); }

  /** Remove a file. @example await box.files.remove("data.csv") */
  async remove(path: string): Promise<void> { await this.#change("delete_file", path); }

  /** Remove a directory with its contents. @example await box.files.removeDir("a") */
  async removeDir(path: string): Promise<void> { await this.#change("delete_dir", path); }

  async #change(what: string, path: string): Promise<void> {
    const done = await this.api.json<{ error?: string }>("POST", `${this.path}/executor/${what}`, { path });
    if (done.error) throw errorOf({ code: done.error.toLowerCase().includes("no such file") ? "not_found" : "conflict", message: done.error });
  }

  /**
   * Watch a directory, with `recursive` also those below it. No change after the return is missed.
   *
   * @example for await (const e of await box.files.watch("src")) console.log(e.op, e.path)
   */
  async watch(path = ".", options: Call & { recursive?: boolean } = {}): Promise<Watch> {
    const { signal, recursive = false } = options;
    const response = await this.api.request("GET", this.path + "/watch", { signal, query: { path, recursive: String(recursive) } });
    return new Watch(this.api.lines(response, signal), response);
  }
}

/** A watch of a directory. Iteration yields changes until the directory is gone; leaving the loop ends the watch. */
export class Watch {
  constructor(private lines: AsyncGenerator<string>, private response: Response) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<FileEvent> {
    for await (const line of this.lines) {
      const event = JSON.parse(line) as FileEvent & { error?: object };
      if (event.error) throw errorOf(event.error);
      yield event;
    }
  }

  /** End a watch that is not iterated. @example await changes.close() */
  async close(): Promise<void> { if (!this.response.body!.locked) await this.response.body!.cancel(); }
}

/** The outputs, results and error of a cell. */
export class Execution {
  stdout = "";
  stderr = "";
  results: Result[] = [];
  error?: { name: string; value: string; traceback: string };
  outcome = "";
  lost = false;
  executionCount = 0;

  /** The text of the value of the last expression, or "". */
  get text(): string { return this.results.find((r) => r.main)?.text ?? ""; }

  /** All text, for a model to read: both outputs, the value and the traceback. */
  get output(): string { return this.stdout + this.stderr + this.text + (this.error?.traceback ?? ""); }

  /** The first image. */
  get png(): Uint8Array | undefined { return this.results.find((r) => r.png)?.png; }

  /** Add an event of a cell. */
  add(event: Event): void {
    switch (event.type) {
      case "stdout": this.stdout += event.text; break;
      case "stderr": this.stderr += event.text; break;
      case "result": {
        const { type: _, ...data } = event;
        this.results.push({ ...data, png: bytesOf(data.png), jpeg: bytesOf(data.jpeg) });
        break;
      }
      case "error":
        this.error = { name: String(event.name ?? ""), value: String(event.value ?? ""), traceback: String(event.traceback ?? "") };
        break;
      case "end":
        this.outcome = String(event.outcome);
        this.lost = Boolean(event.lost);
        this.executionCount = Number(event.execution_count ?? 0);
    }
  }
}

/** Interpreters of a sandbox, which run one cell after another. */
export class Contexts {
  constructor(private api: Api, private sandbox: string) {}

  /** Start an interpreter: python, javascript, typescript or bash. @example await box.contexts.create("bash") */
  async create(language = "python", options: { dir?: string; env?: Record<string, string> } = {}): Promise<Context> {
    const info = await this.api.json<{ id: string; language: string }>("POST", this.sandbox + "/contexts", { language, ...options });
    return new Context(this.api, this.sandbox, info.id, info.language);
  }

  /** Return all contexts, in the order of their creation. @example (await box.contexts.list()).map((c) => c.language) */
  async list(): Promise<Context[]> {
    const all = await this.api.json<{ contexts: { id: string; language: string }[] }>("GET", this.sandbox + "/contexts");
    return all.contexts.map((c) => new Context(this.api, this.sandbox, c.id, c.language));
  }
}

/** An interpreter. Its variables stay from cell to cell. */
export class Context {
  private path: string;
  constructor(private api: Api, sandbox: string, readonly id: string, readonly language: string) {
    this.path = `${sandbox}/contexts/${encodeURIComponent(id)}`;
  }

  /** Run a cell to its end. @example (await context.run("6 * 7")).text */
  async run(code: string, options: CellOptions = {}): Promise<Execution> {
    const execution = new Execution();
    for await (const event of this.stream(code, options)) execution.add(event);
    return execution;
  }

  /** Run a cell and stream its events. Leaving the loop interrupts the cell. @example for await (const e of context.stream("print(1)")) console.log(e.type) */
  async *stream(code: string, options: CellOptions = {}): AsyncGenerator<Event> {
    const { signal, env = {}, timeout } = options;
    const response = await this.api.request("POST", this.path + "/run", { signal, body: JSON.stringify({ code, env, timeout }) });
    for await (const line of this.api.lines(response, signal)) {
      const event = JSON.parse(line) as { type: string; failure?: object };
      if (event.type === "failed") throw errorOf(event.failure ?? {});
      if (event.type !== "keepalive") yield event as Event;
      if (event.type === "end") return;
    }
    throw new SandbarError("unavailable", "the connection broke; how the cell ended is not known");
  }

  /** Interrupt the running cell; the variables stay. @example await context.interrupt() */
  async interrupt(): Promise<void> { await this.api.json("POST", this.path + "/interrupt"); }

  /** Start the interpreter again; its variables are lost. @example await context.restart() */
  async restart(): Promise<void> { await this.api.json("POST", this.path + "/restart"); }

  /** End the interpreter. @example await context.remove() */
  async remove(): Promise<void> { await this.api.request("DELETE", this.path); }
}
