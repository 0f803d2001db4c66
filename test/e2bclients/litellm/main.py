"""Runs code through LiteLLM's client of E2B."""

import asyncio
import os

import litellm
from litellm.sandbox import main as sandbox

BASE = "https://api." + os.environ["E2B_DOMAIN"]
litellm.suppress_debug_info = True  # it prints hints to the standard output


async def main():
    box = await sandbox.acreate_sandbox(provider="e2b", timeout=120, metadata={"of": "litellm"}, api_base=BASE)
    assert box.provider == "e2b" and box.domain == os.environ["E2B_DOMAIN"], box

    ran = await sandbox.arun_code(provider="e2b", container=box, code="import sys\n"
                                  "rows = [n * n for n in range(5)]\nprint('squares', rows)\n"
                                  "print('note', file=sys.stderr)\nsum(rows)")
    assert ran.stdout == "squares [0, 1, 4, 9, 16]\n" and ran.stderr == "note\n", ran
    assert ran.error is None and ran.results[0]["text"] == "30" and ran.execution_count == 1, ran

    ran = await sandbox.arun_code(provider="e2b", container=box, code="rows[-1]")  # the state of the cell before
    assert ran.results[0]["text"] == "16" and ran.execution_count == 2, ran

    ran = await sandbox.arun_code(provider="e2b", container=box, env_vars={"CITY": "Bern"},
                                  code="import os; os.environ['CITY']")
    assert ran.results[0]["text"] == "Bern", ran

    ran = await sandbox.arun_code(provider="e2b", container=box, code="print('before'); 1 / 0")
    assert ran.stdout == "before\n" and ran.error["name"] == "ZeroDivisionError", ran
    assert ran.error["value"] == "division by zero" and "Traceback" in ran.error["traceback"], ran

    assert await sandbox.adelete_sandbox(provider="e2b", container=box, api_base=BASE) is True
    assert await sandbox.adelete_sandbox(provider="e2b", container=box, api_base=BASE) is False  # gone

    ran = await sandbox.acode_interpreter_tool(provider="e2b", api_base=BASE, code="print(6 * 7)")
    assert ran.stdout == "42\n" and ran.error is None, ran
    print("done")


asyncio.run(main())
