// Package launch makes the first process of a sandbox: its OCI configuration, root file system, user namespace and
// system call filter. It also has the fork server, which starts that process by a setup program in a fraction of the
// time that runc takes.
//
// A setup program is a list of system calls that a process of the fork server executes. cmd/berth-guest has the loop,
// in assembly. Where setup programs do not work, runc makes the sandbox from the same configuration.
//
// Package containerd, the caller, decides when a sandbox starts and manages it afterwards. Package doctor calls this
// package to examine a host.
package launch
