# Runs programs of languages that are compiled, and of PHP. A cell is a whole program: it is compiled in a directory of
# its own and runs in the working directory; only files stay from one cell to the next. Its argument is the language.
# code/cell/protocol.go defines the protocol.
import os
import shutil
import signal
import subprocess
import sys
import tempfile

# The file, what compiles it in its directory, and what runs it.
LANGUAGES = {
    "c": ("main.c", ["gcc", "-std=gnu17", "-O1", "-pthread", "-I{cwd}", "main.c", "-o", "main", "-lm"], []),
    "cpp": ("main.cpp", ["g++", "-std=gnu++20", "-O1", "-pthread", "-I{cwd}", "main.cpp", "-o", "main"], []),
    "fortran": ("main.f90", ["gfortran", "-O1", "-I{cwd}", "main.f90", "-o", "main"], []),
    "go": ("main.go", ["go", "build", "-o", "main", "main.go"], []),
    "rust": ("main.rs", ["rustc", "--edition=2024", "-Copt-level=1", "main.rs", "-o", "main"], []),
    "php": ("main.php", [], ["php"]),
}
OUTPUT = 16 << 10  # bytes of a compiler's output that an error has


class Driver:
    def __init__(self, language):
        self.file, self.compiler, self.runner = LANGUAGES[language]
        self.tool = (self.compiler or self.runner)[0]
        if not shutil.which(self.tool):
            print("berth: " + self.tool + " is missing", file=sys.stderr)
            sys.exit(127)
        self.input = os.fdopen(os.dup(0), "rb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.child = None
        self.interrupted = False
        signal.signal(signal.SIGINT, self.interrupt)  # a handler, which programs do not inherit

    def interrupt(self, *_):
        self.interrupted = True
        if self.child:
            self.child.send_signal(signal.SIGINT)

    def put(self, kind, data=b"", to=1):
        data = data.encode("utf-8", "replace") if isinstance(data, str) else data
        for at in range(0, len(data) or 1, 3900):
            piece = data[at:at + 3900]
            os.write(to, self.mark + b" %s %d\n" % (kind, len(piece)) + piece)

    def request(self):
        line = self.input.readline().split()
        if not line:
            sys.exit(0)
        self.mark = b"\x1e" + line[0]
        settings = {}
        for _ in range(int(line[4]) if len(line) > 4 else 0):
            name, size = self.input.readline().split()
            settings[name.decode()] = self.input.read(int(size)).decode()
        return line[2] == b"once", settings, self.input.read(int(line[3]))

    # start runs a program and returns its status as subprocess has it, and its output if that is wanted.
    def start(self, argv, **options):
        self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **options)
        if self.interrupted:  # before there was a program
            self.child.send_signal(signal.SIGINT)
        out, _ = self.child.communicate()
        status, self.child = self.child.returncode, None
        return status, out

    # run compiles and runs a program. It returns the status, and the error as name, message and traceback.
    def run(self, code, settings):
        cwd = settings.pop("/", os.getcwd())
        env = {**os.environ, **settings}
        with tempfile.TemporaryDirectory(prefix="berth-") as place:
            with open(os.path.join(place, self.file), "wb") as f:
                # A program of PHP may lack the mark that it is one.
                f.write(b"<?php " * (self.tool == "php" and b"<?" not in code) + code)
            if self.compiler:
                command = [part.replace("{cwd}", os.path.abspath(cwd)) for part in self.compiler]
                status, out = self.start(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                if status:
                    return 1, ("compile", self.tool + " refuses the program", out[:OUTPUT])
                os.write(2, out)  # warnings
            program = [*self.runner, os.path.join(place, self.file if self.runner else "main")]
            try:
                status, _ = self.start(program, cwd=cwd, env=env)
            except OSError as e:  # there is no such directory
                return 1, ("exit", str(e), "")
        if status < 0:
            name = signal.Signals(-status).name
            return status, ("signal", "the program was ended by " + name, "")
        return status, ("exit", "the program exited with status %d" % status, "")

    def serve(self):
        while True:
            once, settings, code = self.request()
            self.interrupted = False
            status, error = self.run(code, settings)
            if status and (not once or error[0] == "compile"):
                self.put(b"e")
                for name, text in zip(("name", "message", "traceback"), error):
                    if text:
                        self.put(b"m", name)
                        self.put(b"d", text)
                if error[0] != "compile":
                    self.put(b"m", "return_code")
                    self.put(b"d", str(status if status > 0 else 128 - status))
            if once:
                if status < 0:  # as the program ended, so the driver ends
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                    os.kill(os.getpid(), -status)
                sys.exit(status)
            self.put(b"z", to=2)
            self.put(b"z")


Driver(sys.argv[1]).serve()
