// Errors: one class, with a code of a closed set.

/** The codes of the daemon, and that of CommandError. */
export type Code =
  | "invalid" | "unauthenticated" | "denied" | "not_found" | "exists" | "conflict" | "too_large" | "unsupported"
  | "no_space" | "timeout" | "canceled" | "exhausted" | "unavailable" | "gone" | "internal"
  | "command";

/**
 * An error of the platform. `fix` is the next step.
 *
 * @example
 * try { await Sandbox.connect("nobody"); } catch (e) { if (e instanceof SandbarError) console.log(e.code, e.fix); }
 */
export class SandbarError extends Error {
  override name = "SandbarError";
  constructor(readonly code: Code, message: string, readonly fix = "", readonly field = "") {
    super(message + (fix ? ` (${fix})` : ""));
  }
}

/** A command with `check` that did not exit with 0. The code "command" is not one of the daemon's. */
export class CommandError extends SandbarError {
  override name = "CommandError";
  constructor(readonly result: { stdout: string; stderr: string; exitCode: number }) {
    super("command", `the command ended with ${result.exitCode}: ${result.stderr.trim().slice(-500)}`);
  }
}

const statuses: Record<number, Code> = {
  401: "unauthenticated", 403: "denied", 404: "not_found", 409: "conflict", 410: "gone", 413: "too_large", 421: "denied",
  501: "unsupported", 502: "unavailable", 503: "unavailable", 507: "no_space",
};

/** The error of a member `error` of a body. */
export function errorOf(detail: { code?: string; message?: string; fix?: string; field?: string }): SandbarError {
  return new SandbarError((detail.code ?? "internal") as Code, detail.message ?? "", detail.fix, detail.field);
}

/** The error of a response that is not 2xx, in the form of the daemon or of an executor. */
export function errorOfBody(status: number, body: string): SandbarError {
  const code = statuses[status] ?? (status < 500 ? "invalid" : "internal");
  try {
    const value = JSON.parse(body) as { error?: unknown; code?: string };
    if (typeof value.error === "object" && value.error) return errorOf(value.error);
    if (value.error) return errorOf({ code: value.code ?? code, message: String(value.error) });
  } catch { /* not JSON */ }
  return errorOf({ code, message: `the daemon answered ${status}: ${body.slice(0, 300).trim()}` });
}
