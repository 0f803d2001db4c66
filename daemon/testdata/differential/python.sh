python3 - <<'P'
import json, os, subprocess, sys, tempfile, threading, hashlib, re, struct, mmap, socket, select, signal
print(json.dumps({"ü": [1, 2.5, None]}, sort_keys=True), hashlib.sha1(b"x").hexdigest(), re.findall(r"\w+", "a b"))
print(subprocess.run(["sh", "-c", "echo sub; exit 4"], capture_output=True))
r, w = os.pipe(); os.write(w, b"pipe"); print(os.read(r, 9)); a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(9))
t = threading.Thread(target=lambda: print("thread")); t.start(); t.join()
with tempfile.TemporaryFile() as f: f.write(b"mapped"); f.flush(); print(mmap.mmap(f.fileno(), 6)[:])
pid = os.fork()
if pid == 0: os._exit(17)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); rang = []; signal.signal(signal.SIGALRM, lambda *_: rang.append("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01); signal.pause(); signal.setitimer(signal.ITIMER_REAL, 0); print(rang[0])  # again and again: once may be before the pause
for path in ("/no/such", "/"):
    try: open(path)
    except OSError as e: print(e.errno)
s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect("s"); print(select.select([s], [], [], 1)[0] == [s])
os.makedirs("d/e"); os.rename("d/e", "d/f"); print(sorted(os.walk("d"))); os.symlink("d", "l"); print(os.path.islink("l"), os.readlink("l")); os.link("s", "h") if False else None
print(struct.pack("<Id", 7, .5)); sys.stdout.flush(); sys.stderr.write("to stderr\n"); sys.exit(23)
P
