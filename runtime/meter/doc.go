// Package meter reads the resource use of a sandbox: OOM kills, refused forks, and the bytes of its workspace and
// layer. It keeps the kernel's files open, because they are read before and after every command.
//
// Package containerd, the runtime, is its only caller.
package meter
