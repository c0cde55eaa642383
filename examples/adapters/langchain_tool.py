"""A LangChain tool that runs Python in a sandbox."""

from langchain_core.tools import BaseTool, tool
from sandbar import Sandbox


def python_tool(box: Sandbox) -> BaseTool:
    """Return a tool that runs code in a sandbox. Its artifact is the list of rich results."""

    @tool(response_format="content_and_artifact")
    def run_python(code: str):
        """Run Python code. Variables stay from call to call. Return what the code prints and its last value."""
        execution = box.run_code(code)
        return execution.output, execution.results

    return run_python
