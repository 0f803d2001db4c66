from berth import Sandbox

with Sandbox.create() as sandbox:
    sandbox.run("mkdir notes")
    with sandbox.files.watch("notes", recursive=True) as watch:
        sandbox.run("cd notes; echo hello >a.txt; mv a.txt b.txt; rm b.txt; touch end")
        for event in watch:
            print(event.type, event.name)
            if event.name == "end":
                break
