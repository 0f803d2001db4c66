from berth import Client, Sandbox

with Client() as client:
    # A stored file outlives containers. Here it is an input of a command.
    stored = client.files.upload("data.csv")
    with Sandbox.create(client=client) as sandbox:
        result = sandbox.run("sort -t, -k2 -n $INPUT_DIR/data.csv >$OUTPUT_DIR/sorted.csv", files=[stored.id])
        print("made", client.files.download(result.files[0], "sorted.csv"))  # what is in $OUTPUT_DIR is stored, too

        # Files and whole directories go in and out without being stored.
        sandbox.files.put("texts")
        sandbox.run("cat texts/*.txt >texts/all.txt")
        sandbox.files.get("texts", "texts-back")
        print([entry.path for entry in sandbox.files.list("texts")])
    client.files.delete(stored.id)
