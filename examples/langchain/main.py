import asyncio
import os

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

berth = {"transport": "streamable_http", "url": os.environ["BERTH_URL"] + "/mcp",
         "headers": {"X-Api-Key": os.environ["BERTH_API_KEY"]}}


async def main():
    async with MultiServerMCPClient({"berth": berth}).session("berth") as session:  # one container for the session
        agent = create_agent(ChatAnthropic(model=os.environ["MODEL"]), await load_mcp_tools(session))
        answer = await agent.ainvoke({"messages": [("user", "What is 2**100? Compute it.")]})
        print(answer["messages"][-1].text)

asyncio.run(main())
