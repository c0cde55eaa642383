// A daemon as a child process, for programs without a running one. Node, Deno and Bun only.

import { SandbarError } from "./errors.js";

/** A daemon that ends with this process, however that ends: it reads a pipe. */
export interface Daemon {
  url: string;
  token: string;
  close(): Promise<void>;
}

/** The token that a daemon of this user has stored, or "". A browser has none. */
export async function storedToken(): Promise<string> {
  if (typeof process === "undefined" || !process.versions?.node) return "";
  const [fs, os, path] = await Promise.all([import("node:fs/promises"), import("node:os"), import("node:path")]);
  const own = process.getuid?.() === 0 ? "/var/lib/sandbar" : path.join(os.homedir(), ".local", "state", "sandbar");
  return fs.readFile(path.join(process.env.SANDBAR_STATE_DIR || own, "token"), "utf8").then((text) => text.trim(), () => "");
}

/** The command: SANDBAR_BIN, that of the package for this platform, or "sandbar" in PATH. */
async function program(): Promise<string> {
  if (process.env.SANDBAR_BIN) return process.env.SANDBAR_BIN;
  const { createRequire } = await import("node:module");
  try {
    return createRequire(import.meta.url).resolve(`@sandbar/${process.platform}-${process.arch}/bin/sandbar`);
  } catch {
    return "sandbar"; // npm has not installed the package
  }
}

/** Start a daemon. `settings` are environment variables of it. */
export async function startDaemon(settings: Record<string, string> = {}): Promise<Daemon> {
  const [{ spawn }, { randomBytes }, fs, os, path] = await Promise.all([
    import("node:child_process"), import("node:crypto"), import("node:fs/promises"), import("node:os"), import("node:path")]);
  const dir = await fs.mkdtemp(path.join(os.tmpdir(), "sandbar-"));
  const token = randomBytes(32).toString("base64url");
  const { SANDBAR_BIN: _, ...inherited } = process.env; // the daemon refuses variables that are no settings
  const child = spawn(await program(), ["serve", "--until-eof", "--listen", "127.0.0.1:0"], {
    stdio: ["pipe", "ignore", "pipe"],
    env: { ...inherited, SANDBAR_STATE_DIR: path.join(dir, "state"), SANDBAR_RUNTIME_DIR: path.join(dir, "run"), ...settings, SANDBAR_TOKEN: token },
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const close = async () => {
    child.stdin.end();
    await ended;
    await fs.rm(dir, { recursive: true, force: true });
  };
  let said = "";
  try {
    const url = await new Promise<string>((resolve, reject) => {
      child.once("error", reject);
      child.stderr.on("data", (data: Buffer) => {
        if (said.length < 64 << 10) said += data.toString();
        const found = /address"?[=:]"?(http:\/\/[^\s"]+)/.exec(said);
        if (found) resolve(found[1]!);
      });
      void ended.then(() => reject(new Error(said.trim().slice(-1000))));
    });
    return { url, token, close };
  } catch (e) {
    await close();
    throw new SandbarError("unavailable", `the daemon does not start: ${(e as Error).message}`, 'see "sandbar doctor", or set SANDBAR_BIN to the command');
  }
}
