"""A code agent whose code runs in a container, with its variables and tools."""
import os

from berth import Sandbox
from smolagents import AgentLogger, CodeAgent, OpenAIModel
from smolagents.local_python_executor import CodeOutput
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentExecutionError


class BerthExecutor(RemotePythonExecutor):
    def __init__(self, context):
        super().__init__([], AgentLogger())
        self.context = context

    def run_code_raise_errors(self, code):
        result = self.context.run(code)
        if result.error is None:
            return CodeOutput(output=result.text, logs=result.stdout, is_final_answer=False)
        if result.error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(result.error.message)
            return CodeOutput(output=answer, logs=result.stdout, is_final_answer=True)
        raise AgentExecutionError(f"{result.stdout}\n{result.error}", self.logger)


with Sandbox.create() as sandbox, sandbox.code.context() as context:
    model = OpenAIModel(os.environ["MODEL"])
    agent = CodeAgent(model=model, tools=[], executor=BerthExecutor(context), verbosity_level=0)
    print(agent.run("What is 2**100?"))
