"""Scores answers of models against hidden tests, all at once, each in a copy of one prepared container."""
import asyncio

from berth import AsyncSandbox

ANSWERS = {  # what models wrote for "a function that reverses the words of a sentence"
    "model-a": "def reverse(text): return ' '.join(text.split()[::-1])",
    "model-b": "def reverse(text): return text[::-1]",
    "model-c": "def reverse(text):\n    while True: pass",
}
TESTS = """
from answer import reverse
assert reverse("to be or") == "or be to"
assert reverse("") == ""
"""


async def score(sandbox: AsyncSandbox, answer: str) -> str:
    async with sandbox:
        await sandbox.files.write("answer.py", answer)
        result = await sandbox.run("python3 tests.py", timeout_seconds=5)
        return "passed" if result.ok else f"failed by {result.reason}"


async def main():
    async with await AsyncSandbox.create() as prepared:
        await prepared.files.write("tests.py", TESTS)
        copies = await prepared.fork(len(ANSWERS))
        scores = await asyncio.gather(*map(score, copies, ANSWERS.values()))
    for name, verdict in zip(ANSWERS, scores):
        print(f"{name}: {verdict}")

asyncio.run(main())
