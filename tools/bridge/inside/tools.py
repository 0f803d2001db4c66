"""The tools that this session may call, as functions: tools.fetch(u), tools["fetch"](u), from tools import fetch."""
# This file holds no secrets and makes no decisions: the daemon has the list and checks each call. Interpreters import
# the file at their start, so it imports almost nothing. The first call imports the rest. Code that needs asyncio has
# already imported it.
import sys
from _thread import allocate_lock

PIECE = 64 << 10  # bytes of one read
LONGEST_HEAD = 64 << 10  # maximum bytes of a response before its body, and of a chunk's size line
BATCH = 64  # maximum calls of one request; the daemon's limit
REQUESTS = 3  # concurrent requests of one loop: their calls stay below the daemon's limit of 256; further requests wait
LARGEST = 1 << 20  # maximum bytes of an input; the daemon's limit
# Maximum bytes of the calls of one request. The daemon accepts 16 MiB a request and 32 MiB in all requests under way,
# which has to suffice for REQUESTS requests.
FULL = 8 << 20
TICKS = 100  # maximum turns of a loop that collect calls for one request
PATIENCE = 300.0  # seconds of retries since the daemon's last answer
PAUSE = 1.0  # seconds of the longest pause between two tries
ERRORS = {e.__name__: e for e in (PermissionError, NameError, ValueError, TimeoutError)}
STATUSES = {400: ValueError, 401: PermissionError, 403: PermissionError, 413: ValueError}
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class Broken(Exception):
    """Broken means that the connection ended before the daemon answered everything."""


