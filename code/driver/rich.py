# The part of the Python driver that few cells need: values with more forms than their repr, figures, tracebacks and
# await.
import _frozen_importlib_external as machinery
import sys

LONGEST = 1 << 20  # maximum characters of a text; the rest is cut
ROWS, COLUMNS = 1000, 200  # of a table
TABLE = "application/vnd.berth.table+json"
CHART = "application/vnd.berth.chart+json"

TOOLS = "/.berth/tools/python/tools.py"

driver = loop = toolbox = None

# Media types by the method that notebooks call to get them.
METHODS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png", "_repr_jpeg_": "image/jpeg",
}


def begin(d):
    global driver
    driver = d


def equip():
    """equip puts the session's tools into builtins, except where a name is taken.

    It does not replace a module of the user's own that is called tools.
    """
    global toolbox
    import builtins
    try:
        if toolbox is None:
            spec = machinery.PathFinder.find_spec("tools")
            if spec is not None and spec.origin == TOOLS:
                import tools
                toolbox = tools
            else:
                scope = {"__name__": "tools", "__file__": TOOLS}
                with open(TOOLS) as f:
                    exec(compile(f.read(), TOOLS, "exec"), scope)
                toolbox = scope["module"]
        toolbox.__equip__(vars(builtins))
    except (OSError, AttributeError):  # the container does not have the tools, or user code replaced them
        pass


before = []  # the settings that the interpreter had: names and values, None if there was none


def enter(settings):
    """enter sets what holds for one cell: variables of the environment, and as "/" the working directory."""
    import os
    for name, value in settings.items():
        if name == "/":
            here = os.getcwd()
            os.chdir(value)
            before.append((name, here))
        else:
            before.append((name, os.environ.get(name)))
            os.environ[name] = value


def leave():
    """leave undoes enter."""
    import os
    while before:
        name, value = before.pop()
        try:
            if name == "/":
                os.chdir(value)
            elif value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        except Exception as error:  # the directory is gone
            tell(error)


def text(value):
    """text returns a string cut to LONGEST characters, or bytes as base64."""
    if isinstance(value, (bytes, bytearray)):
        import base64
        return base64.b64encode(value).decode()
    if len(value) > LONGEST:
        return value[:LONGEST] + "… [%d characters left out]" % (len(value) - LONGEST)
    return value


def encoded(value, **options):
    """encoded returns a value as JSON, or None if JSON cannot express it or the text exceeds LONGEST."""
    import json
    try:
        out = json.dumps(value, allow_nan=False, **options)
    except (TypeError, ValueError, RecursionError):
        return None
    return out if len(out) <= LONGEST else None


def mime(value):
    """mime returns all forms of a value by media type."""
    kind = type(value)
    if figure(value):
        return drawn(value)
    parts = {"text/plain": text(repr(value))}
    if kind in (dict, list):
        parts["application/json"] = encoded(value)
    elif str(kind.__module__).startswith("pandas.") and hasattr(value, "to_json"):
        parts.update(attempt(lambda: {TABLE: table(value)}))
    if has(kind, "_repr_mimebundle_"):
        parts.update(attempt(lambda: bundle(value._repr_mimebundle_(include=None, exclude=None))))
    for method, name in METHODS.items():
        if has(kind, method) and not parts.get(name):
            parts.update(attempt(lambda: bundle({name: getattr(value, method)()})))
    return {name: part for name, part in parts.items() if part is not None}


def has(kind, method):
    """has reports whether a type has a method of notebooks. None says that it has not, and a metaclass may fail."""
    try:
        return kind is not type and getattr(kind, method, None) is not None
    except Exception:
        return False


def attempt(forms):
    """attempt returns further forms of a value, or none if making them fails. It prints the error then, as IPython
    does: the value is shown without them.
    """
    try:
        return forms()
    except NotImplementedError:  # by convention: this value has no such form
        return {}
    except Exception as error:
        tell(error)
        return {}


def bundle(parts):
    """bundle returns an object's own forms as texts. It drops the metadata that some methods add to the data."""
    if isinstance(parts, tuple):
        parts = parts[0]
    out = {}
    for name, part in parts.items():
        if isinstance(part, tuple):
            part = part[0]
        if part is None or not isinstance(name, str):
            continue
        if isinstance(part, (str, bytes, bytearray)) and not name.endswith("json"):
            out[name] = text(part)
        else:
            out[name] = encoded(part, default=str)
    return out


def table(frame):
    """table returns the first rows and columns of a pandas frame or series, with the types of the columns."""
    import json
    if frame.ndim == 1:
        frame = frame.to_frame()
    part = frame.iloc[:ROWS, :COLUMNS]
    try:
        split = json.loads(part.to_json(orient="split", date_format="iso", default_handler=str))
    except (TypeError, ValueError, OverflowError):  # duplicate names, or types that pandas cannot write
        split = {"index": [str(i) for i in part.index],
                 "data": [[str(v) for v in row] for row in part.itertuples(index=False)]}
    return encoded({
        "columns": [{"name": str(name), "dtype": str(dtype)} for name, dtype in zip(part.columns, part.dtypes)],
        "index": split["index"], "rows": split["data"],
        "total_rows": int(frame.shape[0]), "total_columns": int(frame.shape[1]),
    }, default=str)


def figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def drawn(fig):
    """drawn returns a figure as an image. It closes the figure, so finish does not show it again."""
    import io
    out = io.BytesIO()
    parts = {"text/plain": repr(fig)}
    pyplot = sys.modules.get("matplotlib.pyplot")
    try:
        fig.savefig(out, format="png", bbox_inches="tight")
        parts.update(attempt(lambda: bundle({CHART: driver.module("charts").chart(fig)})))  # it is laid out now
    finally:
        if pyplot is not None:
            pyplot.close(fig)
    parts["image/png"] = text(out.getvalue())
    return parts


def end():
    """end does what is left to do at the end of a cell."""
    try:
        finish()
    finally:
        leave()


def finish():
    """finish shows the figures that a cell left open, and closes all of them.

    A figure that cannot be drawn does not keep the others from being shown. Its error is raised at the end.
    """
    pyplot = sys.modules.get("matplotlib.pyplot")
    failed = None
    try:
        for number in pyplot.get_fignums() if hasattr(pyplot, "get_fignums") else ():
            try:
                driver.bundle("figure", drawn(pyplot.figure(number)))
            except Exception as error:
                failed = first(failed, error)
    finally:
        if hasattr(pyplot, "close"):
            pyplot.close("all")
    if failed is not None:
        raise failed


def first(failed, error):
    """first returns the error that the cell reports: failed, or else error. It prints an error that is not reported."""
    if failed is None or failed is error:
        return error
    tell(error)
    return failed


def tell(error):
    """tell prints an exception that does not end the cell."""
    try:
        sys.stderr.write(trace(error))
    except Exception:  # the cell replaced its standard error
        pass


class Wrapped:
    """Wrapped is a module's loader that calls then after it has loaded the module."""

    def __init__(self, loader, then):
        self.loader, self.then = loader, then

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then(module)


def wrap(name, path):
    """wrap returns a module's spec with a loader that calls the driver after the import."""
    spec = machinery.PathFinder.find_spec(name, path)
    if spec is not None and spec.loader is not None:
        spec.loader = Wrapped(spec.loader, IMPORTED[name])
    return spec


def imported_pyplot(pyplot):
    def show(*args, **kwargs):
        """Show all open figures as results of the cell."""
        finish()

    pyplot.show = show
    driver.module("charts").watch()


def imported_image(module):
    def show(self, *args, **kwargs):
        """Show the image as a result of the cell."""
        driver.show(self, "display")

    def save(self, fp, *args, **kwargs):
        write(self, fp, *args, **kwargs)
        # Libraries save for reasons of their own, and into memory.
        if sys._getframe(1).f_globals is driver.main.__dict__ and not hasattr(fp, "write"):
            driver.show(self, "display")

    write = module.Image.save
    save.__doc__ = write.__doc__
    module.Image.show, module.Image.save = show, save


def imported_asyncio(module):
    """Let create_task work in cells that await nothing: the task runs in the loop of all cells, as in notebooks."""
    create = module.create_task

    def create_task(coroutine, **options):
        try:
            module.get_running_loop()
        except RuntimeError:
            return cells_loop().create_task(coroutine, **options)
        return create(coroutine, **options)

    create_task.__doc__ = create.__doc__
    module.create_task = create_task


IMPORTED = {"matplotlib.pyplot": imported_pyplot, "PIL.Image": imported_image, "asyncio": imported_asyncio,
            "linecache": lambda _: remember()}


def remember():
    """remember puts the source of all cells into linecache, so tracebacks show their lines."""
    cache = getattr(sys.modules.get("linecache"), "cache", None)
    if cache is not None:
        for name, source in driver.texts.items():
            cache[name] = (len(source), None, source.splitlines(True), name)


def cells_loop():
    """cells_loop returns the loop of all cells."""
    global loop
    import asyncio
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
    return loop


def wait(coroutine):
    """wait runs the coroutine of a cell, in one loop for all cells."""
    import asyncio
    loop = cells_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        raise


async def steps(parts, awaits):
    """steps runs the parts of a cell, of which some await, and returns the value of the last."""
    value = None
    for part in parts:
        value = eval(part, driver.main.__dict__)
        if part.co_flags & awaits:
            value = await value
    return value


def idle():
    """idle runs the tasks that cells have left in the loop, until the next cell arrives."""
    if loop is None or loop.is_closed():
        return
    import asyncio
    if not asyncio.all_tasks(loop):
        return
    arrived = loop.create_future()
    loop.add_reader(driver.input, lambda: arrived.done() or arrived.set_result(None))
    try:
        loop.run_until_complete(arrived)
    except BaseException as error:  # of a task that ended with SystemExit
        tell(error)
    finally:
        loop.remove_reader(driver.input)
        driver.flush()


def own(stack):
    """own removes the frames above the cell's from a stack, and those of this file."""
    first = stack[0].filename if stack else ""
    for n, frame in enumerate(stack):
        if frame.filename.startswith("<cell "):
            del stack[:n]
            break
    else:
        if first in ("<string>", "<berth>"):
            del stack[:]
    stack[:] = [frame for frame in stack if frame.filename != "<berth>"]


def trace(error):
    """trace returns the traceback of an exception, without the driver's frames."""
    import linecache
    import traceback
    remember()
    told = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    del linecache
    chain, seen = [told], set()
    while chain:
        part = chain.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        own(part.stack)
        chain += [part.__cause__, part.__context__] + list(getattr(part, "exceptions", None) or ())
    return "".join(told.format())


def fail(error):
    """fail reports the exception of a cell."""
    try:
        message = str(error)
    except Exception:
        message = "<no text: str() of the exception failed>"
    driver.put(b"e")
    for name, value in (("name", type(error).__name__), ("message", message), ("traceback", trace(error))):
        driver.put(b"m", name)
        driver.put(b"d", text(value))
