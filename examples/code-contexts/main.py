from berth import Sandbox

with Sandbox.create() as sandbox, sandbox.code.context() as python, sandbox.code.context(language="js") as js:
    python.run("import pandas as pd; frame = pd.DataFrame({'item': ['tea', 'milk'], 'price': [2.5, 1.2]})")
    table = python.run("frame").table  # variables stay from cell to cell
    print([column["name"] for column in table["columns"]], table["rows"])

    failed = python.run("frame['colour']")
    print("error:", failed.error)

    js.run("const prices = [2.5, 1.2]")
    print("sum in JavaScript:", js.run("prices.reduce((a, b) => a + b)").text)
