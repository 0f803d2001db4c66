// Package meter reads what a sandbox uses: refusals of its cgroup and the bytes of its workspace and layer. It keeps
// the kernel's files open, because they are read before and after every command.
//
// Package containerd, the runtime, is its only caller.
package meter
