# Runs a stored tool: executes its code in a module of its own and calls that module's run with the input. The result or
# the failure is one JSON text; program.go reads it. With check it only checks the code.
def berth_tool(name, code, given, most, check):
    import json
    import os
    import sys

    filename = "<tool %s>" % name

    class Report:
        def __init__(self, **parts):
            self.text = json.dumps(parts)

        def __repr__(self):
            return ""

        def _repr_mimebundle_(self, **_):
            return {"application/vnd.berth.tool": self.text}

    def fail(kind, message, **more):
        return Report(error=dict(more, type=kind, message=message))

    # Clients of model providers. Their modules are slow to import, and most tools need none: a client is made before the
    # code runs if the code names it. Otherwise, or if it cannot be made, this stands for it until its first use, which
    # says what is missing.
    class Client:
        def __init__(self, title, key, module, make):
            self.__dict__.update(title=title, key=key, module=module, make=make, real=None)

        def __getattr__(self, attribute):
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            if self.real is None:
                self.__dict__["real"] = self.begin()
            return getattr(self.real, attribute)

        @property
        def __class__(self):  # for isinstance
            return Client if self.real is None else type(self.real)

        def object(self):
            if self.real is None:
                try:
                    self.__dict__["real"] = self.begin()
                except Exception:  # its first use raises it again
                    return self
            return self.real

        def begin(self):
            if not os.environ.get(self.key):
                raise RuntimeError(
                    "%s needs %s, which is not configured: the operator puts it into the file that "
                    "berth serve --provider-keys names, or set it in the tool's env_variables" % (self.title, self.key))
            try:
                module = __import__(self.module, fromlist=["_"])
            except ImportError as e:
                raise RuntimeError(
                    "%s needs the Python module %s, which this image does not have; use the image full, which has it"
                    % (self.title, self.module)) from e
            return self.make(module, os.environ[self.key])

    clients = (
        Client("openai_client", "OPENAI_API_KEY", "openai", lambda m, key: m.OpenAI(api_key=key)),
        Client("anthropic_client", "ANTHROPIC_API_KEY", "anthropic", lambda m, key: m.Anthropic(api_key=key)),
        Client("gemini_client", "GEMINI_API_KEY", "google.genai", lambda m, key: m.Client(api_key=key)),
    )

    # The clients by provider: client.openai, client.anthropic, client.gemini.
    class Clients:
        def __getattr__(self, attribute):
            for client in clients:
                if client.title == attribute + "_client":
                    return client.object()
            raise AttributeError("client has openai, anthropic and gemini, and no %s" % attribute)

        def __dir__(self):
            return [client.title[:-len("_client")] for client in clients]

    def names(compiled):
        found = set(compiled.co_names)
        for part in compiled.co_consts:
            if isinstance(part, type(compiled)):
                found |= names(part)
        return found

    def defines_run(body):
        import ast
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if node.name == "run":
                    return True
                continue
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id == "run" and isinstance(part.ctx, ast.Store):
                    return True
                if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == "run":
                    return True
                if isinstance(part, ast.alias) and (part.asname or part.name) in ("run", "*"):
                    return True
        return False

    def traceback_of(e):
        """traceback_of returns a traceback without the frames above the tool's."""
        import traceback
        tb = e.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename != filename:
            tb = tb.tb_next
        return "".join(traceback.format_exception(type(e), e, tb))

    def failed(e):
        more = {"name": type(e).__name__, "traceback": traceback_of(e)}
        inner = e
        while inner.__traceback__ is None and inner.__context__ is not None:
            inner = inner.__context__
        last = inner.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if isinstance(e, ModuleNotFoundError) and e.name:
            more["module"] = e.name
        if isinstance(e, FileNotFoundError) and isinstance(e.filename, str) and "/" not in e.filename:
            if last is not None and last.tb_frame.f_code.co_filename.endswith("subprocess.py"):
                more["program"] = e.filename
        try:
            message = str(e)
        except Exception:
            message = ""
        return fail(
            "syntax_error" if isinstance(e, SyntaxError) and e.filename == filename else "exception", message, **more)

    def not_json(value, path, above):
        """not_json returns the path and the kind of a part that JSON cannot express, or None if there is none."""
        if value is None or isinstance(value, (bool, int)):
            return None
        if isinstance(value, float):
            return None if value - value == 0 else (path, "the number %r" % value)
        if isinstance(value, str):
            try:
                value.encode()
                return None
            except UnicodeEncodeError:
                return path, "a text with half of a character (a lone surrogate)"
        if id(value) in above:
            return path, "an object that contains itself"
        if isinstance(value, dict):
            for key, part in value.items():
                if not isinstance(key, (str, int, float, bool, type(None))):
                    return path, "a dict with a key of type %s" % type(key).__name__
                bad = not_json(key, path, above) or not_json(part, "%s.%s" % (path, key), above | {id(value)})
                if bad:
                    return bad
            return None
        if isinstance(value, (list, tuple)):
            for i, part in enumerate(value):
                bad = not_json(part, "%s.%d" % (path, i), above | {id(value)})
                if bad:
                    return bad
            return None
        return path, "a value of type %s" % type(value).__name__

    def returned(value):
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False)
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError, OverflowError) as e:
            try:
                path, what = not_json(value, "output", frozenset()) or ("output", str(e))
            except RecursionError:
                path, what = "output", "a value that is nested too deeply"
            return fail(
                "not_serializable", "%s: run returned %s, which is not JSON; return text, numbers, booleans, None, "
                "lists and dicts" % (path, what), field=path)
        if size > most:
            return fail(
                "output_too_large", "output has %d bytes of JSON; %d is the limit; write what is large to a file in "
                "$OUTPUT_DIR" % (size, most), field="output")
        return Report(output=text)

    def run():
        compiled = compile(code, filename, "exec", dont_inherit=True)
        if check:
            import ast
            if not defines_run(ast.parse(code).body):
                return fail("no_run", "the code defines no function run")
            return Report(output="null")
        import linecache
        linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)
        module = type(sys)("tool")
        module.__file__ = filename
        sys.modules["tool"] = module
        used = names(compiled)
        for client in clients:
            module.__dict__[client.title] = client.object() if client.title in used else client
        module.__dict__["client"] = Clients()
        exec(compiled, module.__dict__)
        function = module.__dict__.get("run")
        if not callable(function):
            return fail("no_run", "the code defines no function run; write def run(input): …")
        value = function(json.loads(given))
        if type(value).__name__ == "coroutine":
            import asyncio
            value = asyncio.run(value)
        return returned(value)

    try:
        return run()
    except SystemExit as e:
        status = 0 if e.code is None else e.code if isinstance(e.code, int) else 1
        if not isinstance(e.code, (int, type(None))):
            print(e.code, file=sys.stderr)
        return fail(
            "exit", "the code exited with status %d and returned nothing; return from run instead" % status,
            return_code=status)
    except BaseException as e:
        return failed(e)
