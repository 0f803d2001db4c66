from berth import Sandbox

with Sandbox.create() as sandbox:
    # Output comes while the command runs.
    sandbox.run("for n in 1 2 3; do echo step $n; sleep 0.2; done",
                on_stdout=lambda text: print(text, end="", flush=True))

    # A command in the background goes on by itself; its output is there from the beginning.
    job = sandbox.run("read name; echo hello $name; echo done >&2", background=True, open_stdin=True)
    job.stdin("reader\n", close=True)
    for chunk in job:
        print(f"{chunk.stream}: {chunk.text}", end="")
    print("return code", job.wait().return_code)
