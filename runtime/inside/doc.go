// Package inside tells the processes of a container its limits and its use, where the kernel would tell them those of
// the machine. Each container of class runc has two files: one at /proc/meminfo, for free and other programs, and one
// for the guest, which answers statfs with it (guest/capacity).
//
// A file is written when it is read. The kernel holds up each read of it until the daemon has allowed that, a
// permission event of fanotify, and the daemon writes the present figures first. So an idle container costs nothing but
// two pages of memory, and a command that does not ask costs nothing. If the daemon ends, the kernel allows all reads,
// and the files keep the last figures; the next daemon finds the files in the containers. The file system that the
// files are on has no size, so that it shows nothing about the machine, and df leaves it out.
//
// Where the kernel has no such events, or does not let the daemon have them, containers have no such files. Package
// containerd is the only caller.
package inside
