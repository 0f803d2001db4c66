"""The tools that this session may call, as functions: tools.fetch(u), tools["fetch"](u), from tools import fetch."""
# Nothing here is secret and nothing is decided here: the daemon has the list, and judges each call. Interpreters import this at their start,
# so it imports next to nothing; the rest comes with the first call, and asyncio is there already where it is needed.
import sys
from _thread import allocate_lock

PIECE = 64 << 10  # bytes that are read at once
LONGEST_HEAD = 64 << 10  # bytes of a response before its body, and of a chunk's size
BATCH = 64  # calls of one request, which is what the daemon takes
REQUESTS = 3  # of one loop at once, so that its calls are fewer than the 256 that the daemon has under way; more wait
LARGEST = 1 << 20  # bytes of an input, which is what the daemon takes
FULL = 8 << 20  # bytes of the calls of one request: the daemon takes 16 MiB, but has 32 MiB under way, and these are to be room for REQUESTS
TICKS = 100  # turns of a loop that calls of one request are collected for, at most
PATIENCE = 300.0  # seconds for which a daemon that does not answer is tried again, since it last did
PAUSE = 1.0  # seconds of the longest pause before that
ERRORS = {e.__name__: e for e in (PermissionError, NameError, ValueError, TimeoutError)}
STATUSES = {400: ValueError, 401: PermissionError, 403: PermissionError, 413: ValueError}
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class Broken(Exception):
    """The connection ended before everything was answered."""


class Answer:
    """An Answer is given the bytes of a response and gives back the lines of its body. It reads HTTP/1.1, chunks and all."""

    def __init__(self):
        self.status, self.over = 0, False
        self.raw, self.body = b"", b""  # not understood yet; a line that has not ended
        self.chunked, self.left = False, None  # left: bytes to come of the body, or the chunk; None: it is not known

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
                if line:  # the end of the chunk before it leaves an empty one
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
    """refusal is the error for a response that is none of calls."""
    import json
    try:
        failure = json.loads(body)["error"]
        said, kind = failure["message"], ERRORS.get(failure.get("type"))
    except (ValueError, KeyError, TypeError):
        said, kind = "the daemon answered with status %d" % status, None
    if status in (429, 503):  # it is busy, or on its way out or in
        return Broken(said)
    return (kind or STATUSES.get(status, RuntimeError))(said)


def request(method, path, body=b""):
    """request is where one goes, and its bytes."""
    from os import environ
    url, token = environ.get("BERTH_TOOLS", ""), environ.get("BERTH_TOOLS_TOKEN", "")
    host, _, port = url[7:].rstrip("/").partition(":")
    if url[:7] != "http://" or not port.isdigit():
        raise RuntimeError("this command has no tools: BERTH_TOOLS is not in its environment")
    head = "%s %s HTTP/1.1\r\nHost: %s:%s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n" % (method, path, host, port, token)
    if body:
        head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return (host, int(port)), (head + "\r\n").encode("latin-1", "replace") + body


def ask(method, path, body=b"", wait=None):
    """ask makes a request and gives the lines of its answer as they come. Who stops to listen hangs up."""
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
            pass  # what was answered before says why
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
    """A Call is one as a request has it: its text is JSON, and ASCII."""

    def __init__(self, name, input):
        import json
        self.id = new_id()
        self.text = '{"id": "%s", "tool": %s, "input": %s}' % (self.id, json.dumps(name), given(name, input))


def calls(list):
    """calls is the body of a request."""
    return ('{"calls": [%s]}' % ", ".join(one.text for one in list)).encode()


class Retries:
    """Retries says how long to wait before a request is made again, with the ids that it had: the daemon knows them."""

    def __init__(self):
        self.since = None

    def answered(self):
        self.since = None

    def after(self, error):
        from time import monotonic
        now = monotonic()
        if self.since is None or now - self.again > PAUSE:  # it waited for its answer, perhaps for a day: whatever broke it is new
            self.since, self.pause = now, 0.05
        if now - self.since > PATIENCE:
            raise RuntimeError("the tools cannot be reached: %s" % error) from None
        self.pause = min(2 * self.pause, PAUSE)
        self.again = now + self.pause
        return self.pause


