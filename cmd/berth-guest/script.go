package main

// Called scriptName, the program is no guest: its entry (entry_amd64.s) maps the file that it has as descriptor 3 and makes the system calls that are
// listed there, one after the other, the last of which executes a guest. What fails it says on descriptor 4. It knows nothing of what it does; session/containerd does, see
// script.go there. Nothing of the Go runtime begins, which would be threads, and a process with threads joins no user namespace.
const scriptName = "script"
