"""A tool for any model that LiteLLM reaches: MODEL is such as openai/… or anthropic/…."""
import json
import os

import litellm
from berth import Sandbox

TOOL = {"type": "function", "function": {
    "name": "bash", "description": "Runs a command in a Linux container that keeps its files.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}

messages = [{"role": "user", "content": "What is 2**100? Compute it with Python."}]
with Sandbox.create() as sandbox:
    while True:
        answer = litellm.completion(model=os.environ["MODEL"], messages=messages, tools=[TOOL]).choices[0].message
        messages.append(answer)
        if not answer.tool_calls:
            break
        for call in answer.tool_calls:
            result = sandbox.run(json.loads(call.function.arguments)["command"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result.stdout + result.stderr})
print(answer.content)
