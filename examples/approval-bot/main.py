"""Code in the container may call send_mail, but each call waits until a person answers this bot."""
import threading

from berth import Client, Sandbox


def send_mail(to: str, text: str) -> str:
    print(f"(sent to {to})")
    return "sent"


def answer_approvals(client: Client, sandbox: Sandbox):
    for event in client.events.follow(container=sandbox.id, types=["approval.parked"], since=sandbox.info.created_at):
        asked = next(a for a in client.approvals.list(container=sandbox.id))
        if input(f"{asked.item} {asked.input} - allow? ").startswith("y"):
            client.approvals.approve(asked.id)
        else:
            client.approvals.refuse(asked.id, reason="the bot's person said no")


code = """
for to in ("ada@example.com", "everyone@example.com"):
    try:
        print(to, send_mail(to, "hello"))
    except PermissionError as e:
        print(to, "was refused:", e)
"""
allowed = {"allow": [{"name": "send_mail", "approval": "review"}]}
with Client() as client, Sandbox.create(client=client, code_tools=allowed) as sandbox, sandbox.tools.serve([send_mail]):
    threading.Thread(target=answer_approvals, args=(client, sandbox), daemon=True).start()
    print(sandbox.code.run(code).stdout)
