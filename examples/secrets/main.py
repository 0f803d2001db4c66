"""Code uses a token that it never sees, and reaches one host alone. Needs `berth serve --network-max allowlist`."""
import os

from berth import Sandbox

HOST = "api.github.com"
secret = {"value": os.environ["GITHUB_TOKEN"], "hosts": [HOST]}
network = {"mode": "allowlist", "allow": [HOST]}
with Sandbox.create(network=network, network_secrets={"GITHUB_TOKEN": secret}) as sandbox:
    # The environment has a placeholder. The daemon's proxy puts the value into requests to that host.
    print("leaked:", os.environ["GITHUB_TOKEN"] in sandbox.run("env").stdout)
    print(sandbox.run(f"curl -sS -H \"Authorization: Bearer $GITHUB_TOKEN\" https://{HOST}/user | jq -r .login").stdout)
    other = sandbox.run("curl -sS --max-time 20 https://example.com")
    print("other hosts:", "reached" if other.ok else "refused")
