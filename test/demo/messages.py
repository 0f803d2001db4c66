"""Holds a conversation with code execution as with the hosted API: the official SDK with another base URL."""
import os
import sys

import anthropic

client = anthropic.Anthropic(base_url=os.environ["BERTH_HOST"], api_key=os.environ["BERTH_API_KEY"])
tools = [{"type": "code_execution_20250825", "name": "code_execution"}]


def show(block):
    if block.type == "text":
        print("model:", block.text)
    elif block.type == "server_tool_use":
        print("runs: ", block.input["command"].splitlines()[-1])
    elif block.type == "bash_code_execution_tool_result":
        print("gets: ", (block.content.stdout + block.content.stderr).strip(),
              *(out.file_id for out in block.content.content))


with open(sys.argv[1], "rb") as data:
    uploaded = client.beta.files.upload(file=(os.path.basename(sys.argv[1]), data, "text/csv"))

question = [{"type": "text", "text": "Which was the warmest month?"},
            {"type": "container_upload", "file_id": uploaded.id}]
messages = [{"role": "user", "content": question}]
first = client.messages.create(model="demo-model", max_tokens=1000, tools=tools, messages=messages)
for block in first.content:
    show(block)
print("container:", first.container.id)

[made] = [out for block in first.content if block.type == "bash_code_execution_tool_result"
          for out in block.content.content]
table = client.beta.files.download(made.file_id).read()
with open(sys.argv[2], "wb") as out:
    out.write(table)
print("downloaded:", len(table.splitlines()), "lines")

messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "And the coldest?"}]
with client.messages.stream(model="demo-model", max_tokens=1000, tools=tools, messages=messages,
                            container=first.container.id) as stream:
    second = stream.get_final_message()
for block in second.content:
    show(block)
assert second.container.id == first.container.id, "another container"
