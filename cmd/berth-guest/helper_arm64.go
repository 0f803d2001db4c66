package main

// helperName is what the daemon calls the program as when it is no guest: its entry (entry_arm64.s) then makes a user
// namespace for the daemon and stays in it until that has its hands on it. It reads the user who is to own the
// namespace from standard input, four bytes; becomes that user, but keeps its capabilities, without which some hosts
// allow nobody a namespace; makes it; writes a byte to standard output; and ends with the standard input. It ends
// with the error's number where it could not. Nothing of the Go runtime begins, as that takes ten times as long. The
// other side is in runtime/containerd.
const helperName = "userns"
