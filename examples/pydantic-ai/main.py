import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

berth = MCPToolset(os.environ["BERTH_URL"] + "/mcp", headers={"X-Api-Key": os.environ["BERTH_API_KEY"]})
agent = Agent("anthropic:" + os.environ["MODEL"], toolsets=[berth], instructions="Compute with the tools. Never guess.")


async def main():
    async with agent:  # one container for as long as the agent is open
        result = await agent.run("What is 2**100?")
        print(result.output)

asyncio.run(main())