class Answer:
    """An Answer takes the bytes of a response and returns the lines of its body. It reads HTTP/1.1, also chunked."""

    def __init__(self):
        self.status, self.over = 0, False
        self.raw, self.body = b"", b""  # bytes not parsed yet; an incomplete line
        self.chunked, self.left = False, None  # left: remaining bytes of the body or chunk; None: unknown

    def feed(self, data):
        self.raw += data
        if data and (self.status or self.begin()):
            self.body += self.chunks() if self.chunked else self.plain()
        elif not data:
            self.finish()
        if self.status not in (0, 200):
            if self.over:
                raise refusal(self.status, self.body)
            return []
        *lines, self.body = self.body.split(b"\n")
        if self.over and self.body:
            lines, self.body = lines + [self.body], b""
        return lines

    def begin(self):
        top, found, rest = self.raw.partition(b"\r\n\r\n")
        if not found:
            self.bound(self.raw)
            return False
        first, *fields = top.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise Broken("the answer is not HTTP")
        fields = {name.strip().lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
        self.status, self.raw = int(words[1]), rest
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        if not self.chunked and "content-length" in fields:
            self.left = size(fields["content-length"], 10)
            self.over = self.left == 0
        return True

    def plain(self):
        body, self.raw = self.raw if self.left is None else self.raw[:self.left], b""
        if self.left is not None:
            self.left -= len(body)
            self.over = self.left == 0
        return body

    def chunks(self):
        out = []
        while not self.over:
            if not self.left:
                line, found, rest = self.raw.partition(b"\r\n")
                if not found:
                    self.bound(self.raw)
                    break
                self.raw = rest
                if line:  # an empty line follows the previous chunk
                    self.left = size(line.split(b";")[0], 16)
                    self.over = self.left == 0
                continue
            piece = self.raw[:self.left]
            if not piece:
                break
            out.append(piece)
            self.raw, self.left = self.raw[len(piece):], self.left - len(piece)
        return b"".join(out)

    def bound(self, raw):
        if len(raw) > LONGEST_HEAD:
            raise Broken("the answer is not HTTP")

    def finish(self):
        if not self.over and (not self.status or self.chunked or self.left is not None):
            raise Broken("the connection ended")
        self.over = True


def size(text, base):
    try:
        n = int(text, base)
    except ValueError:
        n = -1
    if n < 0:
        raise Broken("the answer is not HTTP")
    return n


def refusal(status, body):
    """refusal returns the error for a response with another status than 200."""
    import json
    try:
        failure = json.loads(body)["error"]
        said, kind = failure["message"], ERRORS.get(failure.get("type"))
    except (ValueError, KeyError, TypeError):
        said, kind = "the daemon answered with status %d" % status, None
    if status in (429, 503):  # the daemon is busy, stopping or starting
        return Broken(said)
    return (kind or STATUSES.get(status, RuntimeError))(said)


def request(method, path, body=b""):
    """request returns the address and the bytes of an HTTP request."""
    from os import environ
    url, token = environ.get("BERTH_TOOLS", ""), environ.get("BERTH_TOOLS_TOKEN", "")
    host, _, port = url[7:].rstrip("/").partition(":")
    if url[:7] != "http://" or not port.isdigit():
        raise RuntimeError("this command has no tools: BERTH_TOOLS is not in its environment")
    head = "%s %s HTTP/1.1\r\nHost: %s:%s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n" % (
        method, path, host, port, token)
    if body:
        head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return (host, int(port)), (head + "\r\n").encode("latin-1", "replace") + body


def ask(method, path, body=b"", wait=None):
    """ask makes a request and yields the lines of its answer as they come. Closing the generator hangs up."""
    import _socket
    where, data = request(method, path, body)
    s = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        s.settimeout(wait)
        try:
            s.connect(where)
            s.sendall(data)
        except ConnectionRefusedError as e:
            raise Broken(str(e)) from None
        except (BrokenPipeError, ConnectionResetError):
            pass  # an answer that came before gives the reason
        a = Answer()
        while not a.over:
            try:
                data = s.recv(PIECE)
            except ConnectionError as e:
                raise Broken(str(e)) from None
            yield from a.feed(data)
    finally:
        s.close()


class Call:
    """A Call is one call of a request. Its text is ASCII JSON."""

    def __init__(self, name, input):
        import json
        self.id = new_id()
        self.text = '{"id": "%s", "tool": %s, "input": %s}' % (self.id, json.dumps(name), given(name, input))


def calls(list):
    """calls returns the body of a request."""
    return ('{"calls": [%s]}' % ", ".join(one.text for one in list)).encode()


class Retries:
    """Retries computes the pause before a retry. A retry repeats the request's ids, which the daemon knows."""

    def __init__(self):
        self.since = None

    def answered(self):
        self.since = None

    def after(self, error):
        from time import monotonic
        now = monotonic()
        # The request may have waited for its answer for a day. Then this is a new failure.
        if self.since is None or now - self.again > PAUSE:
            self.since, self.pause = now, 0.05
        if now - self.since > PATIENCE:
            raise RuntimeError("the tools cannot be reached: %s" % error) from None
        self.pause = min(2 * self.pause, PAUSE)
        self.again = now + self.pause
        return self.pause


def call(name, input):
    """call asks the daemon to call a tool, and waits for the result."""
    import json
    from time import sleep
    one, retries = Call(name, input), Retries()
    body = calls([one])
    while True:
        try:
            for line in ask("POST", "/v1/calls", body):
                answer = json.loads(line)
                if answer.get("id") == one.id:
                    return outcome(answer)
            raise Broken("the answer has no result")
        except Broken as e:
            pause = retries.after(e)
        sleep(pause)


def new_id():
    from os import urandom
    h = urandom(16).hex()
    return "-".join((h[:8], h[8:12], "4" + h[13:16], "a" + h[17:20], h[20:]))


def given(name, input):
    """given returns input as JSON, or raises ValueError.

    It rejects an input that is too large, with the daemon's message, because no request has room for it.
    """
    import json
    try:
        # The second dumps removes duplicate names of objects.
        text = json.dumps(json.loads(json.dumps(input, default=plain, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError("tool %s: the arguments are not JSON: %s" % (name, e)) from None
    if len(text) > LARGEST:
        raise ValueError("an input has at most %d bytes; put what is larger into a file" % LARGEST)
    return text


def plain(value):
    """plain returns a substitute for a value that JSON does not have: an array, a number of numpy, a path."""
    for method in ("tolist", "isoformat", "__fspath__"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError("%s cannot be sent to a tool" % type(value).__name__)


def outcome(answer):
    failure = answer.get("error")
    if failure is None:
        return answer.get("result")
    raise ERRORS.get(failure.get("type"), RuntimeError)(failure.get("message", ""))


# Calls of coroutines.

batches = {}  # the Batch of each loop


async def later(name, input):
    """later is call for coroutines. Calls that a loop makes without waiting between them share one request."""
    import asyncio
    import json
    loop = asyncio.get_running_loop()
    if loop not in batches:
        for old in [b for b in batches if b.is_closed()]:
            del batches[old]
        batches[loop] = Batch(loop)
    result = await batches[loop].add(Call(name, input))
    return result if isinstance(result, str) else json.dumps(result)


class Batch:
    """A Batch collects the calls of a loop until the loop has nothing else to do."""

    def __init__(self, loop):
        import asyncio
        self.loop, self.waiting, self.ticks, self.tasks, self.room = (
            loop, [], 0, set(), asyncio.Semaphore(REQUESTS))

    def add(self, call):
        if not self.waiting:
            self.ticks = 0
            self.loop.call_soon(self.flush)
        future = self.loop.create_future()
        self.waiting.append((call, future))
        return future

    def flush(self):
        busy = getattr(self.loop, "_ready", self.ticks < 3)  # only asyncio's loops have _ready
        if self.ticks == 0 or busy and self.ticks < TICKS:
            self.ticks += 1
            self.loop.call_soon(self.flush)
            return
        waiting, self.waiting = self.waiting, []
        for list in requests(waiting):
            task = self.loop.create_task(self.send(list))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def send(self, list):
        async with self.room:
            await send([(call, future) for call, future in list if not future.done()])


def requests(waiting):
    """requests splits the collected calls into requests within the daemon's limits."""
    list, left = [], FULL
    for call, future in waiting:
        if list and (len(list) == BATCH or len(call.text) > left):
            yield list
            list, left = [], FULL
        list.append((call, future))
        left -= len(call.text)
    yield list


async def send(list):
    """send makes one request and sets the result of each future. It hangs up when all futures are cancelled."""
    import asyncio
    waiting, retries, me = {call.id: (call, future) for call, future in list}, Retries(), asyncio.current_task()

    def gone(future, id):
        if future.cancelled() and waiting.pop(id, None) and not waiting:
            me.cancel()

    for call, future in list:
        future.add_done_callback(lambda f, id=call.id: gone(f, id))
    try:
        while waiting:
            try:
                await listen(waiting, retries)
            except Broken as e:
                await asyncio.sleep(retries.after(e))
    except Exception as e:
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(e)


async def listen(waiting, retries):
    import asyncio
    import json
    where, data = request("POST", "/v1/calls", calls([call for call, _ in waiting.values()]))
    try:
        reader, writer = await asyncio.open_connection(*where)
    except OSError as e:
        raise Broken(str(e)) from None
    try:
        writer.write(data)
        a = Answer()
        while waiting and not a.over:
            for line in a.feed(await reader.read(PIECE)):
                settle(waiting, json.loads(line))
                retries.answered()
        if waiting:
            raise Broken("the answer has not all results")
    except ConnectionError as e:
        raise Broken(str(e)) from None
    finally:
        writer.close()


def settle(waiting, answer):
    _, future = waiting.pop(answer.get("id"), (None, None))
    if future is None or future.done():
        return
    try:
        future.set_result(outcome(answer))
    except Exception as e:
        future.set_exception(e)


# The listed tools as functions.

turn = allocate_lock()  # guards changes of known
known = {}  # by name: the daemon's description of a tool, and the tool's function


def listed(wait):
    """listed returns the daemon's list as bytes. Without wait, in seconds, it retries until PATIENCE is over."""
    from time import sleep
    retries = Retries()
    while True:
        try:
            return b"\n".join(ask("GET", "/v1/tools", wait=wait))
        except Broken as e:
            if wait is not None:
                raise
            pause = retries.after(e)
        sleep(pause)


def refresh(wait=None):
    """refresh updates known from the daemon's list."""
    import json
    tools = {t["name"]: t for t in json.loads(listed(wait))["tools"]}
    with turn:
        for name in list(known):
            if known[name][0] != tools.get(name):
                del known[name]
        for name, tool in tools.items():
            if name not in known:
                known[name] = (tool, function(name, tool))


def find(name):
    """find returns the function for any name. The daemon rejects calls of tools that are not on its list."""
    if name not in known:
        refresh()
    if name not in known:  # look for a tool whose identifier is name
        same = [n for n in list(known) if identifier(n) == name]
        name = same[0] if len(same) == 1 else name
    _, made = known.get(name, (None, None))
    return made or function(name, {})


def identifier(name):
    return "".join(c if c.isalnum() else "_" for c in name)


def function(name, tool):
    """function returns the function that code calls for a tool."""
    if tool.get("async"):
        async def run(*args, **keywords):
            return await later(name, arguments(name, tool, args, keywords))
    else:
        def run(*args, **keywords):
            return call(name, arguments(name, tool, args, keywords))
    run.__name__ = run.__qualname__ = identifier(name)
    run.__module__ = "tools"
    run.__doc__ = described(tool)
    model = signature(name, tool)
    if model is not None:
        run.__wrapped__ = model
        run.__annotations__ = model.__annotations__
    return run


def schema(tool):
    s = tool.get("input_schema")
    return s if isinstance(s, dict) else {}


def properties(tool):
    p = schema(tool).get("properties")
    return p if isinstance(p, dict) else {}


def arguments(name, tool, args, keywords):
    """arguments returns the input of a call.

    Positional arguments are the schema's properties in their order. A single dict may be the whole input.
    """
    names = list(properties(tool))
    if len(args) == 1 and not keywords and isinstance(args[0], dict) and whole(tool, names, args[0]):
        return args[0]
    if not tool:
        return keywords
    if len(args) > len(names):
        raise TypeError("%s() takes %d positional arguments but %d were given" % (name, len(names), len(args)))
    input = dict(zip(names, args))
    for key, value in keywords.items():
        if key in input:
            raise TypeError("%s() got multiple values for argument %r" % (name, key))
        input[key] = value
    return {key: value for key, value in input.items() if not isinstance(value, Default)}


def whole(tool, names, value):
    """whole reports whether a dict is all of the input, and not the first property of it."""
    if tool.get("async") or not names:
        return True
    fits = set(value) <= set(names) and set(schema(tool).get("required", ())) <= set(value)
    first = properties(tool)[names[0]]
    return fits or isinstance(first, dict) and first.get("type", "object") != "object"


class Default:
    """A Default stands for an omitted property. The daemon or the tool supplies its value."""

    def __init__(self, of):
        self.text = repr(of["default"]) if isinstance(of, dict) and "default" in of else "..."

    def __repr__(self):
        return self.text


def signature(name, tool):
    """signature returns a function with the parameters of a tool, for inspect and help."""
    if not tool or tool.get("async"):
        return None
    names, required = properties(tool), schema(tool).get("required", ())
    if not all(n.isidentifier() for n in names):
        return None
    text, scope, optional = [], {}, False
    for i, (n, of) in enumerate(names.items()):
        part, scope["d%d" % i] = n, Default(of)
        if n not in required:
            part, optional = part + "=d%d" % i, True
        elif optional and "*" not in text:  # Python wants parameters without a default first
            text.append("*")
        text.append(part)
    if schema(tool).get("additionalProperties", False) is not False:
        text.append("**more")
    try:
        exec("def f(%s): pass" % ", ".join(text), scope)
    except SyntaxError:  # a property has the name of a keyword
        return None
    f = scope["f"]
    f.__annotations__ = {
        n: TYPES[of["type"]] for n, of in names.items()
        if isinstance(of, dict) and isinstance(of.get("type"), str) and of["type"] in TYPES
    }
    f.__name__ = f.__qualname__ = identifier(name)
    f.__module__, f.__doc__ = "tools", described(tool)
    return f


def described(tool):
    lines = [tool.get("description") or "A tool that the daemon does not list."]
    if tool.get("async"):
        lines += ["", "It is awaited, takes one dict and gives a string."]
    if properties(tool):
        lines.append("")
    for name, of in properties(tool).items():
        of = of if isinstance(of, dict) else {}
        kind = of.get("type", "any")
        kind = kind if isinstance(kind, str) else " or ".join(map(str, kind))
        need = "" if name in schema(tool).get("required", ()) else ", optional"
        lines.append(("%s (%s%s): %s" % (name, kind, need, of.get("description", ""))).rstrip(": "))
    return "\n".join(lines)


class Tools(type(sys)):
    """Tools is the module that user code sees. It has only the tools that the daemon lists."""

    def __getattr__(self, name):
        if name.startswith("_") and name not in known:
            raise AttributeError("there is no tool %s" % name)
        return find(name)

    def __getitem__(self, name):
        return find(name)

    def __dir__(self):
        refresh()
        return sorted(map(identifier, known.copy()))

    def __iter__(self):
        refresh()
        return iter(sorted(known))

    def __contains__(self, name):
        refresh()
        return name in known

    def __len__(self):
        refresh()
        return len(known)

    @property
    def __all__(self):
        return dir(self)

    @property
    def __doc__(self):
        try:
            refresh(wait=5.0)
        except (Broken, OSError, RuntimeError):
            return __doc__
        return "\n".join([__doc__, ""] + [
            "%s: %s" % (name, made.__doc__.split("\n")[0]) for name, (_, made) in sorted(known.copy().items())])

    def __equip__(self, names):
        """__equip__ adds the tools to a namespace, except where a name is taken, and removes tools that are gone."""
        try:
            refresh(wait=5.0)
        except (Broken, OSError, RuntimeError):
            return
        mine = {identifier(name): made for name, (_, made) in known.copy().items()}
        mine["tools"] = self
        for name in [n for n in equipped if n not in mine]:
            if names.get(name) is equipped.pop(name):
                del names[name]
        for name, value in mine.items():
            if name not in names or name in equipped and names[name] is equipped[name]:
                names[name] = equipped[name] = value


equipped = {}  # the values that __equip__ has added, by name


def publish():
    """publish replaces the module by one without the names of this file."""
    module, me = Tools(__name__), sys.modules.get(__name__)
    for name in ("__file__", "__spec__", "__loader__", "__package__", "__cached__"):
        if name in globals():
            module.__dict__[name] = globals()[name]
    if me is not None and me.__dict__ is globals():
        sys.modules[__name__] = module
    return module


module = publish()
