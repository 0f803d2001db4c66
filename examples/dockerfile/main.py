from berth import Client, Sandbox

with Client() as client:
    # FROM base is the daemon's own image; images of registries work, too. Unchanged steps are cached.
    image = client.images.build("image", "greeter", on_event=lambda e: e.log and print(e.log.data, end=""))
    with Sandbox.create(client=client, image=image.name) as sandbox:
        print(sandbox.run("cat /etc/greeting; greet you").stdout)
    client.images.remove(image.name)
