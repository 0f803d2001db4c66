# Runs cells of Python and reports their results. code/cell/protocol.go defines the protocol. Each start of an
# interpreter compiles this file, and that is most of the start time that berth adds. So the file imports only modules
# that a bare interpreter has already loaded. rich.py makes the results that need more than their repr, notebook.py has
# the manners of notebooks, and charts.py describes figures. They come as arguments and are compiled at their first use.
def boot():
    import sys
    import posix
    import _ast
    import _signal
    import builtins

    ONLY_AST, AWAIT, COROUTINE = 0x400, 0x2000, 0x80
    FUTURES = 0x1FE0000  # every flag that an import from __future__ may set

    class Driver:
        def __init__(self, rich, notebook, charts):
            self.sources = {"rich": rich, "notebook": notebook, "charts": charts}
            self.modules = {}
            self.pid = posix.getpid()
            # Programs that a cell starts do not inherit these copies. They also stay when a cell redirects its own.
            self.input, self.out, self.err = posix.dup(0), posix.dup(1), posix.dup(2)
            null = posix.open("/dev/null", posix.O_RDONLY)
            posix.dup2(null, 0)
            posix.close(null)
            self.texts, self.flags, self.waiting, self.settings = {}, 0, b"", {}
            self.tools = b"BERTH_TOOLS" in posix.environ
            self.main = type(sys)("__main__")
            self.main.__builtins__ = builtins
            self.main.__annotations__ = {}
            sys.modules["__main__"] = self.main
            sys.argv = [""]
            sys.meta_path.insert(0, self)
            builtins.display = self.display
            builtins.get_ipython = lambda: self.module("notebook").shell

        def read(self, n):
            while n > len(self.waiting):
                more = posix.read(self.input, max(n - len(self.waiting), 1 << 16))
                if not more:
                    posix._exit(0)
                self.waiting += more
            data, self.waiting = self.waiting[:n], self.waiting[n:]
            return data

        def line(self):
            line = b""
            while line[-1:] != b"\n":
                line += self.read(1)
            return line.split()

        def request(self):
            nonce, number, mode, size, *count = self.line()
            self.mark = b"\x1e" + nonce
            self.name = "<cell " + number.decode() + ">"
            self.once = mode == b"once"
            self.settings = {}
            for _ in range(int(count[0]) if count else 0):
                name, length = self.line()
                self.settings[name.decode()] = self.read(int(length)).decode()
            return self.read(int(size)).decode("utf-8", "replace")

        # put writes one record, in pieces that are small enough for an atomic write.
        def put(self, kind, data=b"", to=None):
            if posix.getpid() != self.pid:
                return
            if isinstance(data, str):
                data = data.encode("utf-8", "replace")
            for at in range(0, len(data) or 1, 3900):
                piece = data[at:at + 3900]
                record = self.mark + b" %s %d\n" % (kind, len(piece)) + piece
                while record:
                    record = record[posix.write(self.out if to is None else to, record):]

        def bundle(self, kind, parts):
            self.flush()
            self.put(b"r", kind)
            for name, value in parts.items():
                self.put(b"m", name)
                self.put(b"d", value)
            if kind != "value":  # of which the end of the cell is the end
                self.put(b"m")

        def module(self, name):
            module = self.modules.get(name)
            if module is None:
                module = self.modules[name] = type(sys)("berth_" + name)
                exec(compile(self.sources[name], "<berth>", "exec"), module.__dict__)
                module.begin(self)
            return module

        def rich(self):
            return self.module("rich")

        def show(self, value, kind="value"):
            if type(value) in (int, float, bool, complex):
                self.bundle(kind, {"text/plain": repr(value)})
            elif value is not None:
                self.bundle(kind, self.rich().mime(value))

        def display(self, *values, **options):
            if options:
                return self.module("notebook").display(*values, **options)
            for value in values:
                self.show(value, "display")

        def flush(self):
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass

        # find_spec sees the import of every module. It wraps the loaders of four, and makes those of IPython.
        def find_spec(self, name, path=None, target=None):
            if name in ("matplotlib.pyplot", "linecache", "PIL.Image", "asyncio"):
                return self.rich().wrap(name, path)
            if name.partition(".")[0] == "IPython":
                return self.module("notebook").spec(name, path)

        def code(self, tree, mode):
            code = compile(tree, self.name, mode, self.flags | AWAIT, True)
            self.flags |= code.co_flags & FUTURES
            return code

        def compile(self, text):
            return compile(text, self.name, "exec", ONLY_AST | AWAIT | self.flags, True)

        # parse returns the tree of a text, and the text as Python.
        def parse(self, text):
            try:
                return self.compile(text), text
            except SyntaxError as e:
                return self.module("notebook").parse(e, text)

        # execute runs a tree: as one coroutine if it awaits anything. It returns the value of the last expression,
        # and that expression or None.
        def execute(self, tree):
            value, parts = None, []
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
            if tree.body:
                parts.append(self.code(tree, "exec"))
            if last:
                parts.append(self.code(_ast.Expression(last.value), "eval"))
            for part in parts:
                if part.co_flags & COROUTINE:
                    return self.rich().wait(self.rich().steps(parts, COROUTINE)), last
            for part in parts:
                value = eval(part, self.main.__dict__)
            return value, last

        def run(self, text):
            self.texts[self.name] = text
            if "linecache" in sys.modules:
                self.rich().remember()
            if self.tools:
                self.rich().equip()
            tree, text = self.parse(text)
            value, last = self.execute(tree)
            if last:
                rest = text.encode().splitlines()[last.end_lineno - 1][last.end_col_offset:]
                if not rest.lstrip().startswith(b";"):
                    if value is not None:
                        self.main.__dict__["_"] = value
                    self.show(value)

        # cell runs one cell and returns its SystemExit and its other exception, each None if it was not raised.
        def cell(self, text):
            exits = failed = None
            try:
                if self.settings:
                    self.rich().enter(self.settings)
                self.run(text)
            except SystemExit as e:
                exits = e
            except BaseException as e:
                failed = e
            if "rich" in self.modules:
                try:
                    self.rich().end()
                except BaseException as e:
                    failed = self.rich().first(failed, e)
            if posix.getpid() != self.pid:  # a process that the cell forked has reached the end
                self.flush()
                posix._exit(0 if exits is None and failed is None else 1)
            if failed is not None:
                self.flush()
                self.rich().fail(failed)
            return exits, failed

        def serve(self):
            handler = _signal.getsignal(_signal.SIGINT)
            while True:
                if "rich" in self.modules and not self.waiting:
                    self.rich().idle()
                text = self.request()
                _signal.signal(_signal.SIGINT, handler)
                exits, failed = self.cell(text)
                if exits is not None:
                    raise exits
                if self.once:
                    return sys.exit(1) if failed is not None else None
                # Ignore interrupts that arrive after the end of the cell.
                handler = _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
                self.flush()
                self.put(b"z", b"", self.err)
                self.put(b"z")

    return Driver(*sys.argv[1:4])


boot().serve()
