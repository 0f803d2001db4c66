from berth import Sandbox

with Sandbox.create() as sandbox:
    sandbox.files.put("orders.csv")
    sandbox.files.put("analyse.py")
    print(sandbox.run("python3 analyse.py", check=True).stdout)
    for made in ("months.csv", "chart.png"):
        print("made", sandbox.files.get(made))
