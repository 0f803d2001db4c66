package main

// helperName is the program name under which the daemon runs this program as a helper instead of a guest. The entry
// (entry_arm64.s) then makes a user namespace for the daemon and stays in it until the daemon holds the namespace. It
// reads the user who is to own the namespace from standard input (four bytes). It becomes that user but keeps its
// capabilities, because some hosts allow no namespace without them. It makes the namespace, writes a byte to standard
// output, and ends when standard input ends. On failure its exit status is the error's number. The Go runtime does
// not start, because that takes ten times as long. The other side is in runtime/forkserver.
const helperName = "userns"
