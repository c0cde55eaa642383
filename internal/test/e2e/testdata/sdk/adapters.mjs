// Calls the tool of examples/adapters/ai-sdk.mjs by generateText with a model that follows a script,
// and checks what the model would read.

import assert from "node:assert/strict";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { Sandbox } from "sandbar";
import { runPython } from "./ai-sdk.mjs";

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const cells = ["x = 20; print('hi')", "class Image:\n    def __repr__(self): return f'an image {x}'\n    def _repr_png_(self): return b'\\x89PNG'\nImage()", "1/0"];
const script = [
  ...cells.map((code, i) => ({
    content: [{ type: "tool-call", toolCallId: `call-${i}`, toolName: "runPython", input: JSON.stringify({ code }) }],
    finishReason: { unified: "tool-calls" }, usage, warnings: [],
  })),
  { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop" }, usage, warnings: [] },
];
const model = new MockLanguageModelV3({ doGenerate: async () => script.shift() });
const box = await Sandbox.create();
try {
  const { text } = await generateText({ model, tools: { runPython: runPython(box) }, prompt: "compute", stopWhen: stepCountIs(9) });
  assert.equal(text, "done");
} finally {
  await box.stop();
}
const [first] = model.doGenerateCalls;
assert.deepEqual(first.tools[0].inputSchema.required, ["code"]);
const read = model.doGenerateCalls.at(-1).prompt.filter((m) => m.role === "tool").map((m) => m.content[0].output.value);
assert.deepEqual(read[0], [{ type: "text", text: "hi\n" }]);
assert.equal(read[1][0].text, "an image 20");
assert.equal(read[1][1].mediaType, "image/png");
assert.equal(Buffer.from(read[1][1].data, "base64").toString("latin1"), "\x89PNG");
assert.match(read[2][0].text, /ZeroDivisionError/);
