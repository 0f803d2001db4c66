from berth import Client, InvalidArgumentError

CODE = """
def run(input):
    words = input["text"].split()
    return {"words": len(words), "longest": max(words, key=len)}
"""

with Client() as client:
    tool = client.tools.create("count_words", {
        "code": CODE,
        "input_schema": [{"name": "text", "field_type": "STRING", "required": True}],
    }, description="Counts words, and finds the longest.")
    try:
        # Each run has a container of its own. Clients of the Model Context Protocol see the tool, too.
        print("output:", client.tools.run(tool.name, {"text": "a stored tool"}).output)
        client.tools.run(tool.name, {"txt": "misspelt"})
    except InvalidArgumentError as e:
        print("refused:", e.item)
    finally:
        client.tools.delete(tool.name)
