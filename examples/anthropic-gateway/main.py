"""Claude's code execution tool by berth: the official SDK with another base URL. Needs `berth serve --upstream …`."""
import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ["BERTH_URL"], api_key=os.environ["BERTH_API_KEY"])
data = client.beta.files.upload(file=("data.csv", b"city,degrees\nOslo,4\nLima,19\n", "text/csv"))
message = client.messages.create(
    model=os.environ["MODEL"], max_tokens=4000,
    tools=[{"type": "code_execution_20250825", "name": "code_execution"}],
    messages=[{"role": "user", "content": [
        {"type": "text", "text": "Write the mean of degrees into mean.txt, and tell me what it is."},
        {"type": "container_upload", "file_id": data.id}]}])

for block in message.content:
    if block.type == "text":
        print(block.text)
    elif block.type == "bash_code_execution_tool_result":
        for made in block.content.content:
            print("made", made.file_id, client.beta.files.download(made.file_id).read())
print("container", message.container.id)  # the next request may go on there, with container=…
