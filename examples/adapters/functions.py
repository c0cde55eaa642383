"""Functions in OpenAI's form: TOOLS for a request, and call() for each tool call of its answer."""

import json

from sandbar import Sandbox, SandbarError


def function(name: str, description: str, **parameters: str) -> dict:
    schema = {"type": "object", "required": list(parameters), "additionalProperties": False,
              "properties": {p: {"type": "string", "description": text} for p, text in parameters.items()}}
    return {"type": "function", "function": {"name": name, "description": description, "strict": True, "parameters": schema}}


TOOLS = [
    function("run_python", "Run Python code. Variables stay from call to call.", code="Python code"),
    function("run_command", "Run a shell command.", command="the command"),
    function("write_file", "Make or replace a file.", path="its path", text="its text"),
    function("read_file", "Read a text file.", path="its path"),
]
DO = {"run_python": lambda box, code: box.run_code(code).output, "read_file": lambda box, path: box.files.read_text(path),
      "run_command": lambda box, command: json.dumps(vars(box.commands.run(command))),
      "write_file": lambda box, path, text: box.files.write(path, text) or "written"}


def call(box: Sandbox, tool_call: dict) -> dict:
    """Do a tool call, and return the message with its result."""
    try:
        content = DO[tool_call["function"]["name"]](box, **json.loads(tool_call["function"]["arguments"]))
    except (SandbarError, KeyError, TypeError, ValueError) as e:  # the model reads what was wrong
        content = f"error: {e!r}"
    return {"role": "tool", "tool_call_id": tool_call["id"], "content": content}
