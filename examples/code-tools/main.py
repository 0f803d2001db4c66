"""Code calls functions of this program: one script in place of fifty turns of a model."""
from berth import Sandbox

STOCK = {f"item-{n}": n * 1.5 for n in range(50)}


def price(item: str) -> float:
    "The price of an item, in euros."
    return STOCK[item]


with Sandbox.create(code_tools=["price"]) as sandbox, sandbox.tools.serve([price]):
    print("total:", sandbox.code.run("sum(price(f'item-{n}') for n in range(50))").text)
    print("unknown:", sandbox.code.run("price('nothing')").error)
