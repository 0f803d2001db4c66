from berth import Sandbox

with Sandbox.create() as sandbox:
    sandbox.run("mkdir notes")
    with sandbox.files.watch("notes", recursive=True) as watch:
        sandbox.run("echo hello >notes/a.txt; mv notes/a.txt notes/b.txt; rm notes/b.txt; touch notes/end", background=True)
        for event in watch:
            print(event.type, event.name)
            if event.name == "end":
                break
