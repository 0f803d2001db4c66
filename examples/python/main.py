from pathlib import Path

from berth import Sandbox

with Sandbox.create() as sandbox:
    sandbox.files.put("data.csv")
    print(sandbox.run("wc -l data.csv").stdout)
    result = sandbox.code.run("""
import pandas as pd
pd.read_csv("data.csv").plot.bar(x="city", y="degrees")
""")
    Path("chart.png").write_bytes(result.png)
print("The chart is in chart.png")
