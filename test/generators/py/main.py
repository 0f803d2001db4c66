"""Creates a container, puts a file, runs a command, lists, meets an error and deletes, with a client that
openapi-python-client has made."""
import io
import os

from berth_client import Client
from berth_client.api.commands import run
from berth_client.api.containers import create_container, delete_container, list_containers
from berth_client.api.files_in_containers import read_file, stat_file, write_file
from berth_client.models import Cmd, Container, ContainerPage, CreateContainer, CreateContainerLabels
from berth_client.models import DeletedContainer, ExecResult, Failure, FileInfo
from berth_client.types import File

berth = Client(base_url=os.environ["BERTH_URL"], headers={"X-Api-Key": os.environ["BERTH_API_KEY"]})


def check(name, ok, why):
    print(f"PASS {name}" if ok else f"FAIL {name} {why!r}")


labels = CreateContainerLabels.from_dict({"by": "generator-py"})
made = create_container.sync(client=berth, body=CreateContainer(name="generated-py", labels=labels))
check("create", isinstance(made, Container) and made.name == "generated-py", made)

text = b"Oslo,4\nLima,19\n"
put = write_file.sync(made.id, client=berth, body=File(payload=io.BytesIO(text)), path="data.csv")
check("put", isinstance(put, FileInfo) and put.size_bytes == 15, put)

read = read_file.sync(made.id, client=berth, path="data.csv")
check("read", isinstance(read, File) and read.payload.read() == text, read)

ran = run.sync(made.id, client=berth, body=Cmd(command="wc -l <data.csv", cwd="/workspace"))
check("run", isinstance(ran, ExecResult) and ran.result.stdout == "2\n", ran)

page = list_containers.sync(client=berth, label=["by=generator-py"])
check("list", isinstance(page, ContainerPage) and len(page.data) == 1 and page.next_after is None, page)

failed = stat_file.sync(made.id, client=berth, path="nowhere")
check("error", isinstance(failed, Failure) and failed.error.code == "not_found", failed)

gone = delete_container.sync(made.id, client=berth)
check("delete", isinstance(gone, DeletedContainer) and gone.deleted, gone)
