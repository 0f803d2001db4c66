from berth import Sandbox

with Sandbox.create() as sandbox:
    sandbox.files.write("settings.txt", "level=1\n")
    before = sandbox.snapshot()

    # Undo: back to all files as they were.
    sandbox.run("rm settings.txt")
    sandbox.restore(before)
    print("restored:", sandbox.files.read_text("settings.txt").strip())

    # Three copies try three things, each by itself.
    for level, copy in enumerate(sandbox.fork(3), start=1):
        with copy:
            copy.run(f"sed -i s/1/{level * 10}/ settings.txt")
            print("copy:", copy.files.read_text("settings.txt").strip())
    print("original:", sandbox.files.read_text("settings.txt").strip())
