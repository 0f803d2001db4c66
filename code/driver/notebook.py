# The manners of notebooks for the Python driver: !commands, %magics, name? and indented cells, get_ipython(), and
# IPython.display in images without IPython. It is compiled at its first use: a cell that is not Python as it stands.
import importlib.machinery
import os
import re
import sys

driver = shell = None


def begin(d):
    global driver, shell
    driver, shell = d, Shell()


class UsageError(Exception):
    """A magic that is not known, or its arguments are wrong."""

    __module__ = "builtins"  # its name stands alone in tracebacks, as IPython's


# Translation of a cell into Python. A line stays one line, so that tracebacks name the lines of the cell.

ASSIGNED = re.compile(r"(\s*[\w.,*\[\]()'\" ]+?=\s*)(?=[!%][^=])")
HELP = re.compile(r"(\s*)(?:(\?\??)([\w.*]+)|([\w.*]+)(\?\??))\s*;?\s*$")


def parse(error, source):
    """parse returns the tree and the text of a cell that is not Python as it stands. It raises error if the cell has
    nothing that only notebooks understand."""
    text = source
    if re.match(r"\s*\n[ \t]+\S|[ \t]+\S", source):
        import textwrap
        text = textwrap.dedent(source)
    text = translate(text)
    if text == source:
        raise error
    return driver.compile(text), text


