import asyncio
import os

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp

set_default_openai_api("chat_completions")  # servers other than OpenAI's have these; leave it out for theirs
set_tracing_disabled(True)                  # traces would go to OpenAI
berth = {"url": os.environ["BERTH_URL"] + "/mcp", "headers": {"X-Api-Key": os.environ["BERTH_API_KEY"]}}


async def main():
    async with MCPServerStreamableHttp(params=berth) as server:  # one container for as long as it is connected
        agent = Agent(name="Analyst", model=os.environ["MODEL"], mcp_servers=[server],
                      instructions="Compute with the tools. Never guess.")
        result = await Runner.run(agent, "What is 2**100?")
        print(result.final_output)

asyncio.run(main())
