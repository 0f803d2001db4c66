package main

// helperName is what the daemon calls the program as when it is no guest: its entry (entry_amd64.s) then starts
// processes. It reads messages from descriptor 0, and for each makes a process as that says, which maps the file that
// it has as descriptor 3 and makes the system calls that are listed there, one after the other, until one ends it or
// executes a guest. What fails it says on descriptor 4. It knows nothing of what it does; runtime/containerd does,
// see starter.go and script.go there. Nothing of the Go runtime begins, which would be threads, and a process with
// threads joins no user namespace.
const helperName = "script"
