"""Calls the tools of examples/adapters as their libraries do, and checks what the model would read."""

import json
import os
import pathlib
import sys

from sandbar import Sandbox

sys.path.insert(0, os.environ["ADAPTERS"])

PNG = "class Image:\n    def __repr__(self): return 'an image'\n    def _repr_png_(self): return b'\\x89PNG'\nImage()"


def langchain(box):
    from langchain_core.messages import ToolMessage
    from langchain_tool import python_tool

    tool = python_tool(box)
    schema = tool.tool_call_schema.model_json_schema()
    assert schema["required"] == ["code"] and list(schema["properties"]) == ["code"], schema

    def call(code):
        message = tool.invoke({"type": "tool_call", "id": "call-1", "name": "run_python", "args": {"code": code}})
        assert isinstance(message, ToolMessage) and message.tool_call_id == "call-1" and message.status == "success", message
        return message

    assert call("x = 20; print('hi')").content == "hi\n"
    assert call("x + 1").content == "21"
    assert "ZeroDivisionError" in call("1/0").content
    image = call(PNG)
    assert image.content == "an image" and image.artifact[0].png == b"\x89PNG", image


def smolagents(box):
    from smolagents import ChatMessage, CodeAgent, Model, tool
    from smolagents_executor import SandbarExecutor

    class Script(Model):
        """A model that says the same every time it is asked."""

        def __init__(self, *cells):
            super().__init__(model_id="script")
            self.cells, self.read = list(cells), []

        def generate(self, messages, **_):
            self.read.append(str(messages[-1].content))
            return ChatMessage(role="assistant", content=f"Thought: go on.\n<code>\n{self.cells.pop(0)}\n</code>")

    @tool
    def double(number: int) -> int:
        """Double a number.

        Args:
            number: The number.
        """
        return 2 * number

    for package in ("numpy", "pillow"):
        [wheel] = pathlib.Path(os.environ["WHEELS"]).glob(package + "-*.whl")
        box.files.write("package.zip", wheel.read_bytes())
        box.commands.run("python3 -m zipfile -e package.zip lib", check=True)
    model = Script("print('begun'); x = double(given)", "1/0", "import os; final_answer([x + 2, os.environ['WHERE']])")
    agent = CodeAgent(tools=[double], model=model, executor=SandbarExecutor(box), additional_authorized_imports=["os"], verbosity_level=0)
    assert agent.run("compute", additional_args={"given": 20}) == [42, "inside"]
    assert "begun" in model.read[1] and "ZeroDivisionError" in model.read[2], model.read


def functions(box):
    from functions import TOOLS, call

    for f in (t["function"] for t in TOOLS):  # what the strict mode of schemas wants
        assert f["strict"] and f["description"]
        schema = f["parameters"]
        assert schema["required"] == list(schema["properties"]) and schema["additionalProperties"] is False, f

    def content(name, **args):
        message = call(box, {"id": "call-1", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}})
        assert message["role"] == "tool" and message["tool_call_id"] == "call-1", message
        return message["content"]

    assert content("run_python", code="y = 1; y + 1") == "2"
    assert content("run_python", code="y + 2") == "3"
    assert content("write_file", path="a/b", text="text\n") == "written"
    assert content("read_file", path="a/b") == "text\n"
    assert json.loads(content("run_command", command="cat a/b; exit 3"))["exit_code"] == 3
    for wrong in (content("read_file", path="none"), content("read_file"), content("unheard"),
                  call(box, {"id": "1", "function": {"name": "read_file", "arguments": "{"}})["content"]):
        assert wrong.startswith("error: "), wrong


with Sandbox.create(env={"WHERE": "inside", "PYTHONPATH": "/home/user/lib"}) as sandbox:
    globals()[sys.argv[1]](sandbox)
