"""A program for E2B, unchanged. The line that sets its environment is `eval "$(berth e2b env)"`."""
from e2b_code_interpreter import Sandbox

with Sandbox.create() as sandbox:
    sandbox.files.write("/home/user/data.csv", "city,degrees\nOslo,4\nLima,19\n")
    print(sandbox.commands.run("wc -l /home/user/data.csv").stdout)
    execution = sandbox.run_code("import pandas as pd; int(pd.read_csv('/home/user/data.csv').degrees.sum())")
    print("sum of degrees:", execution.text)
