// Package session is the core: sessions with a lease, the commands that run in them, and the rules for access and
// lifetime. The daemon opens it; the edges, the gateway and the tools call it.
//
// A session is what clients know as a container: an ID, an owner, a workspace and a lease. Its sandbox comes and
// goes: the sweeper stops an idle one, and the next use starts it again with the same files. The core reaches
// sandboxes in two ways: a Runtime makes and removes them, and the guest inside answers over one socket each.
//
//	Sessions   all of them: Open, Create, Get, List, Delete, Sweep
//	Session    one: Exec, file access, lease
//	Exec       one command: Wait, Follow, Signal, Write
//
// A session's states; each change is in the ledger before it happens:
//
//	creating → running ⇄ stopped → expired → gone
//
// After a crash, reconcile finishes or undoes what was half done, on the next Open.
//
//	in scope                                out of scope
//	lease, limits, ownership, exec, output  HTTP, wire dialects (api/...)
//	what a crash left (reconcile)           containers, images, disks (runtime/containerd)
//	secrets of sessions (session/secrets)   stored files, manifests (files, artifacts)
package session
