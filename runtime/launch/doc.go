// Package launch starts the first process of a sandbox. There are four ways, behind the interface Launcher:
//
//   - Forked (forked.go): a setup program of the fork server does what runc would do. This is the usual way for
//     class runc, and takes a fraction of runc's time. Package forkserver says what that buys and how it is switched
//     off.
//   - Runc (runc.go): runc makes the sandbox without a shim. It is used where setup programs do not work or fail.
//   - Gvisor (gvisor.go): runsc makes the sandbox without a shim.
//   - Shim (shim.go): a containerd shim holds the sandbox. A containerd that other programs use, too, needs it.
//
// All make the same sandbox from the same OCI configuration, see package ocispec. Package containerd, the caller,
// decides when a sandbox starts, prepares its disk, and manages it afterwards. Package doctor checks the programs.
package launch
