"""Runs the steps of a project in a fresh container with live output, up to the first that fails."""
import sys
from pathlib import Path

from berth import Sandbox

STEPS = {
    "compile": "python3 -m compileall -q .",
    "test": "python3 -m unittest -v 2>&1",
    "package": "tar czf ../project.tar.gz *.py",
}

project = Path(sys.argv[1] if len(sys.argv) > 1 else "project")
with Sandbox.create(labels={"ci": project.name}, limits={"memory_bytes": 1 << 30}) as sandbox:
    sandbox.files.put(project, "project")
    for name, command in STEPS.items():
        print(f"== {name}", flush=True)
        result = sandbox.run(command, cwd="/workspace/project", timeout_seconds=600,
                             on_stdout=lambda text: print(text, end="", flush=True))
        if not result.ok:
            print(f"{name} failed: {result.reason} {result.return_code}")
            sys.exit(1)
    sandbox.files.get("project.tar.gz")
print("all steps passed")
