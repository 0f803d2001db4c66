"""PraisonAI's code mode in a container: the model writes one script that calls your functions."""
import os

import berth_praisonai
from praisonaiagents import Agent, ExecutionConfig


def price(item: str) -> float:
    """The price of an item, in euros."""
    return {"tea": 2.5, "milk": 1.2}[item]


berth_praisonai.install()
agent = Agent(
    instructions="You answer by code that calls the tools.", llm=os.environ["MODEL"], tools=[price],
    approval="full",  # lets the agent run code at all
    execution=ExecutionConfig(code_execution=True, code_mode="isolated", code_tools=True, code_tools_allow=["price"]))
print(agent.start("What do tea and milk cost together?"))