def translate(source):
    lines = source.split("\n")
    first = next((n for n, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        name, _, rest = lines[first][2:].strip().partition(" ")
        body = "\n".join(lines[first + 1:])
        return "\n" * first + call("run_cell_magic", name, rest.strip(), body)
    out, state = [], State()
    while len(out) < len(lines):
        line, used = lines[len(out)], 1
        if not state.inside():
            while line.endswith("\\") and re.match(r"\s*[!%]", line) and len(out) + used < len(lines):
                line += "\n" + lines[len(out) + used]
                used += 1
            python = command(line)
            if python is not None:
                out += [python] + [""] * (used - 1)
                continue
        for line in lines[len(out):len(out) + used]:
            state.read(line)
            out.append(line)
    return "\n".join(out)


def command(line):
    """command returns a line as Python, or None if it has nothing to translate."""
    assigned = ASSIGNED.match(line)
    indent = assigned.group(1) if assigned else line[:len(line) - len(line.lstrip())]
    rest = line[len(indent):].rstrip()
    if rest.startswith("!!"):
        return indent + call("getoutput", rest[2:])
    if rest.startswith("!"):
        return indent + call("getoutput" if assigned else "system", rest[1:])
    if re.match(r"%\w", rest):
        name, _, args = rest[1:].replace("\\\n", " ").partition(" ")
        return indent + call("run_line_magic", name, args.strip())
    asked = HELP.match(line)
    if asked:
        name, marks = asked.group(3) or asked.group(4), asked.group(2) or asked.group(5)
        return asked.group(1) + call("help", name, len(marks) == 2)
    return None


def call(method, *args):
    return "get_ipython().%s(%s)" % (method, ", ".join(map(repr, args)))


class State:
    """State knows after each line whether the next one continues a string, a bracket or the line."""

    TOKEN = re.compile(r"#|'''|\"\"\"|['\"\[({\])}]")

    def __init__(self):
        self.quote, self.depth, self.continued = "", 0, False

    def inside(self):
        return bool(self.quote) or self.depth > 0 or self.continued

    def read(self, line):
        at, self.continued = 0, line.endswith("\\")
        while True:
            pattern = re.compile(r"\\.|" + self.quote) if self.quote else self.TOKEN
            found = pattern.search(line, at)
            if not found:
                break
            token, at = found.group(), found.end()
            if self.quote:
                if token == self.quote:
                    self.quote = ""
            elif token == "#":
                self.continued = False
                break
            elif token in "[({":
                self.depth += 1
            elif token in "])}":
                self.depth = max(0, self.depth - 1)
            else:
                self.quote = token
        if len(self.quote) == 1 and not self.continued:
            self.quote = ""  # a string that has no end is an error of its line


class Lines(list):
    """Lines are what a command printed."""

    n = property("\n".join)
    s = property(" ".join)
    l = property(list)


class Shell:
    """Shell is what get_ipython() returns: the part of IPython's that cells use."""

    def __init__(self):
        self.config, self.previous = {}, None
        self.display_pub = self.events = self
        self.magics = {name[5:]: getattr(self, name) for name in dir(self) if name.startswith("line_")}
        self.cell_magics = {name[5:]: getattr(self, name) for name in dir(self) if name.startswith("cell_")}
        for name in ("ls", "cat", "mkdir", "rmdir", "rm", "cp", "mv", "ln", "echo"):
            self.magics[name] = lambda rest, name=name: self.system(name + " " + rest)

    @property
    def user_ns(self):
        return driver.main.__dict__

    @property
    def execution_count(self):
        return int(driver.name[6:-1])

    # What translated cells call, under the names that exported notebooks call, too.

    def system(self, text):
        """system runs a command of bash, and keeps its exit status in _exit_code."""
        self.user_ns["_exit_code"] = run(["bash", "-c", self.expand(text)])

    def getoutput(self, text):
        import subprocess
        done = subprocess.run(["bash", "-c", self.expand(text)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.user_ns["_exit_code"] = done.returncode
        return Lines(done.stdout.decode("utf-8", "replace").splitlines())

    def run_line_magic(self, name, line, _stack_depth=1):
        if name not in self.magics:
            raise UsageError("the line magic %%%s is not known; there are %s" % (name, listed("%", self.magics)))
        raw = name in ("time", "timeit", "env", "set_env")  # IPython expands these, too, but Python has braces
        return self.magics[name](line if raw else self.expand(line))

    def run_cell_magic(self, name, line, cell):
        if name not in self.cell_magics:
            raise UsageError("the cell magic %%%%%s is not known; there are %s" % (name,
                             listed("%%", self.cell_magics)))
        return self.cell_magics[name](self.expand(line), cell)

    def magic(self, text):
        name, _, rest = text.strip().lstrip("%").partition(" ")
        return self.run_line_magic(name, rest.strip())

    def run_cell(self, text, *args, **kwargs):
        return self.evaluate(text)

    def ev(self, text):
        return eval(text, self.user_ns)

    def ex(self, text):
        exec(text, self.user_ns)

    def push(self, names):
        self.user_ns.update(names)

    def publish(self, data, metadata=None, **_):
        driver.bundle("display", driver.rich().bundle(data))

    def register(self, event, func):
        """register does nothing, as enable_gui: there are no events of cells and no windows."""

    unregister = register

    def enable_gui(self, gui=None):
        pass

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        kind = self.magics if magic_kind == "line" else self.cell_magics
        kind[magic_name or func.__name__] = func

    def help(self, name, source=False):
        """help prints what is known of a name: its signature, its documentation and its source."""
        import inspect
        try:
            value = self.ev(name)
        except Exception:
            print("Object `%s` not found." % name)
            return
        try:
            print("Signature: %s%s" % (name, inspect.signature(value)))
        except (TypeError, ValueError):
            pass
        print("Type: %s" % type(value).__name__)
        if source:
            try:
                print("Source:\n" + inspect.getsource(value))
                return
            except (TypeError, OSError):
                pass
        print("Docstring:\n" + (inspect.getdoc(value) or "<no docstring>"))

    def expand(self, text):
        """expand replaces {expression} and $name by the values of Python. What cannot be evaluated stays."""
        def braces(found):
            try:
                return str(eval(found.group(1), self.user_ns))
            except Exception:
                return found.group()

        def dollar(found):
            name = found.group(1)
            return str(self.user_ns[name]) if name in self.user_ns else found.group()

        return re.sub(r"(?<!\$)\$([A-Za-z_]\w*)", dollar, re.sub(r"(?<![{$])\{([^{}]+)\}(?!\})", braces, text))

    def evaluate(self, text):
        """evaluate runs a part of a cell, and returns the value of its last expression."""
        tree, _ = driver.parse(text)
        return driver.execute(tree)[0]

    # Magics of a line.

    def line_cd(self, rest):
        target = rest.strip("'\"") or "~"
        if target == "-":
            if self.previous is None:
                raise UsageError("%cd -: there is no previous directory")
            target = self.previous
        here = os.getcwd()
        os.chdir(os.path.expanduser(target))
        self.previous = here
        print(os.getcwd())

    def line_pwd(self, rest):
        return os.getcwd()

    def line_pip(self, rest):
        import importlib
        import shlex
        status = run([sys.executable, "-m", "pip"] + shlex.split(rest))
        importlib.invalidate_caches()
        if status:
            self.user_ns["_exit_code"] = status

    def line_conda(self, rest):
        raise UsageError("conda is not here; install with %pip")

    line_mamba = line_conda

    def line_env(self, rest):
        if not rest:
            return dict(os.environ)
        name, sign, value = re.match(r"([^\s=]+)\s*(=?)\s*(.*)", rest).groups()
        if not sign and not value:
            return os.environ.get(name)
        os.environ[name] = self.expand(value)
        print("env: %s=%s" % (name, os.environ[name]))

    line_set_env = line_env

    def line_time(self, rest):
        return self.time(rest)

    def line_timeit(self, rest):
        options, text = arguments(rest, "nr", "oqcptv")
        return timed(options, text, "pass")

    def line_run(self, rest):
        import runpy
        import shlex
        words = shlex.split(rest)
        if not words:
            raise UsageError("%run: which file? Say %run FILE.py ARGUMENT...")
        before, sys.argv = sys.argv, words
        try:
            names = runpy.run_path(os.path.expanduser(words[0]), run_name="__main__")
        finally:
            sys.argv = before
        self.user_ns.update((k, v) for k, v in names.items() if not k.startswith("__"))

    def line_matplotlib(self, rest):
        """Figures are shown in any case."""

    line_config = line_colors = line_pylab = line_matplotlib

    def line_load_ext(self, rest):
        sys.stderr.write("%load_ext: extensions of IPython do not work here; the line does nothing\n")

    line_reload_ext = line_unload_ext = line_load_ext

    def line_autoreload(self, rest):
        sys.stderr.write("%autoreload: changed modules are not loaded again; use importlib.reload(module)\n")

    def line_who(self, rest):
        print("\t".join(self.line_who_ls(rest)) or "There are no variables.")

    def line_who_ls(self, rest):
        module = type(sys)
        return sorted(k for k, v in self.user_ns.items() if not k.startswith("_") and not isinstance(v, module))

    def line_whos(self, rest):
        for name in self.line_who_ls(rest):
            value = self.user_ns[name]
            print("%-20s %-15s %s" % (name, type(value).__name__, " ".join(repr(value).split())[:80]))

    def line_reset(self, rest):
        for name in [name for name in self.user_ns if not name.startswith("__")]:
            del self.user_ns[name]

    def line_lsmagic(self, rest):
        print(listed("%", self.magics) + "\n" + listed("%%", self.cell_magics))

    # Magics of a cell.

    def cell_time(self, rest, body):
        return self.time(rest + "\n" + body)

    def time(self, text):
        """time runs a text and prints how long it took. It returns the value of its last expression."""
        import time
        wall, used = time.perf_counter(), time.process_time()
        try:
            return self.evaluate(text)
        finally:
            print("CPU times: %s\nWall time: %s" % (span(time.process_time() - used),
                                                   span(time.perf_counter() - wall)))

    def cell_timeit(self, rest, body):
        options, setup = arguments(rest, "nr", "oqcptv")
        return timed(options, body, setup or "pass")

    def cell_capture(self, rest, body):
        import contextlib
        import io
        words = rest.split()
        name = next((word for word in words if not word.startswith("-")), None)
        out, err, shown, bundle = io.StringIO(), io.StringIO(), [], driver.bundle
        keep = contextlib.nullcontext
        if "--no-display" not in words:
            driver.bundle = lambda kind, parts: shown.append(parts)
        try:
            with keep() if "--no-stdout" in words else contextlib.redirect_stdout(out), \
                    keep() if "--no-stderr" in words else contextlib.redirect_stderr(err):
                driver.show(self.evaluate("\n" + body))
        finally:
            driver.bundle = bundle
            if name:
                self.user_ns[name] = Captured(out.getvalue(), err.getvalue(), shown)

    def cell_writefile(self, rest, body):
        append = re.match(r"(-a|--append)\s+", rest)
        path = os.path.expanduser(rest[append.end() if append else 0:].strip("'\""))
        if not path:
            raise UsageError("%%writefile: which file? Say %%writefile [-a] FILE")
        there = os.path.exists(path)
        with open(path, "a" if append else "w") as file:
            file.write(body if body.endswith("\n") else body + "\n")
        print("%s %s" % ("Appending to" if append and there else "Overwriting" if there else "Writing", path))

    cell_file = cell_writefile

    def cell_bash(self, rest, body):
        script(["bash", "-s"] + rest.split(), body)

    def cell_sh(self, rest, body):
        script(["sh", "-s"] + rest.split(), body)

    def cell_python(self, rest, body):
        script([sys.executable, "-"] + rest.split(), body)

    cell_python3 = cell_python

    def cell_script(self, rest, body):
        import shlex
        words = shlex.split(rest)
        if not words:
            raise UsageError("%%script: which program? Say %%script PROGRAM ARGUMENT...")
        script(words, body)

    def cell_perl(self, rest, body):
        script(["perl", "-"] + rest.split(), body)

    def cell_ruby(self, rest, body):
        script(["ruby", "-"] + rest.split(), body)

    def cell_html(self, rest, body):
        self.publish({"text/html": body})

    def cell_markdown(self, rest, body):
        self.publish({"text/markdown": body})

    def cell_latex(self, rest, body):
        self.publish({"text/latex": body})

    def cell_svg(self, rest, body):
        self.publish({"image/svg+xml": body})

    def cell_javascript(self, rest, body):
        self.publish({"application/javascript": body})

    cell_js = cell_javascript


class Captured:
    """Captured is what a cell under %%capture printed and showed."""

    def __init__(self, stdout, stderr, outputs):
        self.stdout, self.stderr, self.outputs = stdout, stderr, outputs

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for parts in self.outputs:
            driver.bundle("display", parts)

    __call__ = show


def listed(sign, names):
    return ", ".join(sign + name for name in sorted(names))


def arguments(rest, valued, flags):
    """arguments splits options of one letter from what follows them."""
    options = {}
    while True:
        found = re.match(r"-([%s])\s*(\d+)\s*|-([%s])(?:\s+|$)" % (valued, flags), rest)
        if not found:
            return options, rest
        if found.group(1):
            options[found.group(1)] = int(found.group(2))
        else:
            options[found.group(3)] = True
        rest = rest[found.end():]


def span(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return "%.3g %s" % (seconds * factor, unit)
    return "%.3g ns" % (seconds * 1e9)


def timed(options, text, setup):
    import timeit
    timer = timeit.Timer(translate(text), translate(setup), globals=driver.main.__dict__)
    count = options.get("n") or timer.autorange()[0]
    runs = [taken / count for taken in timer.repeat(options.get("r", 7), count)]
    mean = sum(runs) / len(runs)
    deviation = (sum((taken - mean) ** 2 for taken in runs) / len(runs)) ** 0.5
    if "q" not in options:
        print("%s ± %s per loop (mean ± std. dev. of %d runs, %d loops each)" % (span(mean), span(deviation),
                                                                               len(runs), count))
    return runs if "o" in options else None


def run(argv, text=None):
    """run runs a program and returns its exit status. What it prints goes where Python prints. An interrupt ends the
    program with all that it has started."""
    import signal
    import subprocess
    driver.flush()
    to = {}
    for name, stream, number in (("stdout", sys.stdout, 1), ("stderr", sys.stderr, 2)):
        try:
            own = stream.fileno() == number
        except Exception:
            own = False
        if not own:
            to[name] = subprocess.PIPE
    source = subprocess.DEVNULL if text is None else subprocess.PIPE
    child = subprocess.Popen(argv, stdin=source, start_new_session=True, **to)
    try:
        if to or text is not None:
            out, err = child.communicate(None if text is None else text.encode())
            sys.stdout.write((out or b"").decode("utf-8", "replace"))
            sys.stderr.write((err or b"").decode("utf-8", "replace"))
        return child.wait()
    except BaseException:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        raise


def script(argv, text):
    """script is run for the magics of a cell, which fail with their program."""
    import subprocess
    status = run(argv, text)
    if status:
        raise subprocess.CalledProcessError(status, argv[0])


# IPython.display and IPython, for images without IPython.

def spec(name, path):
    """spec returns how to import a module of IPython. The installed one shows by the driver, too."""
    real = importlib.machinery.PathFinder.find_spec(name, path)
    if real is not None:
        if name == "IPython.core.display_functions" and real.loader is not None:
            real.loader = driver.rich().Wrapped(real.loader, lambda module: vars(module).update(functions()))
        elif name == "IPython.core.getipython" and real.loader is not None:
            real.loader = driver.rich().Wrapped(real.loader, lambda module: vars(module).update(
                get_ipython=lambda: shell))
        return real
    made = {"IPython": package, "IPython.display": vars_of_display, "IPython.core": lambda: {},
            "IPython.core.display": vars_of_display, "IPython.core.display_functions": functions}.get(name)
    if made is None:
        return None
    return importlib.machinery.ModuleSpec(name, Made(made), is_package=name in ("IPython", "IPython.core"))


class Made:
    """Made is the loader of a module whose names a function returns."""

    def __init__(self, names):
        self.names = names

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(self.names())


def package():
    # The version is one that draws figures without the help of their library.
    return {"get_ipython": lambda: shell, "version_info": (9, 0, 0, ""), "__version__": "9.0.0"}


def functions():
    return {"display": display, "clear_output": clear_output, "update_display": update_display,
            "publish_display_data": lambda data, *args, **kwargs: shell.publish(data), "DisplayHandle": DisplayHandle}


def vars_of_display():
    names = functions()
    names.update({kind.__name__: kind for kind in (DisplayObject, HTML, Markdown, Latex, Math, SVG, JSON, Javascript,
                                                   Pretty, Code, Image, IFrame)})
    names["TextDisplayObject"] = DisplayObject
    for kind, media in (("html", "text/html"), ("markdown", "text/markdown"), ("latex", "text/latex"),
                        ("svg", "image/svg+xml"), ("png", "image/png"), ("jpeg", "image/jpeg"),
                        ("json", "application/json"), ("javascript", "application/javascript"),
                        ("pretty", "text/plain")):
        names["display_" + kind] = lambda *values, raw=False, media=media, **_: [
            shell.publish({media: value}) if raw else display(value) for value in values] and None
    return names


def display(*values, raw=False, display_id=None, **_):
    """display shows values as results of the cell; raw ones are given by media type."""
    for value in values:
        if raw:
            shell.publish(value)
        else:
            driver.show(value, "display")
    if display_id is not None:
        return DisplayHandle(display_id)


def clear_output(wait=False):
    """clear_output does nothing: what has been shown has been sent."""


def update_display(value, *, display_id=None, **options):
    display(value, **options)


class DisplayHandle:
    def __init__(self, display_id=None):
        self.display_id = display_id

    def display(self, value, **options):
        display(value, **options)

    update = display


class DisplayObject:
    """DisplayObject is a value that is shown in one form: its data, or those of a file or a URL."""

    media, binary = "text/plain", False

    def __init__(self, data=None, url=None, filename=None, metadata=None, **_):
        if isinstance(data, str) and url is None and filename is None and self.media != "text/plain" and (
                data.startswith(("http://", "https://")) and not re.search(r"\s|<", data)):
            url, data = data, None
        if data is None and url is not None:
            import urllib.request
            with urllib.request.urlopen(url) as answer:
                data = answer.read()
        elif data is None and filename is not None:
            with open(os.path.expanduser(filename), "rb") as file:
                data = file.read()
        if isinstance(data, bytes) and not self.binary:
            data = data.decode("utf-8", "replace")
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata

    def __repr__(self):
        return "<%s.%s object>" % ("IPython.core.display", type(self).__name__)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.media: self.data}


def kind(name, media, **names):
    return type(name, (DisplayObject,), dict(names, media=media, __module__="IPython.core.display"))


HTML = kind("HTML", "text/html", _repr_html_=lambda self: self.data, __html__=lambda self: self.data)
Markdown = kind("Markdown", "text/markdown")
Latex = kind("Latex", "text/latex")
Math = kind("Math", "text/latex", _repr_mimebundle_=lambda self, include=None, exclude=None: {
    "text/latex": "$\\displaystyle %s$" % self.data.strip("$")})
SVG = kind("SVG", "image/svg+xml")
JSON = kind("JSON", "application/json")
Javascript = kind("Javascript", "application/javascript")
Pretty = kind("Pretty", "text/plain", __repr__=lambda self: self.data)
Code = kind("Code", "text/plain", __repr__=lambda self: self.data)


class Image(DisplayObject):
    """Image is a PNG, JPEG or GIF of bytes, a file or a URL."""

    binary = True

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, **options):
        if isinstance(data, str) and not data.startswith(("http://", "https://")):
            data, filename = None, data
        super().__init__(data, url=url, filename=filename, **options)
        self.media = "image/png"
        if self.data and self.data[:3] == b"\xff\xd8\xff" or format in ("jpg", "jpeg"):
            self.media = "image/jpeg"
        elif self.data and self.data[:4] == b"GIF8" or format == "gif":
            self.media = "image/gif"


class IFrame(DisplayObject):
    media = "text/html"

    def __init__(self, src, width=800, height=600, **_):
        self.data = '<iframe width="%s" height="%s" src="%s" frameborder="0" allowfullscreen></iframe>' % (
            width, height, src)