def call(name, input):
    """call has the daemon call a tool, and waits for the result."""
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
    """given is input as JSON, or a ValueError. One that is too large is refused here, in the daemon's words: no request has room for it."""
    import json
    try:
        text = json.dumps(json.loads(json.dumps(input, default=plain, allow_nan=False)))  # twice, so that no object has a name twice
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError("tool %s: the arguments are not JSON: %s" % (name, e)) from None
    if len(text) > LARGEST:
        raise ValueError("an input has at most %d bytes; put what is larger into a file" % LARGEST)
    return text


def plain(value):
    """plain is what stands for a value that JSON does not have: an array, a number of numpy, a path."""
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

batches = {}  # by loop: what it has collected


async def later(name, input):
    """later is call for a coroutine. Calls that a loop makes in one go are one request."""
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
    """A Batch collects the calls of a loop until there is nothing else for it to do."""

    def __init__(self, loop):
        import asyncio
        self.loop, self.waiting, self.ticks, self.tasks, self.room = loop, [], 0, set(), asyncio.Semaphore(REQUESTS)

    def add(self, call):
        if not self.waiting:
            self.ticks = 0
            self.loop.call_soon(self.flush)
        future = self.loop.create_future()
        self.waiting.append((call, future))
        return future

    def flush(self):
        busy = getattr(self.loop, "_ready", self.ticks < 3)  # other loops than asyncio's do not say
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
    """requests cuts what was collected into requests that the daemon takes."""
    list, left = [], FULL
    for call, future in waiting:
        if list and (len(list) == BATCH or len(call.text) > left):
            yield list
            list, left = [], FULL
        list.append((call, future))
        left -= len(call.text)
    yield list


async def send(list):
    """send makes one request and gives each future its result. Once nobody waits for any, it hangs up."""
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


# What the list says, as functions.

turn = allocate_lock()  # to change known
known = {}  # by name: what the daemon says of a tool, and its function


def listed(wait):
    """listed is the daemon's list, as it says it; without a bound in seconds it is asked until it does."""
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
    """refresh takes over the daemon's list."""
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
    """find is the function for a name, whoever may call it: the daemon says no to what is not on its list."""
    if name not in known:
        refresh()
    if name not in known:  # by the name that an attribute can have
        same = [n for n in list(known) if identifier(n) == name]
        name = same[0] if len(same) == 1 else name
    _, made = known.get(name, (None, None))
    return made or function(name, {})


def identifier(name):
    return "".join(c if c.isalnum() else "_" for c in name)


def function(name, tool):
    """function is what code calls for a tool."""
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
    """arguments is the input that a call means: positions are the schema's properties in their order, and one dict may be all of it."""
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
    """A Default stands for a property that is left out. The daemon, or the tool, has its value."""

    def __init__(self, of):
        self.text = repr(of["default"]) if isinstance(of, dict) and "default" in of else "..."

    def __repr__(self):
        return self.text


def signature(name, tool):
    """signature is a function with the parameters of a tool, for those who look at them."""
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
        elif optional and "*" not in text:  # Python has those without a default first
            text.append("*")
        text.append(part)
    if schema(tool).get("additionalProperties", False) is not False:
        text.append("**more")
    try:
        exec("def f(%s): pass" % ", ".join(text), scope)
    except SyntaxError:  # a property is called like a keyword
        return None
    f = scope["f"]
    f.__annotations__ = {n: TYPES[of["type"]] for n, of in names.items() if isinstance(of, dict) and isinstance(of.get("type"), str) and of["type"] in TYPES}
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
    """Tools is the module as others see it: it has nothing but what the daemon lists."""

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
        return "\n".join([__doc__, ""] + ["%s: %s" % (name, made.__doc__.split("\n")[0]) for name, (_, made) in sorted(known.copy().items())])

    def __equip__(self, names):
        """__equip__ puts the tools into a namespace, where nothing has their names, and takes out those that are gone."""
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


equipped = {}  # what __equip__ has put where it was asked to


def publish():
    """publish replaces the module by one that has no name of this file's in it."""
    module, me = Tools(__name__), sys.modules.get(__name__)
    for name in ("__file__", "__spec__", "__loader__", "__package__", "__cached__"):
        if name in globals():
            module.__dict__[name] = globals()[name]
    if me is not None and me.__dict__ is globals():
        sys.modules[__name__] = module
    return module


module = publish()
