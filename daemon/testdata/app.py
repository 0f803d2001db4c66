# The application of TestPorts: plain answers, both directions of bulk, events, chunks, a websocket.
import base64, hashlib, http.server, json, struct, sys, threading

PIECE = bytes(range(256)) * 4096  # 1 MiB
go = threading.Event()


class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while n := int(self.rfile.readline(), 16):
                left = n
                while left:
                    piece = self.rfile.read(min(left, 1 << 20))
                    left -= len(piece)
                    yield piece
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 1 << 20))
            left -= len(piece)
            yield piece

    def do_GET(self):
        if self.path == "/blob":
            self.send_response(200)
            self.send_header("Content-Length", str(100 * len(PIECE)))
            self.end_headers()
            for _ in range(100):
                self.wfile.write(PIECE)
        elif self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"data: one\n\n")
            go.wait()
            self.wfile.write(b"data: two\n\n")
        elif self.path == "/away":
            self.say(302, b"", Location="/there", Set_Cookie="a=b; Domain=example.com; Path=/x",
                     Clear_Site_Data='"*"')
        elif self.headers.get("Upgrade") == "websocket":
            self.websocket()
        else:
            self.say(200, json.dumps({"path": self.path, "headers": self.headers.items()}).encode())

    def do_POST(self):
        if self.path == "/go":
            go.set()
        digest, n = hashlib.sha256(), 0
        for piece in self.body():
            digest.update(piece)
            n += len(piece)
        self.say(200, f"{n} {digest.hexdigest()}".encode())

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while head := self.rfile.read(2):
            n = head[1] & 127
            if n == 126:
                n, = struct.unpack(">H", self.rfile.read(2))
            mask, data = self.rfile.read(4), self.rfile.read(n)
            data = bytes(c ^ mask[i % 4] for i, c in enumerate(data))
            self.wfile.write(bytes([head[0]]) + (bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n)) + data)
            if head[0] & 15 == 8:
                break
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024


server = Server(("127.0.0.1", int(sys.argv[1])), App)
print("listening", flush=True)
server.serve_forever()
