// Package launch makes the first process of a sandbox: its OCI configuration, root file system, user namespace and
// system call filter, and the fork server, which starts it by a setup program in a fraction of the time that runc
// takes.
//
// The setup program is a list of system calls that a process of the fork server executes (cmd/berth-guest has the
// loop, in assembly). Where it cannot be used, runc makes the sandbox from the same configuration.
//
// When a sandbox is started, and what becomes of it, is the work of package containerd, its caller. Package doctor
// calls it to examine a host.
package launch
