"""An executor of smolagents: CodeAgent(…, executor=SandbarExecutor(box)) runs its code in a sandbox.

The sandbox needs the packages of the agent's tools; that of the final answer imports numpy and Pillow.
"""

from sandbar import Sandbox
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError


class SandbarExecutor(RemotePythonExecutor):
    def __init__(self, box: Sandbox):
        super().__init__(additional_imports=[], logger=AgentLogger())
        self.box = box

    def install_packages(self, packages: list) -> list:
        return packages

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        execution = self.box.run_code(code)
        error = execution.error
        if error and error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(error.value, self.allow_pickle)
            return CodeOutput(output=answer, logs=execution.stdout, is_final_answer=True)
        if error:
            raise AgentError(execution.output, self.logger)
        return CodeOutput(output=execution.text or None, logs=execution.stdout, is_final_answer=False)
