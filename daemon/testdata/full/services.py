# Makes each client and, where possible, checks what it would send to its provider. There is no network.
import http.server, json, threading
import anthropic, boto3, cohere, google.genai, groq, httpx, jsonschema, mistralai, openai, pydantic, requests, \
    tenacity, together


class Provider(http.server.BaseHTTPRequestHandler):
    seen = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, body["model"]))
        if self.path.endswith("/messages"):
            answer = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "hi"}],
                      "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        else:
            answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "x", "usage": None,
                      "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}]}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
ask = {"model": "x", "messages": [{"role": "user", "content": "hello"}]}
for client in openai.OpenAI(api_key="k", base_url=url), groq.Groq(api_key="k", base_url=url), together.Together(api_key="k", base_url=url):
    assert client.chat.completions.create(**ask).choices[0].message.content == "hi", client
assert anthropic.Anthropic(api_key="k", base_url=url).messages.create(max_tokens=5, **ask).content[0].text == "hi"
assert len(Provider.seen) == 4 and Provider.seen[3][0] == "/v1/messages", Provider.seen

assert google.genai.Client(api_key="k").models
assert cohere.ClientV2(api_key="k").chat
assert __import__("mistralai.client", fromlist=["Mistral"]).Mistral(api_key="k").chat if not hasattr(mistralai, "Mistral") else mistralai.Mistral(api_key="k").chat
link = boto3.client("s3", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b").generate_presigned_url(
    "get_object", Params={"Bucket": "bucket", "Key": "key"})
assert "/key?" in link and "Signature=" in link


class Person(pydantic.BaseModel):
    age: int


assert Person(age="3").age == 3
try:
    jsonschema.validate({"age": "x"}, {"properties": {"age": {"type": "integer"}}})
    raise SystemExit("jsonschema lets a string pass for an integer")
except jsonschema.ValidationError:
    pass
tries = []


@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def third_time():
    tries.append(1)
    assert len(tries) == 3


third_time()
try:
    requests.get("http://192.0.2.1/", timeout=2)
    raise SystemExit("there is a network")
except requests.ConnectionError:
    pass
try:
    httpx.get("http://192.0.2.1/", timeout=2)
    raise SystemExit("there is a network")
except httpx.TransportError:
    pass
