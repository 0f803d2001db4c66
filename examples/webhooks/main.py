"""Prints an event when a command ends, and checks that it came from the daemon."""
import base64
import hashlib
import hmac
import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

from berth import Client, Sandbox


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(base64.b64decode(hook.secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        if f"v1,{base64.b64encode(digest).decode()}" not in self.headers["webhook-signature"].split():
            return self.send_error(401)
        event = json.loads(body)
        print("verified:", event["type"], "in", event["data"]["container_id"] == sandbox.id and "our container")
        self.send_response(204)
        self.end_headers()


host, port = os.environ.get("RECEIVER", "127.0.0.1:0").split(":")  # where the daemon reaches this program
server = HTTPServer((host, int(port)), Receiver)
with Client() as client, Sandbox.create(client=client) as sandbox:
    hook = client.webhooks.create(f"http://{host}:{server.server_port}/", types=["exec.ended"], container_id=sandbox.id)
    try:
        sandbox.run("echo hello")
        server.handle_request()
    finally:
        client.webhooks.delete(hook.id)
