"""The official SDK against Claude's API, with a tool that runs code in a container."""
import os

import anthropic
from anthropic import beta_tool
from berth import Sandbox

with Sandbox.create() as sandbox, sandbox.code.context() as context:

    @beta_tool
    def run_python(code: str) -> str:
        """Runs Python and returns its output. Variables stay from call to call.

        Args:
            code: The code. The value of its last expression is returned, too.
        """
        result = context.run(code)
        return f"{result.stdout}{result.text or ''}{result.error or ''}"

    runner = anthropic.Anthropic().beta.messages.tool_runner(
        model=os.environ["MODEL"], max_tokens=4000, tools=[run_python],
        messages=[{"role": "user", "content": "What is 2**100? Compute it."}])
    print(runner.until_done().content[-1].text)
