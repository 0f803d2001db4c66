import asyncio
import os

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

berth = {"type": "http", "url": os.environ["BERTH_URL"] + "/mcp",
         "headers": {"X-Api-Key": os.environ["BERTH_API_KEY"]}}
options = ClaudeAgentOptions(
    model=os.environ["MODEL"], mcp_servers={"berth": berth}, tools=[],  # no tool works on this machine
    allowed_tools=["mcp__berth__bash", "mcp__berth__run_code", "mcp__berth__str_replace_based_edit_tool"])


async def main():
    async for message in query(prompt="What is 2**100? Compute it.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)

asyncio.run(main())
