package main

// helperName is the program name under which the daemon runs this program as a helper instead of a guest. The entry
// then starts processes (forkserver_amd64.s). It reads messages from descriptor 0 and makes one process for each
// message, as the message says. The process maps the file at its descriptor 3. It makes the system calls listed there
// in order, until one ends the process or executes a guest. It reports failures on descriptor 4. The helper does not
// know the purpose of the calls; runtime/forkserver does, see forkserver.go and program.go there. The Go runtime does
// not start, because it would create threads, and a process with threads cannot join a user namespace.
const helperName = "script"
