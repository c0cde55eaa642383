// A command on an upgraded connection (client/wire/frame.go). Node, Deno and Bun only: browsers
// cannot open such a connection.

import type { Socket } from "node:net";

import { errorOf, errorOfBody, SandbarError } from "./errors.js";

const windowSize = 256 << 10; // bytes of input that the daemon accepts at first
const unknown = "the connection broke; how the command ended is not known";

/** The end of a command. */
export interface End { outcome: string; exit_code: number | null; truncated: boolean }

/** The daemon and the path of a sandbox. */
export interface Place { url: string; token: string; path: string }

/** A command in frames. */
export class Frames {
  end?: End;
  #credit = windowSize;
  #ahead: [string, Buffer][] = [];
  #frames: AsyncGenerator<[string, Buffer]>;

  private constructor(private socket: Socket, head: Buffer) { this.#frames = this.#read(head); }

  static async start(place: Place, request: object): Promise<Frames> {
    const { request: open } = place.url.startsWith("https:") ? await import("node:https") : await import("node:http");
    const [socket, head] = await new Promise<[Socket, Buffer]>((resolve, reject) => {
      const r = open(`${place.url}/v1${place.path}/exec`, {
        headers: { Authorization: `Bearer ${place.token}`, Connection: "Upgrade", Upgrade: "sandbar-exec" },
      });
      r.once("upgrade", (_, s, h) => resolve([s as Socket, h]));
      r.once("response", (response) => {
        let text = "";
        response.on("data", (d: Buffer) => { text += d.toString(); });
        response.on("end", () => reject(errorOfBody(response.statusCode ?? 500, text)));
      });
      r.once("error", (e) => reject(new SandbarError("unavailable", `the daemon at ${place.url} cannot be reached: ${e.message}`)));
      r.end();
    });
    socket.on("error", () => undefined); // reading reports it
    const frames = new Frames(socket, head);
    frames.#send("r", Buffer.from(JSON.stringify(request)));
    return frames;
  }

  #send(kind: string, data: Uint8Array): void {
    const header = Buffer.alloc(5);
    header.write(kind, 0, "latin1");
    header.writeUInt32BE(data.length, 1);
    if (this.socket.writable) this.socket.write(Buffer.concat([header, data]));
  }

  async sendInput(data: Uint8Array): Promise<void> {
    while (data.length > 0 && !this.end) {
      if (this.#credit === 0) {
        this.#ahead.push(await this.#one());
        continue;
      }
      const n = Math.min(this.#credit, data.length, 64 << 10);
      this.#credit -= n;
      this.#send("i", data.subarray(0, n));
      data = data.subarray(n);
    }
  }

  endInput(): void { this.#send("i", new Uint8Array()); }

  resize(rows: number, cols: number): void {
    const size = Buffer.alloc(4);
    size.writeUInt16BE(rows, 0);
    size.writeUInt16BE(cols, 2);
    this.#send("z", size);
  }

  get over(): boolean { return this.end !== undefined && this.#ahead.length === 0; }

  async next(): Promise<[string, Buffer]> { return this.#ahead.shift() ?? this.#one(); }

  async #one(): Promise<[string, Buffer]> {
    const { value, done } = await this.#frames.next();
    if (done) throw new SandbarError("unavailable", unknown);
    const [kind, data] = value as [string, Buffer];
    if (kind === "w") this.#credit += data.readUInt32BE(0);
    else if (kind === "x") this.end = JSON.parse(data.toString()) as End;
    else if (kind === "f") throw errorOf((JSON.parse(data.toString()) as { error: object }).error);
    return [kind, data];
  }

  async *#read(head: Buffer): AsyncGenerator<[string, Buffer]> {
    let rest = head;
    const take = function* (): Generator<[string, Buffer]> {
      while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const size = rest.readUInt32BE(1);
        yield [rest.toString("latin1", 0, 1), rest.subarray(5, 5 + size)];
        rest = rest.subarray(5 + size);
      }
    };
    yield* take();
    try {
      for await (const data of this.socket) {
        rest = Buffer.concat([rest, data as Buffer]);
        yield* take();
      }
    } catch { /* the caller reports it */ }
  }

  close(): void { this.socket.destroy(); }
}

/** A program with a terminal. Iteration yields its output. Closing it ends the program. */
export class Pty {
  constructor(private frames: Frames) {}

  /** Type. @example await terminal.write("ls\n") */
  async write(data: string | Uint8Array): Promise<void> {
    await this.frames.sendInput(typeof data === "string" ? new TextEncoder().encode(data) : data);
  }

  /** Change the size. @example terminal.resize(40, 120) */
  resize(rows: number, cols: number): void { this.frames.resize(rows, cols); }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    while (!this.frames.over) {
      const [kind, data] = await this.frames.next();
      if (kind === "o") yield data;
    }
  }

  /** Wait for the end and return the exit code; -1 without one. @example await terminal.wait() */
  async wait(): Promise<number> {
    for await (const _ of this);
    this.close();
    return this.frames.end?.exit_code ?? -1;
  }

  /** End the program. @example terminal.close() */
  close(): void { this.frames.close(); }
}
