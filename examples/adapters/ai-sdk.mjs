// A tool of Vercel's AI SDK that runs Python in a sandbox:
// generateText({ tools: { runPython: runPython(box) }, … }).

import { tool } from "ai";
import { z } from "zod";

export const runPython = (box) => tool({
  description: "Run Python code. Variables stay from call to call. The result is what the code prints, its last value and its image.",
  inputSchema: z.object({ code: z.string().describe("Python code") }),
  execute: async ({ code }, { abortSignal }) => {
    const { output, png } = await box.runCode(code, { signal: abortSignal });
    return { output, png: png && Buffer.from(png).toString("base64") };
  },
  toModelOutput: ({ output: { output, png } }) => ({
    type: "content",
    value: [{ type: "text", text: output }, ...(png ? [{ type: "image-data", data: png, mediaType: "image/png" }] : [])],
  }),
});
