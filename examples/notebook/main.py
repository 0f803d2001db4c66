"""Runs the cells of a Jupyter notebook in a container, and writes the notebook with their results."""
import json

from berth import Sandbox

with open("notebook.ipynb") as file:
    notebook = json.load(file)
with Sandbox.create() as sandbox, sandbox.code.context() as context:
    for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), start=1):
        result = context.run("".join(cell["source"]))
        cell["execution_count"] = count
        cell["outputs"] = []
        if result.stdout:
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": result.stdout})
        for value in result.results:
            cell["outputs"].append({"output_type": "display_data", "metadata": {}, "data": value.data})
        if result.error:
            cell["outputs"].append({"output_type": "error", "ename": result.error.name, "evalue": result.error.message,
                                    "traceback": result.error.traceback.splitlines()})
            break
with open("done.ipynb", "w") as file:
    json.dump(notebook, file, indent=1)
print(f"{count} cells are in done.ipynb")
